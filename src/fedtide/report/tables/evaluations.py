"""Scores of single clients, evaluation by evaluation."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedtide.records.files import client_scores
from fedtide.records.frames import METHOD, Records
from fedtide.records.run_directory import RunDirectory

PREFIX = "client_accuracy_"
"""Of the columns of a history about the clients' accuracies."""

_NUMBERS = ("samples", "accuracy", "served_accuracy", "personalization_gain", "finetuned_accuracy", "finetuning_gain")
_READ = ("client", "name", "group", *_NUMBERS)


def evaluations(run_dirs: Sequence[Path], records: Records) -> pd.DataFrame:
    """Evaluations of clients by complete runs, a row each: the run's columns, ``session``, ``round``, and the client's.

    What a run has not recorded is NaN; a missing or changed table of client scores is a SettingsError.
    """
    measured = records.history[records.history["state"] == "complete"].reindex(
        columns=["key", *METHOD, "session", "round", f"{PREFIX}mean"]
    )
    by_run = dict(list(measured.dropna(subset=[f"{PREFIX}mean"]).groupby("key")))
    tables = []
    for path in (path for path in run_dirs if path.name in by_run):
        directory = RunDirectory(path)
        directory.verify(*(name for name in directory.marks() if name.startswith(f"{client_scores.FOLDER}/")))
        for row in by_run[path.name].to_dict("records"):
            table = pd.read_parquet(path / client_scores.file_name(int(row["round"]))).reindex(columns=list(_READ))
            table = table.astype(dict.fromkeys(_NUMBERS, "float64"))
            tables.append(table.assign(**{name: row[name] for name in ("key", *METHOD, "session", "round")}))
    columns = ["key", *METHOD, "session", "round", *_READ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)
