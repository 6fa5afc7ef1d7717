"""Figures of how the clients fare: the distribution of their accuracies, and newcomers against the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedtide.core.errors import SettingsError
from fedtide.report.fairness import PREFIX
from fedtide.report.records import METHOD, Method, Records
from fedtide.report.session_marks import groups_in_turn, mark_sessions, session_spans
from fedtide.report.style import GREY, PALETTE, WIDTH, paper, percent_axis, png
from fedtide.tracking import client_scores
from fedtide.tracking.run_directory import RunDirectory

SHARES = (10, 25, 50, 75, 90)
"""Percentages of the clients below the quantiles of the figure."""

_GROUPS = {
    "stayers": (PALETTE[0], "-", "o"),
    "newcomers": (PALETTE[1], "-", "s"),
    "returners": (PALETTE[2], "-", "^"),
    "departed": (GREY, "--", "x"),
}
"""Colour, line and marker of each group of clients."""

_MOST_MARKERS = 25


def quantiles(run_dirs: Sequence[Path], records: Records) -> pd.DataFrame:
    """Quantiles over the clients present: the run's columns, ``session``, ``round`` and one column per :data:`SHARES`.

    A row per evaluation of the clients by a complete run; no rows without any.

    Raises:
        SettingsError: a table of client scores is missing, was changed, or is damaged.
    """
    measured = records.history[records.history["state"] == "complete"].reindex(
        columns=["key", *METHOD, "session", "round", f"{PREFIX}mean"]
    )
    evaluations = dict(list(measured.dropna(subset=[f"{PREFIX}mean"]).groupby("key")))
    rows = []
    for path in (path for path in run_dirs if path.name in evaluations):
        directory = RunDirectory(path)
        directory.verify(*(name for name in directory.marks() if name.startswith(f"{client_scores.FOLDER}/")))
        for row in evaluations[path.name].to_dict("records"):
            accuracy = _accuracies(path / client_scores.file_name(int(row["round"])))
            tags = {name: row[name] for name in ("key", *METHOD, "session", "round")}
            rows.append(tags | dict(zip(SHARES, np.percentile(accuracy, SHARES).tolist(), strict=True)))
    return pd.DataFrame(rows, columns=["key", *METHOD, "session", "round", *SHARES])


def _accuracies(path: Path) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Known accuracies of the clients present."""
    try:
        frame = pd.read_parquet(path, columns=["group", "accuracy"])
    except FileNotFoundError:
        raise SettingsError(f"{path}: this record of the run is missing; put it back, or delete the run") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} is not a table of client scores: {' '.join(str(error).split())}") from None
    present = frame.loc[frame["group"] != "departed", "accuracy"]
    return present.dropna().to_numpy(dtype=np.float64)


def distribution(records: Records, found: pd.DataFrame) -> bytes | None:
    """Median and quantile bands over the clients, mean over the seeds: a panel per method."""
    if found.empty:
        return None

    def draw(axes: Axes, method: Method) -> None:
        mine = found[(found[METHOD] == list(method)).all(axis=1)].groupby("round")[list(SHARES)].mean()
        marker = "o" if len(mine) <= _MOST_MARKERS else ""
        for low, high, alpha in ((10, 90, 0.18), (25, 75, 0.3)):
            name = f"{low}th to {high}th percentile"
            axes.fill_between(mine.index, mine[low], mine[high], color=PALETTE[0], alpha=alpha, lw=0, label=name)
        axes.plot(mine.index, mine[50], color=PALETTE[0], marker=marker, markersize=3, label="median")

    drawn = _in_order(records, found)
    return _panels(records, drawn, draw, "Accuracy of the clients", found[[10, 90]].to_numpy())


def newcomers(records: Records) -> bytes | None:
    """Mean accuracy of newcomers, stayers, returners and departed clients: a panel per method.

    None unless clients were evaluated after the first session.
    """
    history = records.history[records.history["state"] == "complete"]
    history = history.rename(columns={f"{PREFIX}{group}": group for group in _GROUPS}).reindex(
        columns=[*METHOD, "session", "round", *_GROUPS]
    )
    history = history.dropna(subset=list(_GROUPS), how="all")
    if history.empty:
        return None
    per_session = history.groupby("session")["round"].nunique().max()
    few = history["round"].nunique() <= _MOST_MARKERS

    def draw(axes: Axes, method: Method) -> None:
        mine = history[(history[METHOD] == list(method)).all(axis=1)]
        for group, (colour, line, marker) in _GROUPS.items():
            rounds = mine.groupby(["session", "round"])[group].agg(["mean", "min", "max"]).dropna().reset_index()
            # Other clients make up the group in another session: a line joins them only if it has nothing else to join.
            pieces = [piece for _, piece in rounds.groupby("session")] if per_session > 1 else [rounds]
            for number, piece in enumerate(pieces):
                look = {"color": colour, "linestyle": line, "marker": marker if few or len(piece) == 1 else ""}
                axes.plot(piece["round"], piece["mean"], markersize=3.5, label="" if number else group, **look)
                axes.fill_between(piece["round"], piece["min"], piece["max"], color=colour, alpha=0.18, lw=0)

    values = history[list(_GROUPS)].to_numpy(dtype=np.float64)
    return _panels(records, _in_order(records, history), draw, "Mean accuracy of the group", values)


def _in_order(records: Records, rows: pd.DataFrame) -> list[Method]:
    """Methods that have rows."""
    drawn = set(rows[METHOD].itertuples(index=False, name=None))
    return [method for method in records.methods if method in drawn]


def _panels(
    records: Records,
    methods: list[Method],
    draw: Callable[[Axes, Method], None],
    label: str,
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> bytes:
    """A panel per method over communication rounds, on common axes that cover ``values``."""
    columns = {1: 1, 2: 1, 4: 2}.get(len(methods), 3)
    lines = -(-len(methods) // columns)
    one = len({start for _, start in methods}) == 1
    with paper():
        figure = Figure(figsize=(WIDTH, 0.9 + lines * (2.2 if columns < 3 else 1.9)), layout="constrained")
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        for spare in list(grid.flat)[len(methods) :]:
            spare.set_visible(False)
        for number, (axes, method) in enumerate(zip(grid.flat, methods, strict=False)):
            draw(axes, method)
            spans = session_spans(records.history, [method])
            named = bool(spans) and number < columns
            mark_sessions(axes, spans, named, groups_in_turn(records))
            axes.set_title(method[0] if one else " · ".join(method), pad=14 if named else None)
            axes.tick_params(labelbottom=number + columns >= len(methods))
        percent_axis(grid.flat[0], float(np.nanmin(values)), float(np.nanmax(values)))
        grid.flat[0].set_xlim(0, 1.005 * records.history["round"].max())
        figure.supxlabel("Communication round", fontsize=9)
        figure.supylabel(label, fontsize=9)
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
        return png(figure)
