"""False alarms of detectors on stationary worlds, and how often and when they see a change of about ten points of accuracy.

FedAvg trains once per world and seed, with and without the change; its losses are kept in ``--traces`` and shown to every
detector with its default settings. A second call goes on where the first one was stopped, and with all traces takes a minute.
"""

import argparse
import copy
import csv
import itertools
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from competitors import assembled
from fedtide.core import plugins
from fedtide.core.array_types import Floats
from fedtide.core.randomness import generator, key64
from fedtide.core.storage.arrays import read_arrays, write_arrays
from fedtide.federation.features.detection import SERVER
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.federation.types import Feature, Parts, RoundContext, RunState
from fedtide.methods.detectors.base import SHARE, Detector
from fedtide.records.measures.detections import detections
from fedtide.settings.params import Params

ANGLE = 0.68
"""Radians by which the shops' rule turns in July."""

COMMON: dict[str, Any] = {
    "model": "softmax_regression",
    "validation": 0.0,
    "client_state": {"on_session_start": "keep"},
    "engine": {"workers": 1, "accelerator": "cpu"},
    "costs": {"wireless": False},
}

Watch = Literal["server", "clients"]


class World(NamedTuple):
    """Settings of a run with a seed, with or without the change, which begins in round ``change``, from 0."""

    text: str
    settings: Callable[[int, bool, Path], dict[str, Any]]
    change: int


def digits(seed: int, changes: bool, folder: Path) -> dict[str, Any]:
    drift = {"name": "sudden", "start": 60, "share": 0.5, "concepts": [{"swap": [[1, 7]]}]}
    return {
        "data": {"name": "digits", "root": str(folder)},
        "scenario": {"name": "static", "num_clients": 20, "rounds": 80},
        "partition": {"name": "dirichlet_client", "alpha": 1.0},
        "participation": {"name": "fixed", "count": 10},
        "local": {"epochs": 2, "batch_size": 10, "lr": 0.1},
        **({"drift": drift} if changes else {}),
    }


def crowd(seed: int, changes: bool, folder: Path) -> dict[str, Any]:
    drift = {"name": "sudden", "start": 60, "share": 0.1, "concepts": [{"table": 1}]}
    return {
        "data": {"name": "two_rules", "samples": 6000, "draw": seed, "root": str(folder)},
        "scenario": {"name": "static", "num_clients": 200, "rounds": 80},
        "partition": {"name": "iid"},
        "participation": {"name": "fixed", "count": 100},
        "local": {"epochs": 1, "batch_size": 10, "lr": 0.5},
        **({"drift": drift} if changes else {}),
    }


def shops(seed: int, changes: bool, folder: Path) -> dict[str, Any]:
    path = folder / f"shops-{seed}-{changes}.csv"
    table(seed, changes).to_csv(path, index=False)
    return {
        "data": {
            "name": "table",
            "root": str(folder),
            "file": str(path),
            "label": "sold",
            "client": "shop",
            "time": "date",
        },
        "scenario": {"name": "calendar", "period": "month", "next_period": 1, "rounds_per_period": 5},
        "partition": "natural",
        "participation": "all",
        "local": {"epochs": 1, "batch_size": 20, "lr": 0.3},
    }


def table(seed: int, changes: bool) -> pd.DataFrame:
    """Sales of 40 shops in 2025, 30 rows each a month; their rule turns in July."""
    rng = generator(seed, "shops")
    rule, other = np.linalg.qr(rng.normal(size=(4, 2)))[0].T
    x, u = rng.normal(size=(40, 12, 30, 4)), rng.random((40, 12, 30))
    turned = np.where((np.arange(12) >= 6) & changes, ANGLE, 0.0)[:, None]
    margin = 3 * np.einsum("smnf,mf->smn", x, np.cos(turned) * rule + np.sin(turned) * other)
    shop, month, row = (each.ravel() for each in np.indices(u.shape))
    return pd.DataFrame(
        {
            "shop": [f"S{number + 1:02d}" for number in shop],
            "date": [f"2025-{m + 1:02d}-{1 + r % 28:02d}" for m, r in zip(month, row, strict=True)],
            **{name: x[..., place].ravel().round(4) for place, name in enumerate("abcd")},
            "sold": np.where(u < 1 / (1 + np.exp(-margin)), "yes", "no").ravel(),
        }
    )


WORLDS = {
    "digits": World("digits, 10 of 20 clients a round, half of them swap 1 and 7", digits, 60),
    "shops": World("a calendar table, 40 shops, five rounds a month, the rule of all turns in July", shops, 30),
    "crowd": World("points under two rules, 100 of 200 clients a round, a tenth of them reverse theirs", crowd, 60),
}


class Recording(Feature):
    """Keeps the losses that detectors are shown."""

    name = "recording"

    def __init__(self) -> None:
        self.server: list[float] = []
        self.clients: list[dict[int, float]] = []

    def close(self, r: RoundContext) -> None:
        self.server.append(r.train_loss)
        self.clients.append(dict(zip(r.plan.ids, r.losses.tolist(), strict=True)))


class Trace(NamedTuple):
    """Losses ``server`` [R] and ``clients`` [R, N] (NaN for who takes no part) of a run, and its ``accuracy`` [R].

    The accuracy is that on the next period where there are periods.
    """

    server: Floats
    clients: Floats
    accuracy: Floats


