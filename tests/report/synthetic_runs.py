"""Run directories as runs leave them behind, with accuracies from a formula."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedtide.core.randomness import generator
from fedtide.records.run_directory import RunDirectory

START = {"previous": 0.0, "average": 0.55, "restart": 0.1}
SPEED = {"fedavg": 9.0, "fedprox": 8.0, "scaffold": 5.0}


def accuracies(label, initializer, seed, sessions, rounds):
    rng = generator(seed, "synthetic", sum(map(ord, label + initializer)))
    offset = 0.012 * rng.standard_normal()
    at = np.arange(1, rounds + 1)
    parts = []
    for session in range(sessions):
        start = 0.1 if session == 0 else START.get(initializer, 0.3)
        rise = 1 - np.exp(-(at - 1) / SPEED.get(label, 7.0))
        parts.append(start + (0.93 + offset - start) * rise + 0.01 * rng.standard_normal(rounds))
    return np.clip(np.concatenate(parts), 0, 1)


def write_run(
    root: Path,
    label="fedavg",
    initializer="previous",
    seed=0,
    *,
    sessions=2,
    rounds=12,
    every=1,
    state="complete",
    until=None,
    classes=10,
    lr=0.1,
    tag="",
):
    """A run directory as a run leaves it behind; ``until``: its last round."""
    path = root / f"{label}-{initializer}-s{seed}{tag}"
    path.mkdir(parents=True)
    settings = {
        "seed": seed,
        "label": label,
        "data": {"name": "digits"},
        "scenario": {"name": "sessions", "num_devices": 10, "num_sessions": sessions, "rounds_per_session": rounds},
        "partition": {"name": "dirichlet_equal", "alpha": 0.6},
        "participation": {"name": "all"},
        "model": {"name": "mlp", "hidden": [64]},
        "algorithm": {"name": label, **({"mu": 0.01} if label == "fedprox" else {})},
        "initializer": {"name": initializer},
        "local": {"lr": lr, "epochs": 5, "batch_size": 32, "clip": None},
        "engine": {"chunk": seed, "precision": "32-true"},
    }
    (path / "settings.json").write_text(json.dumps(settings))
    total = sessions * rounds
    at = np.arange(1, total + 1)
    per_round = 10 * 4 * 4810 * (2 if label == "scaffold" else 1)
    accuracy = accuracies(label, initializer, seed, sessions, rounds)
    accuracy[(at % every != 0) & (at != total)] = np.nan
    history = pd.DataFrame(
        {
            "round": at,
            "session": (at - 1) // rounds + 1,
            "test_accuracy": accuracy,
            "test_loss": 1 - accuracy,
            "train_loss": 0.5,
            "present": 10,
            "selected": 10,
            "completed": 10,
            "drift": 0.1,
            "bytes_up": at * per_round,
            "bytes_down": at * per_round,
            "lr": lr,
            "seconds": 0.25,
        }
    )[:until]
    history.to_csv(path / "history.csv", index=False)
    held = np.arange(classes) % 2 == (sessions - 1) % 2
    shares = np.where(held, 0.93, 0.02 if initializer == "previous" else 0.3) * np.ones((len(history), 1))
    names = [f"class_{number}" for number in range(classes)]
    per_class = pd.DataFrame(shares, columns=names)
    per_class.insert(0, "split", "test")
    per_class.insert(0, "round", history["round"].to_numpy())
    per_class.to_csv(path / "per_class.csv", index=False)
    if state in ("complete", "diverged"):
        RunDirectory(path).finish({"state": state, "initializer": initializer, "label": label})
    return path


def finish_again(path: Path, **changed):
    """Take what a test has changed in the records of a complete run for what the run wrote."""
    summary = RunDirectory(path).summary()
    assert summary is not None
    RunDirectory(path).finish({**summary, **changed})


def changed(path: Path, settings: dict[str, Any] | None = None, **columns: Any) -> Path:
    """The complete run with other groups of settings and with further columns of its history, as if it had written them."""
    file = path / "settings.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (settings or {})))
    pd.read_csv(path / "history.csv").assign(**columns).to_csv(path / "history.csv", index=False)
    finish_again(path)
    return path


def small_grid(root: Path):
    """2 algorithms x 2 initializers x 3 seeds, 2 sessions of 12 rounds."""
    return [
        write_run(root, label, initializer, seed)
        for label in ("fedavg", "scaffold")
        for initializer in ("previous", "average")
        for seed in range(3)
    ]
