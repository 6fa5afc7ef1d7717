"""A run on seven months begins with the records of the run on five: nothing looks ahead."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtide.core.storage.files import short_hash
from fedtide.settings.params import Params
from fedtide.world.timeline import Timeline
from small_runs import calendar, execute

SHORT, LONG, ROUNDS = 5, 7, 2


def rows(months: int, per_month: int = 60) -> pd.DataFrame:
    """Rows of eight clients: `aaron`, first by name, comes in month 6, `zoe` in month 3; `carl` pauses in months 3 to 5."""
    rng = np.random.default_rng(5)
    names = np.array(["aaron", "bea", "carl", "dora", "emil", "fay", "gus", "zoe"])
    month = np.repeat(np.arange(1, LONG + 1), per_month)
    x = rng.normal(size=(len(month), 2))
    label = np.where(x[:, 0] + rng.normal(size=len(month)) > 0, "late", "fine")
    when = [f"2013-{number:02}-{day:02}" for number, day in zip(month, rng.integers(1, 28, len(month)), strict=True)]
    who = names[rng.integers(0, 8, len(month))]
    frame = pd.DataFrame({"who": who, "when": when, "x": x[:, 0], "y": x[:, 1], "label": label, "month": month})
    away = (frame.who == "aaron") & (frame.month < 6) | (frame.who == "carl") & frame.month.between(3, 5)
    away |= (frame.who == "zoe") & (frame.month < 3)
    return frame[~away & (frame.month <= months)]


def run(root: Path, months: int, settings: dict[str, Any]) -> Path:
    """Execute a run on a table of so many months, in an order of its own; its directory."""
    root.mkdir()
    rows(months).sample(frac=1, random_state=months).to_csv(root / "rows.csv", index=False)
    columns = {"classes": ["fine", "late"], "numeric": ["x", "y"], "categorical": []}
    raw = calendar(root / "rows.csv", ROUNDS, columns) | {
        "participation": {"name": "fixed", "fraction": 0.5},
        "local": {"steps": 2, "batch_size": 8},
        "client_state": {"on_session_start": "keep"},
        "evaluation": {"splits": ["test", "validation"]},
        "engine": {"workers": 1, "accelerator": "cpu"},
    }
    execute(Params(raw | settings).run(), root / "runs", name="run")
    return root / "runs/run"


def before(directory: Path, month: int) -> dict[str, list[dict[str, str]]]:
    """Rows of all tables in the months before this one, but for the seconds of a round."""
    tables = {}
    for path in sorted(directory.glob("*.csv")):
        with path.open() as stream:
            of_table = [
                {key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(stream)
            ]
        tables[path.name] = [row for row in of_table if int(row["round"]) <= ROUNDS * (month - 1)]
    return tables


KINDS: dict[str, dict[str, Any]] = {
    "fedavg": {"evaluation": {"splits": ["test"], "clients_every": 1, "models": ["global", "all"]}},
    "scaffold": {"algorithm": "scaffold", "local": {"steps": 2, "momentum": 0.5, "momentum_scope": "client"}},
    "downlink": {"downlink": {"name": "qsgd"}, "participation": "active", "client_state": {"on_session_start": "reset"}},
    "counts": {"algorithm": "fedawe", "scenario": {"name": "calendar", "rounds_per_period": ROUNDS, "memory": 1}},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_on_seven_months_begins_with_the_records_of_the_run_on_five(tmp_path: Path, kind: str) -> None:
    """Of month 5 all is the same but the accuracy on month 6, which only the longer table has."""
    short, long = (run(tmp_path / str(months), months, KINDS[kind]) for months in (SHORT, LONG))
    assert before(short, SHORT) == before(long, SHORT)
    last, same = (before(path, SHORT + 1)["history.csv"] for path in (short, long))
    for one, other in zip(last, same, strict=True):
        assert {key for key in one if one[key] != other[key]} <= {key for key in one if "next" in key}
    worlds = [Timeline.load(path / "timeline.npz") for path in (short, long)]
    assert [world.num_clients for world in worlds] == [7, 8]
    for t in range(SHORT * ROUNDS):
        one, other = (short_hash([w.at(t).clients.tolist(), w.active[t].tolist()]) for w in worlds)
        assert one == other
