"""Drifts of a comparison: accuracy before each, how far it falls, and how long it takes to recover."""

import math

import numpy as np
import pandas as pd

from fedtide.records.frames import METHOD, Records, by_method
from fedtide.records.measures import drifts, metrics
from fedtide.report import formats
from fedtide.report.parts import frames, sheets
from fedtide.report.tables.method_table import Sheet

REPORTED, SERVED = "Reported model", "Models that clients are served"


def accuracies(records: Records) -> dict[str, pd.DataFrame]:
    """Rounds of the complete runs under drift with their ``accuracy``, by model; no model without such a run.

    The reported model, and where a run serves clients models of their own, the mean over the clients present of the
    accuracies of those: for runs without, of the global model on the clients.
    """
    history = records.history[records.history["state"] == "complete"]
    history = history[history[drifts.COLUMN].notna()]
    columns = ["test_accuracy", "served_accuracy_mean", "client_accuracy_mean"]
    reported, served, clients = (history.reindex(columns=columns)[name].astype(float) for name in columns)
    found = {REPORTED: reported, SERVED: served.fillna(clients)} if served.notna().any() else {REPORTED: reported}
    return {name: history.assign(accuracy=values) for name, values in found.items() if values.notna().any()}


def per_event(rounds: pd.DataFrame) -> pd.DataFrame:
    """A row per run and event: the run's columns, ``round`` (its first, from 1), ``before``, ``dip``, ``drop``, ``rounds``.

    Args:
        rounds: of some runs, with columns ``accuracy`` and ``concepts_changed``.
    """
    rows = []
    for _, run in rounds.groupby("key", sort=False):
        own = run[["key", *METHOD, "seed"]].iloc[0].to_dict()
        for event in drifts.events(run["accuracy"], run[drifts.COLUMN]):
            measured = {"before": event.before, "dip": event.dip, "drop": event.before - event.dip}
            rows.append(own | {"round": event.start + 1} | measured | {"rounds": event.rounds})
    return pd.DataFrame(rows, columns=["key", *METHOD, "seed", "round", "before", "dip", "drop", "rounds"])


def all_events(records: Records) -> pd.DataFrame:
    """:func:`per_event` of every model, with a column ``model``."""
    found = [per_event(rounds).assign(model=model) for model, rounds in accuracies(records).items()]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def sheets_of(records: Records) -> list[Sheet]:
    """A table per model; none without events."""
    tables: list[Sheet] = []
    for model, rounds in accuracies(records).items():
        found = per_event(rounds)
        if len(found):
            rows = [(method, _cells(group, rounds)) for method, group in by_method(found).items()]
            caption = _CLIENTS if tables else _CAPTION
            tables.append(Sheet(f"Drifts: {model[0].lower()}{model[1:]}", caption, _HEADINGS, rows))
    return tables


_HEADINGS = [
    "Before, %",
    "Dip, %",
    "Drop, points",
    "Rounds to recover, if recovered",
    "Recovered",
    "From the first drift on, %",
]
_CAPTION = (
    "A drift begins in the first round in which concepts of clients change; changes in consecutive rounds are one. Before: "
    f"mean accuracy of the last {drifts.BEFORE} rounds; dip: lowest of the first {drifts.DIP}. Rounds to recover: from the "
    f"beginning to the first round, from the dip on, with at most {100 * drifts.TOLERANCE:g} point less than before, 0 if the "
    "dip is no lower; mean over the drifts that recovered before the next one. Means over the drifts of a seed; mean "
    "\N{PLUS-MINUS SIGN} sample standard deviation over the seeds."
)
_CLIENTS = (
    "The same of the mean accuracy over the clients present, each with the model it is served, or the global one where a "
    "method serves no others."
)


def _cells(events: pd.DataFrame, rounds: pd.DataFrame) -> list[str]:
    """Cells of one method from its events, and the rounds of all methods."""
    known = events[events["rounds"].notna()]
    recovered = known[np.isfinite(known["rounds"])]
    waits = recovered.groupby("seed")["rounds"].mean()
    mean, spread = metrics.mean_std(waits)
    if not len(recovered):
        mean = math.inf if len(known) else math.nan
    own = rounds[rounds["key"].isin(events["key"])]
    after = [drifts.after_first(run["accuracy"], run[drifts.COLUMN]) for _, run in own.groupby("key", sort=False)]
    return [
        *(formats.percent(*metrics.mean_std(known.groupby("seed")[name].mean())) for name in ("before", "dip", "drop")),
        formats.over(formats.rounds(round(mean, 1), spread), len(waits), known["seed"].nunique()),
        f"{len(recovered)} of {len(known)}",
        formats.percent(*metrics.mean_std(after)),
    ]


sheets.add(50, lambda source: sheets_of(source.records))
frames.add(0, lambda source: [("drifts", found)] if len(found := all_events(source.records)) else [])
