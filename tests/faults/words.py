"""What a command says and what MLflow shows, held against the records."""

import csv
import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

_STATUS = {"complete": "FINISHED", "pruned": "FINISHED", "diverged": "FAILED"}
_ALREADY = re.compile(r"(\S+): already (\w+), nothing to do")


def false_words(lines: Sequence[str], complete: Collection[str]) -> list[str]:
    """What is wrong in the output of a command, given the runs that are complete now that it has ended."""
    found = [f"traceback: {lines[-1]}" for line in lines if line.startswith("Traceback (most recent call last)")][:1]
    for line in lines:
        claim = _ALREADY.search(line)
        if claim and claim[2] == "complete" and claim[1] not in complete:
            found.append(f"said of an incomplete run: {line.strip()}")
    return found


def one_line(lines: Sequence[str]) -> bool:
    """Whether an error is reported as it should be: a last line by fedtide, and no traceback."""
    return bool(lines) and lines[-1].startswith("fedtide: ") and not any(line.startswith("Traceback") for line in lines)


def mlflow_lies(folder: Path) -> list[str]:
    """Where MLflow's store in a working directory contradicts the run directories; empty if there is no store."""
    database = folder / "mlruns" / "mlflow.db"
    if not database.is_file():
        return []
    with closing(sqlite3.connect(database)) as connection:
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return ["mlflow.db is damaged"]
        runs = {row[0]: row[1:] for row in connection.execute("SELECT run_uuid, name, status FROM runs")}
        tags: dict[str, dict[str, str]] = {run: {} for run in runs}
        for run, key, value in connection.execute("SELECT run_uuid, key, value FROM tags"):
            tags[run][key] = value
        metrics = connection.execute("SELECT run_uuid, key, step, value FROM metrics").fetchall()
    lies = []
    groups = Counter(tags[run]["comparison"] for run in runs if "comparison" in tags[run])
    lies += [f"MLflow: {number} parents {name}" for name, number in groups.items() if number > 1]
    for directory in sorted(path.parent for path in folder.glob("runs/*/summary.json")):
        summary = json.loads((directory / "summary.json").read_text())
        found = [run for run, (name, _) in runs.items() if name == directory.name and "run_key" in tags[run]]
        if len(found) != 1:
            lies.append(f"MLflow: {len(found)} runs {directory.name}")
            continue
        status, outcome, state = runs[found[0]][1], tags[found[0]].get("outcome"), summary["state"]
        if status != _STATUS[state] or outcome != state:
            lies.append(f"MLflow: {directory.name} is {state}, shown as {status}, {outcome}")
        lies += _wrong_metrics(directory, [row[1:] for row in metrics if row[0] == found[0]])
    return lies


def _wrong_metrics(directory: Path, metrics: list[tuple[str, int, float]]) -> list[str]:
    """Metrics against the history, but for the seconds: of a round that was repeated, MLflow keeps those it saw first."""
    with (directory / "history.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    recorded = {
        (key, int(row["round"])): float(cell)
        for row in rows
        for key, cell in row.items()
        if cell and key not in ("round", "seconds") and math.isfinite(float(cell))
    }
    shown = {(key, step): value for key, step, value in metrics if key != "seconds"}
    lies = []
    if len({row[:2] for row in metrics}) < len(metrics):
        lies.append(f"MLflow: {directory.name}: metrics of a round are there twice")
    if shown != recorded:
        wrong = sorted(place for place in shown.keys() | recorded.keys() if shown.get(place) != recorded.get(place))
        lies.append(f"MLflow: {directory.name}: {len(wrong)} metrics differ from the history, such as {wrong[0]}")
    return lies
