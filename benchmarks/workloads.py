"""What is measured: three workloads of the literature and one whose cohort grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

NEVER = 10**6  # rounds between two evaluations or saved states, where neither should happen


@dataclass(frozen=True)
class Workload:
    """FedAvg on noise, spread evenly over the clients.

    Attributes:
        name: short name. text: what it is. model: of the library. shape: of an image.
        clients, samples: number of clients, and training samples of each. cohort: participants of a round.
        local: the clients' training, as in the settings file.
        timed: rounds timed in one go. surroundings: whether the costs around training are measured too; in long rounds
            they disappear. test: number of test samples.
    """

    name: str
    text: str
    model: str
    shape: tuple[int, int, int]
    clients: int
    samples: int
    cohort: int
    local: Mapping[str, Any]
    timed: int
    surroundings: bool
    test: int = 10_000

    @property
    def small(self) -> Workload:
        """The same with two clients, two batches in an epoch, one timed round and few test samples: no figures to keep."""
        samples = 2 * self.local["batch_size"] if "epochs" in self.local else self.samples
        return replace(self, clients=2, cohort=2, samples=samples, timed=1, test=100)

    def raw(self, root: Path, rounds: int, **changes: Any) -> dict[str, Any]:
        """Settings of a run as in the settings file, without evaluation and saved states.

        Args:
            root: folder of the data.
            rounds: length of the run.
            changes: settings; groups of them are merged into the workload's own.
        """
        train = self.clients * self.samples
        own: dict[str, dict[str, Any]] = {
            "data": {"name": "noise", "shape": list(self.shape), "train": train, "test": self.test, "root": str(root)},
            "scenario": {"name": "static", "rounds": rounds, "num_clients": self.clients},
            "partition": {"name": "iid"},
            "participation": {"name": "fixed", "count": self.cohort},
            "model": {"name": self.model},
            "local": {"lr": 0.001, **self.local},
            "evaluation": {"every": NEVER},
            "checkpoint": {"every": NEVER},
        }
        merged = {
            key: {**own.get(key, {}), **value} if isinstance(value, Mapping) else value
            for key, value in changes.items()
        }
        return {"validation": 0.0, **own, **merged}


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="W1",
            text="MLP 784-200-200-10, 100 clients x 600 samples, 10 per round, 5 epochs, batches of 50",
            model="mlp",
            shape=(1, 28, 28),
            clients=100,
            samples=600,
            cohort=10,
            local={"epochs": 5, "batch_size": 50},
            timed=10,
            surroundings=True,
        ),
        Workload(
            name="W2",
            text="CNN with 5x5 convolutions on 3x32x32, 100 clients x 500 samples, 10 per round, 1 epoch, batches of 50",
            model="cnn_5x5",
            shape=(3, 32, 32),
            clients=100,
            samples=500,
            cohort=10,
            local={"epochs": 1, "batch_size": 50},
            timed=3,
            surroundings=False,
        ),
        Workload(
            name="W3",
            text="logistic regression 784-10, 100 clients x 640 samples, all in every round, 5 steps of 128",
            model="softmax_regression",
            shape=(1, 28, 28),
            clients=100,
            samples=640,
            cohort=100,
            local={"steps": 5, "batch_size": 128},
            timed=60,
            surroundings=True,
        ),
    )
}


def crowd(model: str, cohort: int) -> Workload:
    """1,000 clients and any cohort, with W1's network (``mlp``) or W3's (``softmax_regression``) and little data each."""
    samples, local = {
        "mlp": (30, {"epochs": 1, "batch_size": 10}),
        "softmax_regression": (128, {"steps": 5, "batch_size": 128}),
    }[model]
    return Workload(
        name=f"{model}, {cohort}",
        text="1,000 clients x 30 samples, 3 steps of 10 (mlp); x 128 samples, 5 steps of 128 (logistic); cohorts",
        model=model,
        shape=(1, 28, 28),
        clients=1000,
        samples=samples,
        cohort=cohort,
        local=local,
        timed=max(2, 100 // cohort),
        surroundings=False,
    )
