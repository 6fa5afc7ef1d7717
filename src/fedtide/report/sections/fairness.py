"""The table of fairness over clients: mean score, its spread, the worst decile, newcomers."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
import pandas as pd

from fedtide.records.files.client_scores import GAINS
from fedtide.records.frames import Records
from fedtide.records.measures import metrics
from fedtide.report.formats import PERCENT, Scale
from fedtide.report.parts import Source, sheets, tables
from fedtide.report.tables.evaluations import PREFIX
from fedtide.report.tables.method_table import Column, MethodTable, Sheet, over_seeds

_FIT = "client_r2_"
_GROUPS = {"client": PREFIX, "served": "served_accuracy_", "finetuned": "finetuned_accuracy_"}
_FIT_GROUPS = {"client": _FIT, "error": "client_mae_", "served": "served_r2_", "served_error": "served_mae_"}
_OTHERWISE = {"served": "client", "served_error": "error"}  # what clients are served without models of their own
_SPREAD = ("mean", "std", "worst_decile", "below")


def fairness(records: Records, last: int) -> MethodTable | None:
    """Metrics of the clients' accuracies, or of their R² and errors, by method; None if no run has evaluated its clients.

    ``client_mean``, ``client_std``, ``client_worst_decile`` and ``client_below`` are means over the evaluations in the last
    ``last`` rounds. ``client_newcomers``, and ``client_gap`` to the stayers, are means over the sessions that have such
    clients. ``served_*`` are the same of the models that clients are served, ``finetuned_*`` after fine-tuning, with their
    ``gain`` over the reported model and the share of clients whom they ``hurt``; ``error_*`` those of a regression's mean
    absolute error.
    """
    has_classes = f"{PREFIX}mean" in records.history
    if not has_classes and f"{_FIT}mean" not in records.history:
        return None
    prefixes = _GROUPS if has_classes else _FIT_GROUPS
    histories = dict(list(records.history.groupby("key", sort=False)))
    empty = records.history.iloc[:0]
    rows = [_of_run(histories.get(key, empty), last, prefixes) for key in records.runs["key"]]
    runs = pd.concat([records.runs, pd.DataFrame(rows, index=records.runs.index)], axis=1)
    served = any(f"{prefixes['served']}{ending}" in records.history for ending in _SPREAD)
    candidates = _columns(records, last, served) if has_classes else _fit_columns(last, served)
    columns = [column for column in candidates if runs[column.key].notna().any()]
    if not columns:
        return None
    return MethodTable(runs, over_seeds(runs, [column.key for column in columns]), columns)


def sheet(table: MethodTable, last: int) -> Sheet:
    """The table as text."""
    keys = {column.key for column in table.columns}
    what, worst = (
        ("R² and mean absolute error of the clients present, each on its own held-out samples.", "worst scores")
        if {"error_mean", "served_error_mean"} & keys
        else (
            "Accuracy of the clients present, each on its own held-out samples, or, where these have no owner, expected under "
            "the client's labels.",
            "lowest accuracy",
        )
    )
    served = "the model that it is served (the global one where a method has no others)"
    what = what.replace("each on", f"each with {served if 'served_mean' in keys else 'the global model'}, on")
    notes = [
        f"{what} Evaluations in the last {last} rounds; mean \N{PLUS-MINUS SIGN} sample standard deviation over the seeds. "
        f"Worst decile: mean of the tenth of the clients with the {worst}."
    ]
    if {"client_newcomers", "served_newcomers"} & keys:
        notes.append("Newcomers: clients in their first session; mean over the later sessions that have some.")
    if {"client_gap", "served_gap"} & keys:
        notes.append(
            "Stayers: present in the session before as well. They are other clients than newcomers, so that the difference is "
            "also one of who they are."
        )
    if {"personalization_gain", "finetuning_gain"} & keys:
        notes.append("Gain: over the reported model, on the same samples; hurt: clients for whom it is negative.")
    cells = [(method, [column.cell(row) for column in table.columns]) for method, row in table.rows()]
    return Sheet("Fairness over clients", " ".join(notes), [column.title for column in table.columns], cells)


def _of_run(history: pd.DataFrame, last: int, prefixes: dict[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    endings = [*_SPREAD, "newcomers", "stayers"]
    for name, prefix in prefixes.items():
        values = history.reindex(columns=[f"{prefix}{ending}" for ending in endings]).set_axis(endings, axis=1)
        if name in _OTHERWISE:
            of_global = history.reindex(columns=[f"{prefixes[_OTHERWISE[name]]}{ending}" for ending in endings])
            values = values.fillna(of_global.set_axis(endings, axis=1))
        found |= {f"{name}_{ending}": metrics.mean_of_last(values[ending], last) for ending in _SPREAD}
        worth = history.reindex(columns=list(GAINS.get(name, ())))
        found |= {str(column): metrics.mean_of_last(each, last) for column, each in worth.items()}
        found[f"{name}_newcomers"] = _over_sessions(values["newcomers"], history["session"])
        found[f"{name}_gap"] = _over_sessions(values["newcomers"] - values["stayers"], history["session"])
    return found


def _over_sessions(values: pd.Series[float], session: pd.Series[int]) -> float:
    """Mean over the sessions with a value, of the mean over their evaluations."""
    return metrics.mean(values.groupby(session).mean().to_numpy(dtype=np.float64))


def _column(scale: Scale, key: str, title: str, headline: str = "", good: Literal["high", "low"] = "high") -> Column:
    """A column; of differences, with their signs, if its key ends in gap or gain."""
    signed = key.endswith(("_gap", "_gain"))
    text = scale.difference if signed else scale.value
    return Column(key, title, text, good=good, headline=headline, scale=scale)


def _columns(records: Records, last: int, served: bool) -> list[Column]:
    rounds, steps = f"in the last {last} rounds", _setting(records, "finetune_steps")
    threshold = _setting(records, "client_threshold")
    below = f"Below {100 * float(threshold):g} %" if threshold else "Below the threshold"
    count = f"{steps} " if steps else ""
    after = f"after {count}local step{'' if steps == '1' else 's'}"
    column = partial(_column, PERCENT)
    own, words = ("served", "served ") if served else ("client", "")
    spread = f"standard deviation of {words}accuracy over clients {rounds}"
    beside = [
        column("client_mean", "Mean of the global model, %"),
        column("client_worst_decile", "Worst decile of the global model, %"),
        column("client_newcomers", "Newcomers with the global model, %"),
        column("personalization_gain", "Gain, points"),
        column("fraction_worse_than_global", "Hurt, % of clients", good="low"),
    ]
    return [
        column(f"{own}_mean", "Mean, %"),
        column(f"{own}_std", "Standard deviation, points", spread, "low"),
        column(f"{own}_worst_decile", "Worst decile, %", f"{words}accuracy of the worst decile of clients {rounds}"),
        column(f"{own}_below", f"{below}, % of clients", good="low"),
        column(f"{own}_newcomers", "Newcomers, %", f"{words}accuracy of newcomers"),
        column(f"{own}_gap", "Newcomers minus stayers, points"),
        *(beside if served else []),
        column("finetuned_mean", f"Mean {after}, %"),
        column("finetuning_gain", f"Gain {after}, points"),
        column("finetuned_worst_decile", f"Worst decile {after}, %"),
        column("finetuned_newcomers", f"Newcomers {after}, %"),
    ]


def _fit_columns(last: int, served: bool) -> list[Column]:
    column, rounds = partial(_column, Scale(share=False)), f"in the last {last} rounds"
    own, error, words = ("served", "served_error", "served ") if served else ("client", "error", "")
    worst = f"{words}mean absolute error of the worst decile of clients {rounds}"
    beside = [
        column("client_mean", "Mean R² of the global model"),
        column("error_mean", "Mean absolute error of the global model", good="low"),
        column("error_worst_decile", "Worst decile of the global model, error", good="low"),
        column("error_newcomers", "Newcomers with the global model, error", good="low"),
    ]
    return [
        column(f"{own}_mean", "Mean R²"),
        column(f"{own}_std", "Standard deviation", f"standard deviation of {words}R² over clients {rounds}", "low"),
        column(f"{own}_worst_decile", "Worst decile", f"{words}R² of the worst decile of clients {rounds}"),
        column(f"{own}_newcomers", "Newcomers", f"{words}R² of newcomers"),
        column(f"{own}_gap", "Newcomers minus stayers"),
        column(f"{error}_mean", "Mean absolute error", good="low"),
        column(f"{error}_worst_decile", "Worst decile, error", worst, "low"),
        column(f"{error}_newcomers", "Newcomers, error", good="low"),
        *(beside if served else []),
    ]


def _setting(records: Records, name: str) -> str:
    """The value of a setting of the evaluation, empty if runs differ."""
    values = {str(settings.get(f"evaluation.{name}", "")) for settings in records.settings.values()}
    return values.pop() if len(values) == 1 else ""


def _of(source: Source) -> list[MethodTable]:
    found = fairness(source.records, source.contents.settings.last)
    return [] if found is None else [found]


tables.add(0, lambda source: [("fairness", found) for found in _of(source)])
sheets.add(80, lambda source: [sheet(found, source.contents.settings.last) for found in _of(source)])
