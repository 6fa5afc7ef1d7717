"""Freeze the suite: hashes of worlds, data and timelines, and budgets from FedAvg's traffic and time.

    python benchmarks/tide/freeze.py

writes ``suite.json`` beside it. A new suite has a new name; a suite that results were compared on is never frozen again.
"""

from __future__ import annotations

import json
from pathlib import Path

import fedtide
from fedtide.core.files import write_text
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.identity import run_key
from fedtide.settings.params import Params
from fedtide.tide.suite import file_hash
from fedtide.worlds.files import timeline_for
from fedtide.worlds.prepared import load_data

FOLDER = Path(__file__).parent
WORLDS = ("sessions", "months", "weekends", "seasons", "drift", "long_tail", "away", "attack")
BYTES = 6
"""Times FedAvg's."""

SECONDS = {"away": 0.6}
"""Share of FedAvg's simulated seconds after which evaluations no longer count."""


def frozen(name: str) -> dict[str, object]:
    """The entry of a world."""
    file = FOLDER / "worlds" / f"{name}.yaml"
    params = Params.read(file)
    data = load_data(params.run())
    seeds = params.experiment.compare.seeds
    run = params.run(seed=seeds[0])
    fedtide.run(run)
    summary = RunDirectory(Path("runs") / run_key(run, data)).summary() or {}
    found: dict[str, object] = {
        "file": file_hash(file),
        "data": data.digest,
        "timelines": {seed: timeline_for(params.run(seed=seed), data).digest for seed in seeds},
        "bytes": BYTES * (summary["bytes_up"] + summary["bytes_down"]),
    }
    if name in SECONDS:
        found["seconds"] = float(f"{SECONDS[name] * summary['latency']:.3g}")
    return found


if __name__ == "__main__":
    worlds = {name: frozen(name) for name in WORLDS}
    write_text(FOLDER / "suite.json", json.dumps({"name": "Tide-1", "worlds": worlds}, indent=2) + "\n")
