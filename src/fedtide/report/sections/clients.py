"""Figures of the clients' accuracies: their distribution, and newcomers against the others."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD, Method, Records
from fedtide.report.charts.chart import MOST_MARKERS, Axis, Chart, Panel, Series, floats, joined
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import drawings
from fedtide.report.charts.session_marks import session_spans
from fedtide.report.charts.style import GRAY, PALETTE, percent_limits
from fedtide.report.parts import figures
from fedtide.report.tables.evaluations import PREFIX

_DISTRIBUTION = (
    "Percentiles over the clients present, each with the model that it is served (the global one where a method has no "
    "others), on its own held-out samples, or expected under its labels; mean of the complete runs of a method."
)
_NEWCOMERS = (
    "Each client with the model that it is served, or the global one, as for those that have departed. Groups are of different "
    "clients: their differences are also ones of who they are. Stayers: present in the session before as well; newcomers: in "
    "their first session; returners: back after an absence; departed: absent, on their last samples. Lines: mean of the "
    "complete runs; shading: range over the seeds."
)
SHARES = (10, 25, 50, 75, 90)
"""Percentages of the clients below the quantiles of the figure."""

_GROUPS = {
    "stayers": (PALETTE[0], 0, "o"),
    "newcomers": (PALETTE[1], 0, "s"),
    "returners": (PALETTE[2], 0, "^"),
    "departed": (GRAY, 1, "x"),
}
"""Color, dashes and marker of each group of clients."""


def quantiles(clients: pd.DataFrame) -> pd.DataFrame:
    """Quantiles over the clients present: the run's columns, ``session``, ``round`` and one column per :data:`SHARES`."""
    served = clients["served_accuracy"].fillna(clients["accuracy"])
    present = clients.assign(accuracy=served)[clients["group"] != "departed"].dropna(subset=["accuracy"])
    tags = ["key", *METHOD, "session", "round"]
    rows = [
        dict(zip(tags, of, strict=True)) | dict(zip(SHARES, np.percentile(own, SHARES).tolist(), strict=True))
        for of, own in present.groupby(tags, sort=False)["accuracy"]
    ]
    return pd.DataFrame(rows, columns=[*tags, *SHARES])


def distribution(records: Records, found: pd.DataFrame) -> Chart | None:
    """Median and quantile bands over the clients, mean over the seeds: a panel per method."""
    if found.empty:
        return None

    def series(method: Method) -> list[Series]:
        mine = found[(found[METHOD] == list(method)).all(axis=1)].groupby("round")[list(SHARES)].mean()
        rounds, of = floats(mine.index), {share: floats(mine[share]) for share in SHARES}
        bands = [
            Series(f"{low}th to {high}th percentile", rounds, None, PALETTE[0], of[low], of[high], shade=shade)
            for low, high, shade in ((10, 90, 0.18), (25, 75, 0.3))
        ]
        marker = "o" if len(mine) <= MOST_MARKERS else ""
        return [*bands, Series("median", rounds, of[50], PALETTE[0], marker=marker, size=3)]

    return _panels(records, _in_order(records, found), series, "Accuracy of the clients", found[[10, 90]].to_numpy())


def newcomers(records: Records) -> Chart | None:
    """Mean accuracy of newcomers, stayers, returners and departed clients: a panel per method.

    None unless clients of two groups were evaluated after the first session.
    """
    history = records.history[records.history["state"] == "complete"]
    columns = [f"{prefix}{group}" for prefix in ("served_accuracy_", PREFIX) for group in _GROUPS]
    history = history.reindex(columns=[*METHOD, "session", "round", *columns])
    served = {group: history[f"served_accuracy_{group}"].fillna(history[f"{PREFIX}{group}"]) for group in _GROUPS}
    history = history.assign(**served)[[*METHOD, "session", "round", *_GROUPS]]
    history = history.dropna(subset=list(_GROUPS), how="all")
    groups = {group: look for group, look in _GROUPS.items() if history[group].notna().any()}
    if len(groups) < 2:
        return None
    per_session = history.groupby("session")["round"].nunique().max()
    few = history["round"].nunique() <= MOST_MARKERS

    def series(method: Method) -> list[Series]:
        mine, found = history[(history[METHOD] == list(method)).all(axis=1)], []
        for group, (color, dash, marker) in groups.items():
            rounds = mine.groupby(["session", "round"])[group].agg(["mean", "min", "max"]).dropna().reset_index()
            # Other clients make up the group in another session: a line joins them only if it has nothing else to join.
            pieces = [piece for _, piece in rounds.groupby("session")] if per_session > 1 else [rounds]
            columns = ("round", "mean", "min", "max")
            x, y, low, high = (joined([floats(piece[name]) for piece in pieces]) for name in columns)
            drawn = marker if few or any(len(piece) == 1 for piece in pieces) else ""
            found.append(Series(group, x, y, color, low, high, dash=dash, marker=drawn))
        return found

    values = history[list(_GROUPS)].to_numpy(dtype=np.float64)
    return _panels(records, _in_order(records, history), series, "Mean accuracy of the group", values)


def _in_order(records: Records, rows: pd.DataFrame) -> list[Method]:
    drawn = set(rows[METHOD].itertuples(index=False, name=None))
    return [method for method in records.methods if method in drawn]


def _panels(
    records: Records,
    methods: list[Method],
    series: Callable[[Method], list[Series]],
    title: str,
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> Chart:
    """A panel per method over communication rounds, on common axes that cover ``values``."""
    columns = {1: 1, 2: 1, 4: 2}.get(len(methods), 3)
    names, spans = method_names(methods), {method: session_spans(records, [method]) for method in methods}
    low, high = percent_limits(float(np.nanmin(values)), float(np.nanmax(values)))
    return Chart(
        Axis("Communication round", low=0.0, high=1.005 * records.history["round"].max()),
        Axis(title, True, low=low, high=high),
        tuple(Panel(names[method], tuple(series(method)), sessions=spans[method]) for method in methods),
        columns,
        0.9 + -(-len(methods) // columns) * (2.2 if columns < 3 else 1.9),
    )


figures.add(
    50,
    lambda source: drawings(
        "client_accuracy",
        "Distribution of accuracy over the clients",
        _DISTRIBUTION,
        distribution(source.records, quantiles(source.evaluations)),
    ),
)
figures.add(
    60,
    lambda source: drawings("newcomers", "Newcomers against the other clients", _NEWCOMERS, newcomers(source.records)),
)
