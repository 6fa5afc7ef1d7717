"""Requests to erase clients: what the models still know of them, what that cost the others, and the same over the rounds."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD, Records
from fedtide.records.measures import erasure, metrics
from fedtide.records.measures.erasure import COSTS, PREFIX
from fedtide.report import formats
from fedtide.report.charts.chart import MOST_MARKERS, Axis, Chart, Panel, Series, floats, ranged
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.session_marks import session_spans
from fedtide.report.charts.style import GRAY, line_look
from fedtide.report.parts import figures, sheets, tables
from fedtide.report.tables.method_table import Column, MethodTable, Sheet, over_seeds

_LIMIT = 4.0  # over-erased models may lie far outside
_LAST = ("gap_left", "retained_change", "retained_worst", "auc", "auc_low", "auc_high", "auc_counterfactual")
_COSTS = ("gradients_retained", "gradients_erased", "stored")


def _measured(run: pd.DataFrame) -> dict[str, float]:
    """Of one run: values right after the last request, at the starts of sessions since, and at the end; and costs."""
    at = erasure.request(run[erasure.COLUMN])
    assert at is not None
    columns = {name: run[PREFIX + name] for name in erasure.COMPARED} | {"": run[erasure.COLUMN]}
    found = {name: math.nan if value is None else value for name, value in erasure.last_request(columns).items()}
    if columns["retained_pooled_change"].notna().any() and math.isnan(found["reached"]):
        found["reached"] = math.inf
    costs = {name: float(run[COSTS + name].iloc[-1]) for name in (*_COSTS, "down", "up")}
    return {
        "memory_left_step": float(run[f"{PREFIX}memory_left_step"].iloc[at]),
        "memory_left_end": metrics.final(run[f"{PREFIX}memory_left"]),
        "excess_starts": metrics.mean(run[f"{PREFIX}excess_start"].iloc[at:]),
        **{name: metrics.final(run[PREFIX + name]) for name in _LAST},
        **found,
        **{name: costs[name] for name in _COSTS},
        "bytes": costs["down"] + costs["up"],
    }


def erased(records: Records) -> MethodTable | None:
    """:func:`_measured` by method, of the complete runs with requests; None without one."""
    history = _with_requests(records)
    if history.empty:
        return None
    found = {str(key): _measured(run) for key, run in history.groupby("key", sort=False)}
    runs = records.runs[records.runs["key"].isin(found)]
    runs = pd.concat([runs, pd.DataFrame([found[key] for key in runs["key"]], index=runs.index)], axis=1)
    columns = [column for column in _COLUMNS if runs[column.key].notna().any()]
    return MethodTable(runs, over_seeds(runs, [*_LAST, *(column.key for column in columns)]), columns)


def _with_requests(records: Records) -> pd.DataFrame:
    """Rounds of the complete runs with a request."""
    history = records.history[records.history["state"] == "complete"]
    if erasure.COLUMN not in history:
        return history[:0]
    return history[history["key"].isin(history.loc[history[erasure.COLUMN] > 0, "key"])]


def _number(mean: float, spread: float) -> str:
    """Two digits after the point."""
    if math.isnan(mean):
        return formats.NOTHING
    shown = f"{mean:.2f}" if math.isnan(spread) else f"{mean:.2f} \N{PLUS-MINUS SIGN} {spread:.2f}"
    return shown.replace("-", "\N{MINUS SIGN}")


def _column(key: str, title: str, text: Callable[[float, float], str] = _number) -> Column:
    return Column(key, title, text, "none")


def _count(mean: float, spread: float) -> str:
    return formats.NOTHING if math.isnan(mean) else f"{mean:,.0f}"


def _bytes(mean: float, spread: float) -> str:
    return formats.human_bytes(mean)


_COLUMNS = [
    _column("memory_left_step", "Memory left after the request"),
    _column("memory_left_end", "Memory left at the end"),
    _column("gap_left", "Distance left at the end"),
    _column("excess_starts", "Excess at session starts, nats"),
    _column("resurrection", "Resurrection, nats"),
    _column("retained_change", "Others' accuracy, points", formats.PERCENT.difference),
    _column("retained_worst", "Worst tenth, points", formats.PERCENT.difference),
    _column("reached", "Rounds to recover", formats.rounds),
    _column("auc", "AUC of the attack"),
    _column("auc_counterfactual", "AUC, counterfactual"),
    _column("gradients_retained", "Gradients, others", _count),
    _column("gradients_erased", "Gradients, erased", _count),
    _column("bytes", "Traffic", _bytes),
    _column("stored", "Stored", _bytes),
]
_CAPTION = (
    "Models are compared with the counterfactual, the same run without these clients. Excess: its mean "
    "loss on the samples that they trained on, minus the model's; 0 is exact, above 0 the model "
    "remembers, below 0 it is over-erased, which is a trace as well. Memory left: excess over that of the "
    "run that only continues without them (1: nothing erased); distance left: the same of the distance "
    "between parameters. Resurrection: excess at the first session start since the request, minus that "
    "before it. Others' accuracy: mean change on the own test samples of the clients that stay, and of "
    f"the worst tenth; rounds to recover: until their accuracy is at most {100 * erasure.MARGIN:g} point below the "
    "counterfactual's. AUC of the attack: membership inference by the loss, [95 % interval, mean over the "
    "seeds]; the clients' test samples gain from their training as well, so that it hardly sees a client "
    "that is still there, and it understates the risk of single samples. Gradients (on batches), traffic "
    "and bytes stored in advance are costs of the requests, besides those of the rounds. Mean \N{PLUS-MINUS SIGN} sample "
    "standard deviation over the seeds."
)


def sheet(table: MethodTable) -> Sheet:
    """The table as text."""

    def cell(column: Column, row: dict[str, float]) -> str:
        low, high = (_number(row[f"auc_{end}_mean"], math.nan) for end in ("low", "high"))
        known = column.key == "auc" and low != formats.NOTHING
        return column.cell(row) + (f" [{low}, {high}]" if known else "")

    rows = [(method, [cell(column, row) for column in table.columns]) for method, row in table.rows()]
    return Sheet("Erased clients", _CAPTION, [column.title for column in table.columns], rows)


_MEMORY = (
    "Share of the memory of the erased clients that is left, from the last request on: 0 exact, 1 nothing erased, "
    f"below 0 over-erased; values beyond \N{PLUS-MINUS SIGN}{_LIMIT:g} are drawn at the border. First point: right after "
    "the request. Diamonds: starts of sessions. Lines: mean of the complete runs of a method; shading: range over its "
    "seeds."
)


def memory(records: Records) -> Chart | None:
    """Memory left over rounds, a panel per initializer; None without values."""
    points = pd.concat(
        [_points(run) for _, run in _with_requests(records).groupby("key", sort=False)] or [pd.DataFrame()]
    )
    if points.empty:
        return None
    labels = list(dict.fromkeys(label for label, _ in records.methods))
    groups = {str(start): rows for start, rows in points.groupby("initializer", sort=False)}
    ends = floats([points["x"].min(), points["x"].max()])
    levels = {"exact": 0.0, "nothing erased": 1.0}
    marks = [Series(name, ends, floats([level] * 2), GRAY, dash=int(level)) for name, level in levels.items()]
    panels = tuple(
        Panel(
            start if len(groups) > 1 else "",
            (*marks, *_lines(rows, labels)),
            sessions=session_spans(records, [method for method in records.methods if method[1] == start]),
        )
        for start, rows in groups.items()
    )
    x = Axis("Round", low=0.0, high=1.005 * ends[1], whole=True)
    low, high = max(-_LIMIT, min(0.0, points["y"].min())), min(_LIMIT, max(1.0, points["y"].max()))
    y = Axis("Memory left", low=low - 0.1, high=high + 0.1)
    return Chart(x, y, panels, 1, 3.4 if len(panels) == 1 else 0.6 + 2.4 * len(panels))


def _points(run: pd.DataFrame) -> pd.DataFrame:
    """Memory left of a run: ``x``, for the start of a session half a round earlier, ``y``, and whether a session ``starts``."""
    at, name = erasure.request(run[erasure.COLUMN]), f"{PREFIX}memory_left"
    since = run.iloc[at:]
    found = [
        since.assign(x=since["round"] - 1.0, y=since[f"{name}_step"], starts=False).iloc[:1],
        since.assign(x=since["round"] - 0.5, y=since[f"{name}_start"], starts=True),
        since.assign(x=since["round"], y=since[name], starts=False),
    ]
    return pd.concat(found)[[*METHOD, "x", "y", "starts"]].dropna()


def _lines(points: pd.DataFrame, labels: list[str]) -> Iterator[Series]:
    for label, own in points.groupby("label", sort=False):
        look, of = line_look(labels.index(str(label))), own.groupby("x")["y"].agg(["mean", "min", "max"])
        of = of.clip(-_LIMIT, _LIMIT)
        line = ranged(str(label), of, look.color, dash=look.dash, marker="o" if len(of) <= MOST_MARKERS else "")
        yield line
        starts = np.isin(line.x, own.loc[own["starts"], "x"])
        if starts.any() and line.y is not None:
            bare = replace(line, x=line.x[starts], y=line.y[starts], low=None, high=None)
            yield replace(bare, marker="D", size=5.5, width=0, listed=False, note="session start")


def _tables(records: Records) -> list[MethodTable]:
    found = erased(records)
    return [] if found is None else [found]


tables.add(10, lambda source: [("erasure", found) for found in _tables(source.records)])
sheets.add(65, lambda source: [sheet(found) for found in _tables(source.records)])
figures.add(121, lambda source: drawings("erased_memory", "Memory of erased clients", _MEMORY, memory(source.records)))
