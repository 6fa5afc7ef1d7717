"""A score over communication cost, with the Pareto front of the methods."""

from fedtide.records.frames import METHOD, Records
from fedtide.report.charts.chart import Axis, Chart, Panel, Series, floats, score_axis, stepped
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.style import GRAY, line_look
from fedtide.report.parts import figures
from fedtide.report.tables.table import Table


def level_title(table: Table) -> str:
    """What the dots are: one number per method."""
    words = {table.score.mean_next: "Mean test {}", "best": "Best test {}", "last": "Test {} of the last rounds"}
    words["final"] = "Test {} at the end"
    return words[table.level.key].format(table.score.words)


def score_over_cost(records: Records, table: Table) -> Chart | None:
    """Best score (its mean over the periods) over kappa, a dot per method with the range over its seeds, and the Pareto front.

    None unless clients of some run average inside a round, and two methods have a complete run.
    """
    if all(settings.get("communication.name", "per_round") == "per_round" for settings in records.settings.values()):
        return None
    costs, level = records.history.groupby("key", sort=False)["kappa"].mean(), table.level.key
    runs = table.runs[table.runs["state"] == "complete"].assign(kappa=lambda frame: frame["key"].map(costs))
    points = (
        runs[runs["kappa"] > 0]  # others communicate nothing, so that they have no cost to weigh
        .dropna(subset=[level])
        .groupby(METHOD, sort=False)
        .agg(kappa=("kappa", "mean"), mean=(level, "mean"), low=(level, "min"), high=(level, "max"))
    )
    if len(points) < 2:
        return None
    names, order = method_names(points.index.to_list()), ["kappa", "mean"]
    front = points.sort_values(order, ascending=[True, table.score.lower])
    best = table.score.sign * front["mean"]
    front = front[best > best.cummax().shift(fill_value=-float("inf"))]  # better than whatever costs less
    x, y = stepped(floats(front["kappa"]), floats(front["mean"]))
    series = [Series("Pareto front", x, y, GRAY, width=1.0)]
    for number, (name, row) in enumerate(zip(names.values(), points.to_dict("records"), strict=True)):
        kappa, middle, low, high = (floats([row[column]]) for column in (*order, "low", "high"))
        color = line_look(number).color
        series.append(Series(name, kappa, middle, color, low, high, marker="o", size=5, width=0, bars=True))
    return Chart(
        Axis("Communication cost per round (kappa; 1 is an exchange after every local step)", log=True),
        score_axis(level_title(table), table.score, points["low"].min(), points["high"].max()),
        (Panel(series=tuple(series)),),
        1,
        3.6,
    )


figures.add(
    200,
    lambda source: drawings(
        f"{source.records.score.name}_over_cost",
        f"{level_title(source.table)} over communication cost",
        f"Of {source.records.models()}. Dots: mean of the complete runs of a method that communicates; bars: range over its "
        "seeds; line: Pareto front of the methods.",
        score_over_cost(source.records, source.table),
    ),
)
