"""Learning rates of an experiment with drift: the same number of trials for every method, scored by the models it serves.

    python experiments/drift/search.py experiments/drift/planted/planted.yaml results/drift_planted

reads ``search.yaml`` next to the settings: ``default``, a grid of settings (``local.lr``, or of the algorithm), ``grids``,
other ones by label, ``as``, labels that take the learning rate of another one, ``shorter``, settings of the trials alone,
which are to test on other samples, and ``first``, the first round that counts. Writes ``rates.csv`` with every trial, where a
run that diverged scores 0, and ``best.yaml``, the settings with every method at its best. Repeated, it continues.

Trials are the same grid for all, scored on samples drawn anew; ``experiments/search.py`` samples ranges and holds out.
"""

from __future__ import annotations

import copy
import itertools
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import fedtide
from fedtide.core.storage.files import write_text
from fedtide.settings.params import Params
from fedtide.settings.reading.overrides import apply_overrides

SEARCHES = Path("tuning")  # ignored by git


def at(settings: dict[str, Any], chosen: dict[str, float]) -> dict[str, Any]:
    """Settings of a label with the values chosen: of the algorithm or, with a dot, of the run."""
    found = copy.deepcopy(settings)
    for key, value in chosen.items():
        group, _, name = key.rpartition(".")
        place = found.setdefault("with", {}).setdefault(group, {}) if group else found
        place[name] = value
    return found


def trials(labels: list[str], plan: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """What is tried: label and values."""
    rows = []
    for label in labels:
        grid = plan.get("grids", {}).get(label, plan["default"])
        rows += [(label, dict(zip(grid, values, strict=True))) for values in itertools.product(*grid.values())]
    counts = {label: sum(row[0] == label for row in rows) for label in labels}
    if len(set(counts.values())) > 1:
        raise SystemExit(f"search.yaml: trials differ in number: {counts}")
    return rows


def accuracy(run: pd.DataFrame) -> pd.Series[float]:
    """Mean accuracy over clients by round, of the models that they are served."""
    plain = run["client_accuracy_mean"]
    return run.get("served_accuracy_mean", plain).fillna(plain).set_axis(run["round"]).dropna()


def main(file: Path, out: Path) -> None:
    """Run what is missing and write what was found."""
    settings, plan = yaml.safe_load(file.read_text()), yaml.safe_load(file.with_name("search.yaml").read_text())
    labels = [label for label in settings["compare"]["algorithms"] if label not in plan.get("as", {})]
    tried = {f"{label}-{place}": (label, values) for place, (label, values) in enumerate(trials(labels, plan))}
    searched = settings | {"compare": {**settings["compare"], "algorithms": [*tried], "seeds": plan["seeds"]}}
    searched["algorithms"] = {
        name: at({"name": label, **settings["algorithms"][label]}, values) for name, (label, values) in tried.items()
    }
    apply_overrides(searched, [f"{key}={value}" for key, value in plan["shorter"].items()])
    history = fedtide.compare(
        Params(searched), runs=SEARCHES / out.name / "runs", workers=1, allow_failures=True
    ).history
    complete = history[history["state"] == "complete"].groupby("label")
    scores = dict.fromkeys(tried, 0.0) | {name: accuracy(run).loc[plan["first"] :].mean() for name, run in complete}
    found = pd.DataFrame([{"label": tried[name][0], **tried[name][1], "accuracy": scores[name]} for name in tried])
    found = found[[*found.columns.drop("accuracy"), "accuracy"]]
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "rates.csv", found.to_csv(index=False, float_format="%.5g"))
    for label in settings["compare"]["algorithms"]:
        like = plan.get("as", {}).get(label)
        best = max((name for name in tried if tried[name][0] == (like or label)), key=lambda name: scores[name])
        values = {key: value for key, value in tried[best][1].items() if not like or key == "local.lr"}
        settings["algorithms"][label] = at(settings["algorithms"][label], values)
    write_text(out / "best.yaml", yaml.safe_dump(settings, sort_keys=False))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
