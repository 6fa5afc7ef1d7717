"""Freeze a suite: hashes, trivial scores, and budgets from FedAvg's traffic and time.

    python benchmarks/tide/freeze.py [FOLDER]

reads ``worlds/*.yaml`` in the folder (default: this one) and writes ``suite.json`` there; another suite has the name of its
folder. A suite that results were compared on is never frozen again.
"""

import json
import sys
from pathlib import Path
from typing import Any

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.open_run import run_key
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.studies.tide.suite import file_hash
from fedtide.world.building.build import timeline_for
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data

NAME, HERE = "Tide-2", Path(__file__).parent
BYTES = 10
"""Times FedAvg's."""

SECONDS = {"away": 0.6}
"""Share of FedAvg's simulated seconds at the same seed after which evaluations no longer count."""


def real(file: Path) -> bool:
    """Whether a world is one of a calendar: these come first."""
    return Params.read(file).run().scenario.name == "calendar"


def frozen(file: Path) -> dict[str, object]:
    """The entry of a world."""
    params = Params.read(file)
    data = load_data(params.run())
    seeds = params.experiment.compare.seeds
    timed = file.stem in SECONDS
    summaries = [_summary(params.run(seed=seed), data) for seed in seeds[: len(seeds) if timed else 1]]
    found: dict[str, object] = {
        "file": file_hash(file),
        "data": data.digest,
        "timelines": {seed: timeline_for(params.run(seed=seed), data).digest for seed in seeds},
        "trivial": 0.5 if "auroc" in params.experiment.tune.metric else 1 / data.num_classes,
        "bytes": BYTES * max(summary["bytes_up"] + summary["bytes_down"] for summary in summaries),
    }
    if timed:
        share = SECONDS[file.stem]
        found["seconds"] = {
            seed: float(f"{share * run['latency']:.3g}") for seed, run in zip(seeds, summaries, strict=True)
        }
    return found


def _summary(settings: RunSettings, data: Dataset) -> dict[str, Any]:
    """That of a run with these settings."""
    fedtide.run(settings)
    return RunDirectory(Path("runs") / run_key(settings, data)).summary() or {}


def main(folder: Path) -> None:
    """Write the file."""
    files = sorted((folder / "worlds").glob("*.yaml"), key=lambda file: (not real(file), file.name))
    worlds = {file.stem: frozen(file) for file in files}
    name = NAME if folder.resolve() == HERE.resolve() else folder.resolve().name
    write_text(folder / "suite.json", json.dumps({"name": name, "worlds": worlds}, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
