"""Arrivals and departures of clients from session to session, with the scores of the models below."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.records.frames import METHOD, Records, by_method
from fedtide.report.charts.chart import Axis, score_axis
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.printed import finish
from fedtide.report.charts.style import GRAY, WIDTH, legend_layout, line_style, paper
from fedtide.report.parts import figures
from fedtide.world.presence.membership import membership
from fedtide.world.timeline import Timeline

_MOVES = {"newcomers": "arrive for the first time", "returners": "come back", "left": "leave"}


def _caption(records: Records) -> str:
    """What the picture shows."""
    return (
        "Above: clients present, and those who arrive and leave between sessions. "
        f"Below: {_heading(records)[0].lower() + _heading(records)[1:]}, of {records.models()}; mean and range over the seeds."
    )


def _heading(records: Records) -> str:
    score = records.score
    if score.ahead:
        session = "period" if records.periods else "session"
        return f"Test {score.present.words} of every {session}, before it is used for training"
    return f"Test {score.words} at the end of every session"


def movements(timeline: Timeline) -> dict[str, list[str] | list[int]]:
    """Movements of a dataset's population: columns with a row per session.

    Clients are counted in the first round of a session. No rows if the clients are not those of the data.
    """
    found: dict[str, list[int]] = {name: [] for name in ("present", "newcomers", "returners", "left")}
    if not len(timeline.origin_of_client):
        return {"name": [], **found}
    for t in timeline.session_starts.tolist():
        groups, present = membership(timeline, t), len(timeline.at(t).clients)
        before = found["present"][-1] if t else 0
        found["present"].append(present)
        found["newcomers"].append(len(groups["newcomers"]))
        found["returners"].append(len(groups["returners"]))
        found["left"].append(before - len(groups["stayers"]))
    names = timeline.notes.get("periods") or [f"S{number + 1}" for number in range(timeline.sessions)]
    return {"name": [str(name) for name in names], **found}


def figure_of(records: Records, moves: pd.DataFrame) -> Figure | None:
    """The figure; None for a single session, or without complete runs.

    Args:
        records: of the runs.
        moves: a row per session: its ``name``, and numbers of clients ``present``, ``newcomers``, ``returners``, and ``left``
            since the session before.
    """
    scores = per_session(records)
    if len(moves) < 2 or scores.empty:
        return None
    with paper():
        figure = Figure(figsize=(WIDTH, 5.4), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (5, 6)})
        _population(above, moves)
        _scores(below, records, scores)
        below.set_xticks(np.arange(1, len(moves) + 1), [str(name) for name in moves["name"]])
        below.set_xlim(0.4, len(moves) + 0.6)
        figure.align_ylabels()
        return figure


def per_session(records: Records) -> pd.DataFrame:
    """The score of each complete run after the last evaluated round of each session: the run's columns, ``session``, ``score``.

    A score on the next period is that of the next session.
    """
    history = records.history[records.history["state"] == "complete"].dropna(subset=[records.column])
    rows = history.groupby(["key", "session"], sort=False).tail(1)
    found = rows[["key", *METHOD, "seed", "session"]].assign(score=rows[records.column])
    return found.assign(session=found["session"] + records.score.ahead)


def _population(axes: Axes, moves: pd.DataFrame) -> None:
    """Clients present as a line; arrivals as stacked bars, departures as bars below zero, all on one axis."""
    place, bottom = np.arange(1, len(moves) + 1), np.zeros(len(moves))
    axes.plot(place, moves["present"], color="black", marker="o", markersize=3, label="present")
    for number, (name, words) in enumerate(_MOVES.items(), 1):
        if not moves[name].any():
            continue
        height = -moves[name] if name == "left" else moves[name]
        axes.bar(place, height, 0.72, 0 if name == "left" else bottom, color=line_style(number)["color"], label=words)
        bottom = bottom + moves[name].to_numpy()
    axes.axhline(0, color=GRAY, linewidth=0.8)
    axes.set_ylabel("Clients")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, borderaxespad=0.2)


def _scores(axes: Axes, records: Records, scores: pd.DataFrame) -> None:
    groups = by_method(scores)
    for number, (name, group) in enumerate(zip(method_names(list(groups)).values(), groups.values(), strict=True)):
        look, line = line_style(number), group.groupby("session")["score"].agg(["mean", "min", "max"])
        axes.plot(line.index, line["mean"], marker="o", markersize=3, label=name, **look)
        axes.fill_between(line.index, line["min"], line["max"], color=look["color"], alpha=0.15, linewidth=0)
    finish(axes, Axis(""), score_axis("", records.score, scores["score"].min(), scores["score"].max()))
    axes.set_title(_heading(records))
    handles, names = axes.get_legend_handles_labels()
    names, columns = legend_layout(names)
    axes.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=min(5, columns))


figures.add(
    10,
    lambda source: drawings(
        "population",
        "Population over the sessions",
        _caption(source.records),
        None if source.contents.moves is None else figure_of(source.records, pd.DataFrame(source.contents.moves)),
    ),
)
