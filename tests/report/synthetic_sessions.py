"""Run directories of two groups that take turns, with what runs record about their sessions."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from synthetic_runs import finish_again, write_run

START = {"dynamic": 0.9, "oracle": 0.91, "average": 0.45, "continuous": 0.12, "previous": 0.02}
"""Accuracy with which a session begins."""

PILOT, LATENCY, ENERGY = 1, 0.5, 2.0


def curve(initializer, session, rounds, rate=4.0):
    """Accuracies after round 1, 2, ... of a session; all initializers are one up to the second after the pilot."""
    start = 0.02 if session <= PILOT + 2 else START[initializer]
    return 0.95 - (0.95 - start) * np.exp(-np.arange(1, rounds + 1) / rate)


def write_sessions(root: Path, label, initializer, seed, sessions=7, rounds=12, rate=4.0):
    """A complete run whose accuracies are those of :func:`curve`, raised by a thousandth per seed."""
    path = write_run(root, label, initializer, seed, sessions=sessions, rounds=rounds)
    settings = json.loads((path / "settings.json").read_text())
    settings["scenario"] |= {"pattern": "alternate", "groups": 2, "pilot_sessions": PILOT}
    (path / "settings.json").write_text(json.dumps(settings))
    history = pd.read_csv(path / "history.csv")
    curves = [curve(initializer, session, rounds, rate) for session in range(1, sessions + 1)]
    history["test_accuracy"] = np.concatenate(curves) + 0.001 * seed
    measures = initializer == "dynamic"
    before = (history["session"] - PILOT).clip(lower=0) * measures
    extra = before.diff().fillna(0)
    history = history.assign(gradient_rounds=before, latency=LATENCY * (1 + extra), energy=ENERGY * (1 + extra))
    history.to_csv(path / "history.csv", index=False)
    events = [{"event": "resumed", "round": 3}]
    for session in range(PILOT + 1, sessions + 1):
        stored = range(PILOT + 1, session)
        kin = [1.0 if (session - z) % 2 == 0 else 1e-3 for z in stored]
        mu = {z: weight / sum(kin) for z, weight in zip(stored, kin, strict=True)} if measures else {}
        losses = (
            {"start": 0.4 + 0.1 * (session % 2), "previous": 6.0 + session / 10, "average": 1.5, "first": 2.3}
            if measures
            else None
        )
        start = 0.02 if session <= PILOT + 2 else START[initializer]
        event = {"event": "session", "session": session, "initializer": initializer, "returning": session > PILOT + 2}
        events.append(event | {"weights": mu, "distances": {}, "test_accuracy": start, "losses": losses})
    (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    finish_again(path)
    return path
