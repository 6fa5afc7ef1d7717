"""Freeze a suite: hashes of its worlds, data and timelines, and budgets from FedAvg's traffic and time.

    python benchmarks/tide/freeze.py [FOLDER]

reads ``worlds/*.yaml`` in the folder (default: this one) and writes ``suite.json`` there; another suite has the name of its
folder. A suite that results were compared on is never frozen again.
"""

import json
import sys
from pathlib import Path

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.open_run import run_key
from fedtide.settings.params import Params
from fedtide.studies.tide.suite import file_hash
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data

NAME, HERE = "Tide-1", Path(__file__).parent
BYTES = 10
"""Times FedAvg's."""

SECONDS = {"away": 0.6}
"""Share of FedAvg's simulated seconds after which evaluations no longer count."""


def frozen(file: Path) -> dict[str, object]:
    """The entry of a world."""
    params = Params.read(file)
    data = load_data(params.run())
    seeds = params.experiment.compare.seeds
    settings = params.run(seed=seeds[0])
    fedtide.run(settings)
    summary = RunDirectory(Path("runs") / run_key(settings, data)).summary() or {}
    found: dict[str, object] = {
        "file": file_hash(file),
        "data": data.digest,
        "timelines": {seed: timeline_for(params.run(seed=seed), data).digest for seed in seeds},
        "bytes": BYTES * (summary["bytes_up"] + summary["bytes_down"]),
    }
    if file.stem in SECONDS:
        found["seconds"] = float(f"{SECONDS[file.stem] * summary['latency']:.3g}")
    return found


def main(folder: Path) -> None:
    """Write the file."""
    worlds = {file.stem: frozen(file) for file in sorted((folder / "worlds").glob("*.yaml"))}
    name = NAME if folder.resolve() == HERE.resolve() else folder.resolve().name
    write_text(folder / "suite.json", json.dumps({"name": name, "worlds": worlds}, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
