"""A golden run as a run of this project, and what it must give."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.federation.federation import Federation
from fedtide.federation.types import RunState
from fedtide.methods.algorithms.base import Round
from fedtide.world.dataset import Dataset, Origins
from fedtide.world.timeline import Timeline
from support import dataset

AS_SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavgm": ("fedopt", {"optimizer": "sgd"}),
    "fedadagrad": ("fedopt", {"optimizer": "adagrad"}),
    "fedadam": ("fedopt", {"optimizer": "adam"}),
    "fedyogi": ("fedopt", {"optimizer": "yogi"}),
    "drift_reset": ("oracle_reset", {}),
    "feddisco": ("feddyn", {"weighting": "feddisco"}),
    "fedlesam_s": ("fedlesam", {"base": "scaffold"}),
    "fedlesam_d": ("fedlesam", {"base": "feddyn"}),
}
"""Names in the files that are settings of an algorithm here."""

RENAMED = {
    "lr_g": "server_lr",
    "fedavgm.beta": "beta1",
    "fedacg.lambda": "lambda_",
    "fedacg.lam": "lambda_",
    "fedacg.pull": "beta",
    "mime.b": "beta",
    "mimelite.b": "beta",
    "moon.tau": "temperature",
    "R": "similarity_scale",
    "pilot_beta": "pilot_decay",
    "kappa": "strength",
    "fedccfa.lambda": "lambda_",
    "ditto.lambda": "lambda_",
    "pfedme.lambda": "lambda_",
    "pfedme.K": "steps",
    "pfedme.beta": "server_lr",
    "normalise": "normalize",
    "renormalise": "renormalize",
}
"""Hyper-parameters that have another name here; ``<algorithm>.<field>`` goes before ``<field>``."""


TOLERANCE = 1e-9
"""Largest absolute difference, in float64."""


class Fields:
    """A mapping that remembers which keys were read."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values, self._read = values, set[str]()

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return self._values[key]

    def either(self, key: str, default: Any) -> Any:
        """The value, or the default."""
        return self[key] if key in self._values else default

    def pass_over(self, *keys: str) -> None:
        """Text, and facts that follow from other fields."""
        self._read.update(keys)

    def unread(self) -> list[str]:
        """Keys nobody asked for."""
        return [key for key in self._values if key not in self._read]


@dataclass
class Outcome:
    """What happened in each round, and the state at the end.

    Attributes:
        rounds: record and new global model of each round. everybody: mean of all clients' latest models after each
            round, where it is evaluated. sessions: what is recorded of the session that began with a round. stores: what
            the initializer has stored after each round. rows: of the history, one per round.
    """

    federation: Federation
    state: RunState
    rounds: list[tuple[Round, Tensor]]
    everybody: list[Tensor]
    sessions: list[dict[str, Any] | None]
    stores: list[dict[str, Tensor]]
    rows: list[dict[str, float | int | None]]


Check = tuple[str, Any, Any]
"""What it is, what we have, what the file says."""


class Checks(Protocol):
    """Everything a file says about the outcome of a run."""

    def __call__(self, fields: Fields, outcome: Outcome) -> Iterator[Check]:
        """Compare field by field."""


@dataclass
class Case:
    """A run: the world it happens in, who takes part in each round, settings of the file, and the outcome."""

    fields: Fields
    data: Dataset
    world: Timeline
    cohorts: Sequence[Sequence[int]]
    settings: dict[str, Any]
    checks: Checks
    share: float = 1.0
    probed: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Who takes part in the gradient rounds before a round; by default everybody."""
    script: Callable[[Federation], None] = lambda _: None
    """Puts draws that the file prescribes into the federation."""


def samples(problem: dict[str, Any]) -> tuple[Dataset, list[int]]:
    """All clients' samples one after the other, and how many each client has."""
    inputs = torch.tensor([sample for client in problem["x"] for sample in client], dtype=torch.float64)
    labels = torch.tensor([label for client in problem["y"] for label in client])
    return dataset(inputs, labels, problem["n_classes"]), [len(client) for client in problem["y"]]


def owned_samples(problem: dict[str, Any]) -> tuple[Dataset, list[int]]:
    """The same with test samples, of which each belongs to a client, too."""
    data, sizes = samples(problem)
    tested, test_sizes = samples({**problem, "x": problem["x_test"], "y": problem["y_test"]})
    owners = [np.repeat(np.arange(len(sizes)), counts) for counts in (sizes, test_sizes)]
    origins = Origins(*owners, clients=tuple(map(str, range(len(sizes)))))
    found = replace(data, test_inputs=tested.train_inputs, test_labels=tested.train_labels, origins=origins)
    return found, sizes


def local_settings(fields: Fields, unit: str = "epochs", **conventions: str) -> dict[str, Any]:
    """Settings of local training: the fields of the run that nearly all families share, and the family's conventions."""
    named = {unit: "E", "batch_size": "B", "lr": "lr", "decay": "decay", "weight_decay": "wd", "clip": "clip"}
    return {name: fields[key] for name, key in named.items()} | {
        "order": "stored",
        "schedule": "exponential",
        **conventions,
    }


def chosen(fields: Fields, kind: str, name: str, conventions: dict[str, Any]) -> dict[str, Any]:
    """Settings of a plug-in: the family's conventions, and every field of the run that is one of its settings."""
    plugin, preset = AS_SETTINGS.get(name, (name, {}))
    accepted = plugins.load(kind, plugin).Settings.model_fields
    found = {key: RENAMED.get(f"{name}.{key}", RENAMED.get(key, key)) for key in fields.unread()}
    given = {target: fields[key] for key, target in found.items() if target in accepted and target != "name"}
    if "server_lr" not in accepted and fields.either("lr_g", 1.0) != 1.0:
        raise ValueError(f"lr_g = {fields['lr_g']}: {plugin} has no server step size")
    return {"name": plugin, **preset, **conventions, **given}


def vectors_at_end(named: dict[str, Any], state: RunState) -> Iterator[Check]:
    """Memories: a vector of the server, or a row per client (by id), ``None`` for a client that never took part."""
    known = state.server | state.memory | state.extra
    for name, value in named.items():
        rows = value.items() if isinstance(value, dict) else enumerate(value)
        if name not in known:
            yield f"memory {name}", "unknown", "known"
        elif isinstance(value, list) and isinstance(value[0], float):
            yield name, known[name], value
        else:
            for client, row in rows:
                mine = int(state.counts[int(client)]) if row is None else known[name][int(client)]
                yield f"{name} of client {client}", mine, 0 if row is None else row


def difference(check: Check) -> str:
    """What is wrong with a value, or nothing."""
    name, ours, value = check
    if isinstance(ours, str):
        return f"{name}: nobody knows how to compare it"
    first, second = torch.as_tensor(ours, dtype=torch.float64), torch.as_tensor(value, dtype=torch.float64)
    if first.shape != second.shape:
        return f"{name}: shape {tuple(first.shape)}, expected {tuple(second.shape)}"
    gap = float((first - second).abs().max()) if first.numel() else 0.0
    return "" if gap <= TOLERANCE else f"{name}: differs by {gap:.1e}"