def train(parts: Parts, state: RunState, end: int) -> Trace:
    """Rounds up to ``end``, from 0."""
    recording, accuracy = Recording(), list[float]()
    parts.features = (*parts.features, recording)
    federation = Federation(parts)
    with torch.no_grad():
        while state.round < end:
            row = federation.run_round(state).row
            found = row.get("test_accuracy_next" if parts.timeline.has_periods else "test_accuracy")
            accuracy.append(math.nan if found is None else float(found))
    clients = np.full((len(recording.server), parts.timeline.num_clients), np.nan)
    for t, losses in enumerate(recording.clients):
        clients[t, list(losses)] = list(losses.values())
    return Trace(np.array(recording.server), clients, np.array(accuracy))


def traced(name: str, seed: int, folder: Path) -> dict[str, Trace]:
    """The run without the change and the one with it, which is the same run until the round before."""
    path = folder / f"{name}-{seed}.npz"
    if not path.exists():
        world = WORLDS[name]
        with tempfile.TemporaryDirectory() as scratch:
            both = [
                assembled(Params({**COMMON, **world.settings(seed, changes, Path(scratch)), "seed": seed}).run())
                for changes in (False, True)
            ]
            state = initial_state(both[0])
            before = train(both[0], state, world.change - 1)
            halves = [train(parts, copy.deepcopy(state), parts.timeline.rounds) for parts in both]
            for parts in both:
                parts.workers.close()
        joined = [Trace(*map(np.concatenate, zip(before, half, strict=True))) for half in halves]
        assert joined[0].server[world.change - 1] == joined[1].server[world.change - 1]
        kinds = dict(zip(("stationary", "changed"), joined, strict=True))
        arrays = {f"{kind}_{key}": value for kind, trace in kinds.items() for key, value in trace._asdict().items()}
        write_arrays(path, arrays)
    arrays = read_arrays(path)
    return {kind: Trace(*(arrays[f"{kind}_{key}"] for key in Trace._fields)) for kind in ("stationary", "changed")}


def alarms(detector: Detector, trace: Trace, seed: int) -> list[int]:
    """For each round whether the detector alarms, as ``federation/features/detection.py`` decides it."""
    settings: Any = detector.settings
    streams, found = dict[int, Callable[[float], bool]](), list[int]()
    for loss, losses in zip(trace.server, trace.clients, strict=True):
        there = np.flatnonzero(~np.isnan(losses)).tolist()
        seen = {SERVER: float(loss)} if settings.watch == "server" else {i: float(losses[i]) for i in there}
        for id_ in seen.keys() - streams.keys():
            streams[id_] = detector.begin(key64(seed, "detector", id_) & (2**32 - 1))
        alarmed = [id_ for id_, value in seen.items() if streams[id_](value)]
        for id_ in alarmed:
            del streams[id_]
        found.append(int(bool(alarmed) and len(alarmed) / len(seen) >= (settings.share or SHARE)))
    return found


def rows(chosen: dict[str, Any], name: str, seeds: range, folder: Path) -> Iterator[dict[str, Any]]:
    """What a detector does in a world, a row per seed; ``delay`` is empty where the change is not seen."""
    detector = plugins.create(Detector, Params({"detector": chosen}).run().detector)
    for seed in seeds:
        both = traced(name, seed, folder)
        change = [int(t == WORLDS[name].change) for t in range(len(both["changed"].server))]
        found = detections(alarms(detector, both["changed"], seed), change)
        quiet = sum(alarms(detector, both["stationary"], seed))
        fell = drop(name, both)
        row = {"world": name, **chosen, "seed": seed, "false_alarms": quiet, "seen": found.detected}
        yield {**row, "delay": found.delay if found.detected else "", "points": round(100 * fell, 2)}


def drop(name: str, both: dict[str, Trace]) -> float:
    """Accuracy that the change costs at once: of the last model before it on the next period, else after a round."""
    at = WORLDS[name].change - (name == "shops")
    return float(both["stationary"].accuracy[at] - both["changed"].accuracy[at])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds")
    parser.add_argument("--first", type=int, default=20, help="first seed; the defaults were chosen with seeds 0 to 19")
    parser.add_argument("--traces", type=Path, default=Path("traces"), metavar="FOLDER", help="where losses are kept")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a row per world, detector and seed, a CSV file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.traces.mkdir(parents=True, exist_ok=True)
    console, found, seeds = Console(), list[dict[str, Any]](), range(options.first, options.first + options.seeds)
    watches: tuple[Watch, ...] = ("server", "clients")
    variants = [{"name": n, "watch": w} for w in watches for n in plugins.names("detectors") if n != "none"]
    for name, chosen in itertools.product(WORLDS, variants):
        found += rows(chosen, name, seeds, options.traces)
    for name, world in WORLDS.items():
        own = [row for row in found if row["world"] == name]
        points = [row["points"] for row in own if row["watch"] == "server" and row["name"] == variants[0]["name"]]
        console.print(f"{name}: {world.text}; accuracy falls by {spread(points)} points")
    console.print(_table(found, variants))
    if options.out:
        part = options.out.with_suffix(".part")
        with part.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
        part.replace(options.out)


def _table(found: list[dict[str, Any]], variants: list[dict[str, Any]]) -> Table:
    shown = Table("watch", "detector", "world", "false alarms per run", "changes seen", "delay, rounds")
    for chosen, name in itertools.product(variants, WORLDS):
        own = [row for row in found if row["world"] == name and row.items() >= chosen.items()]
        delays = [row["delay"] for row in own if row["seen"]]
        seen = f"{sum(row['seen'] for row in own)} of {len(own)}"
        quiet = spread([row["false_alarms"] for row in own])
        shown.add_row(chosen["watch"], chosen["name"], name, quiet, seen, spread(delays))
    return shown


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    if len(values) < 2:
        return f"{values[0]:.2g}" if values else "\N{EN DASH}"
    return f"{statistics.fmean(values):.2g} ± {statistics.stdev(values):.2g}"


if __name__ == "__main__":
    main()
