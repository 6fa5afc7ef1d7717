"""A run on a table to which rows are appended."""

import csv
import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from small_runs import execute

MONTHS = 12
LAST = {"carl": 5}  # month after which a client pauses


def rows(months=MONTHS):
    """Rows of eight clients: `aaron`, the first by name, arrives in month 6; `carl` pauses in months 6 to 8."""
    rng = np.random.default_rng(5)
    who = np.array(["aaron", "bea", "carl", "dora", "emil", "fay", "gus", "hans"])[rng.integers(0, 8, 60 * MONTHS)]
    month = np.repeat(np.arange(1, MONTHS + 1), 60)
    x = rng.normal(size=(len(month), 2))
    label = np.where(x[:, 0] + rng.normal(size=len(month)) > 0, "late", "fine")
    when = [f"2013-{number:02}-{day:02}" for number, day in zip(month, rng.integers(1, 28, len(month)), strict=True)]
    frame = pd.DataFrame({"who": who, "when": when, "x": x[:, 0], "y": x[:, 1], "label": label, "month": month})
    gone = (frame.who == "aaron") & (frame.month < 6) | (frame.who == "carl") & frame.month.between(6, 8)
    return frame[~gone & (frame.month <= months)]


def settings(root, **changes):
    raw = {
        "data": {
            **{"name": "table", "root": str(root), "file": str(root / "rows.csv"), "client": "who", "time": "when"},
            **{"classes": ["fine", "late"], "numeric": ["x", "y"], "categorical": [], "grows": True},
        },
        "scenario": {"name": "calendar", "rounds_per_period": 2},
        "partition": {"name": "natural"},
        "participation": {"name": "fixed", "fraction": 0.5},
        "model": {"name": "logistic"},
        "local": {"amount": 2, "unit": "steps", "batch_size": 8},
        "federation": {"at_session": "keep"},
        "evaluation": {"splits": ["test", "validation"]},
        "engine": {"workers": 1, "accelerator": "cpu"},
        "checkpoint": {"every": 1},
    }
    for key, value in changes.items():
        raw[key] = {**raw[key], **value} if isinstance(value, dict) and "name" not in value and key in raw else value
    return Params(raw).run()


def run(root, frame, **changes):
    root.mkdir(exist_ok=True)
    frame.to_csv(root / "rows.csv", index=False)
    lines = []
    summary = execute(settings(root, **changes), root / "runs", log=lines.append)
    return summary, lines


def records(root):
    (folder,) = (root / "runs").glob("*-s0-*")
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open() as stream:
            tables[path.name] = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(stream)]
    events = [line for line in (folder / "events.jsonl").read_text().splitlines() if '"session"' in line]
    model = {name: tensor.numpy().tobytes() for name, tensor in torch.load(folder / "model.pt").items()}
    return tables, events, model


KINDS = {
    "fedavg": {},
    "scaffold": {"algorithm": "scaffold"},
    "momentum": {"algorithm": "feddyn", "local": {"momentum": 0.5, "momentum_scope": "client"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_month_by_month_gives_the_records_of_all_at_once(tmp_path, kind):
    frame, keys = rows(), set()
    keys.add(run(tmp_path / "once", frame, **KINDS[kind])[0]["run_key"])
    for month in range(1, MONTHS + 1):
        keys.add(run(tmp_path / "monthly", frame[frame.month <= month], **KINDS[kind])[0]["run_key"])
    once, monthly = records(tmp_path / "once"), records(tmp_path / "monthly")
    assert monthly == once
