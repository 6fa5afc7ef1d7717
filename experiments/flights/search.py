"""One search per method on January to March; each starts from the settings that the one before it has found.

    python experiments/flights/search.py results/flights_logistic
    python experiments/flights/search.py results/flights_mlp 'model={name: mlp, widths: [16]}'

writes ``best.yaml``, the settings of the experiment with every method at its best, and ``trials/<label>.csv``. Repeated, it
continues.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from fedtide.core.files import write_text

HERE = Path(__file__).parent / "tuning"
SEARCHES = Path("tuning")  # ignored by git
SHORT = {"scenario.last": 3, "evaluation.every": 5, "evaluation.clients_every": 0}  # January to March


def main(folder: Path, overrides: list[str]) -> None:
    """Search the space of every label in ``spaces.yaml``."""
    params = HERE / "flights.yaml"
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    for label, space in yaml.safe_load((HERE / "spaces.yaml").read_text()).items():
        out = SEARCHES / folder.name / label
        algorithm, initialiser = ("fedavg", label) if label == "dynamic" else (label, "previous")
        what = {"algorithm": algorithm, "initialiser": initialiser, "tune.space": json.dumps(space), **SHORT}
        chosen = [*overrides, *(f"{key}={value}" for key, value in what.items())]
        options = [word for item in chosen for word in ("--set", item)]
        subprocess.run(["fedtide", "tune", "-q", "--params", params, "--out", out, *options], check=True)
        shutil.copyfile(out / "trials.csv", folder / "trials" / f"{label}.csv")
        params = out / "best.yaml"
    best = yaml.safe_load(params.read_text())
    best["scenario"].pop("last")
    best["evaluation"] = yaml.safe_load((HERE / "flights.yaml").read_text())["evaluation"]
    best |= {"algorithm": {"name": "fedavg"}, "initialiser": {"name": "previous"}}
    best["tune"].pop("space")
    best["algorithms"]["frozen"]["with"]["local"]["lr"] = best["algorithms"]["fedavg"]["with"]["local"]["lr"]
    write_text(folder / "best.yaml", yaml.safe_dump(best, sort_keys=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
