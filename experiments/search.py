"""One search per method; each starts from the settings that the one before it has found.

    python experiments/search.py experiments/flights/tuning/flights.yaml results/flights_logistic
    python experiments/search.py experiments/away/tuning/away.yaml results/away_mlp 'model={name: mlp, widths: [32]}'

reads an experiment's settings and ``spaces.yaml`` next to them, and writes ``best.yaml``, the same settings with every method
at its best, and ``trials/<label>.csv``. Repeated, it continues.

``spaces.yaml`` has ``spaces``, what is searched, by label of an algorithm, or of an initializer, which is searched with the
experiment's own algorithm; ``shorter``, settings of the trials alone; ``metrics``, labels with another ``tune.metric``; and
``rates``, labels that take the learning rate found for another one.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from fedtide.core.storage.files import write_text

SEARCHES = Path("tuning")  # ignored by git


def commands(params: Path, out: Path, overrides: list[str]) -> dict[str, list[str]]:
    """The arguments of ``fedtide tune`` for every label, in order; its results are in ``out / label``."""
    settings, plan, found = _read(params), spaces(params), {}
    for label, space in plan["spaces"].items():
        kind = "algorithm" if label in settings["algorithms"] else "initializer"
        chosen = {
            "algorithm": settings["algorithm"]["name"],
            "initializer": settings["initializer"]["name"],
            kind: label,
        }
        what = {**chosen, "tune.space": json.dumps(space), **plan["shorter"]}
        if "metrics" in plan:
            what["tune.metric"] = plan["metrics"].get(label, settings["tune"]["metric"])
        options = [*overrides, *(f"{key}={value}" for key, value in what.items())]
        sets = [word for item in options for word in ("--set", item)]
        found[label] = ["tune", "-q", "--params", str(params), "--out", str(out / label), *sets]
        params = out / label / "best.yaml"
    return found


def restored(params: Path, best: dict[str, Any]) -> dict[str, Any]:
    """What the last search has found, as settings of the whole experiment."""
    settings, plan = _read(params), spaces(params)
    for key in plan["shorter"]:
        _put(best, key.split("."), settings)
    best |= {kind: settings[kind] for kind in ("algorithm", "initializer")}
    best["tune"] = settings["tune"]
    for label, other in plan.get("rates", {}).items():
        local = best["algorithms"][label].setdefault("with", {}).setdefault("local", {})
        local["lr"] = best["algorithms"][other]["with"]["local"]["lr"]
    return best


def _put(best: dict[str, Any], key: list[str], settings: dict[str, Any]) -> None:
    """Give a setting the value that it has in other settings, or remove it."""
    head, *rest = key
    if rest:
        _put(best[head], rest, settings.get(head, {}))
    elif head in settings:
        best[head] = settings[head]
    else:
        best.pop(head)


def spaces(params: Path) -> dict[str, Any]:
    """What is searched: ``spaces``, ``shorter``, ``metrics`` and ``rates``."""
    return _read(params.with_name("spaces.yaml"))


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def main(params: Path, folder: Path, overrides: list[str]) -> None:
    """Search the space of every label."""
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    out = SEARCHES / folder.name
    for label, words in commands(params, out, overrides).items():
        subprocess.run([sys.executable, "-m", "fedtide", *words], check=True)
        shutil.copyfile(out / label / "trials.csv", folder / "trials" / f"{label}.csv")
    best = restored(params, _read(out / label / "best.yaml"))
    write_text(folder / "best.yaml", yaml.safe_dump(best, sort_keys=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
