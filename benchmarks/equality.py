"""Plug-ins on a device and on the CPU, in double precision: the same bits twice, and the CPU's numbers up to rounding."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from types import NoneType
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor

from fedtide.authoring.rounds import Run, run_rounds, tensors
from fedtide.authoring.samples import images, smallest
from fedtide.authoring.trial import Trial
from fedtide.core import plugins
from fedtide.core.errors import Diverged, SettingsError
from fedtide.federation.module import FederatedModule
from fedtide.training.models.base import Model
from fedtide.world.building.build import build_timeline
from fedtide.world.dataset import Dataset

KINDS = (
    "algorithms",
    "initializers",
    "aggregation",
    "uplink",
    "attacks",
    "communication",
    "selection",
    "objectives",
    "models",
)
ROUNDS = 6
TOLERANCE = 1e-9
"""Largest difference from the CPU, relative to the largest number of a tensor or to 1."""

_SETTINGS = (
    "local.steps=8",
    "engine.precision=64-true",
)


@dataclass
class Found:
    """What has been compared so far, and what was found.

    Attributes:
        same: cases that repeat and agree with the CPU, and ``gap`` the largest difference among them.
        differ: what is wrong with the other cases. refused: cases that the settings do not allow, and why.
        left_out: cases that were not reached.
    """

    same: list[str] = field(default_factory=list)
    gap: float = 0.0
    differ: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """A line with all counts, one for each refusal, and one with what was not reached."""
        counts = f"{len(self.same)} plug-ins repeat and agree with the CPU (largest difference {self.gap:.1e})"
        lines = [f"{counts}, {len(self.differ)} do not, {len(self.refused)} refused, {len(self.left_out)} not reached"]
        lines += [f"  refused: {name}: {why}" for name, why in self.refused.items()]
        return "\n".join([*lines, *([f"  not reached: {'; '.join(self.left_out)}"] if self.left_out else [])])


def compare(device: torch.device, seconds: float, found: Found, log: Callable[[str], None]) -> None:
    """Run every case twice on ``device`` and once on the CPU, as many as ``seconds`` allow; ``log`` gets what differs."""
    todo = list(cases())
    end = time.monotonic() + seconds
    found.left_out += [case.label for case in todo]
    for case in todo:
        if time.monotonic() > end:
            return
        name = case.label
        try:
            run = case.run()
            first, second, host = outcome(run, device), outcome(run, device), outcome(run, torch.device("cpu"))
        except SettingsError as error:
            found.refused[name] = str(error)
        except Exception as error:  # that is a result, and the others are compared nevertheless
            found.differ[name] = f"fails: {type(error).__name__}: {error}"
        else:
            _judge(name, first, second, host, found)
        found.left_out.remove(name)
        if name in found.differ:
            log(f"{name}: {found.differ[name]}")


def _judge(
    name: str, first: dict[str, Tensor], second: dict[str, Tensor], host: dict[str, Tensor], found: Found
) -> None:
    changed = [key for key in first if not torch.equal(first[key].nan_to_num(), second[key].nan_to_num())]
    gaps = {key: _gap(value, host[key]) for key, value in first.items()}
    worst = max(gaps, key=lambda key: gaps[key])
    wrong = [f"does not repeat: {', '.join(changed)}"] if changed else []
    if not gaps[worst] <= TOLERANCE:
        wrong.append(f"{worst} differs from the CPU's by {gaps[worst]:.1e}")
    if wrong:
        found.differ[name] = "; ".join(wrong)
    else:
        found.same.append(name)
        found.gap = max(found.gap, gaps[worst])


def _gap(value: Tensor, host: Tensor) -> float:
    """Largest difference of finite numbers, relative; infinite where shapes differ or others are finite."""
    finite = host.isfinite()
    if value.shape != host.shape or not torch.equal(value.isfinite(), finite):
        return float("inf")
    if not finite.any():
        return 0.0
    value, host = value[finite].double(), host[finite].double()
    return float((value - host).abs().max()) / max(1.0, float(host.abs().max()))


class Case(NamedTuple):
    """A plug-in with some of its settings, and the other settings of a small run through it."""

    kind: str
    name: str
    own: dict[str, Any]
    others: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How it is reported."""
        return ", ".join([f"{self.kind} {self.name}", *(f"{key} {value}" for key, value in self.own.items())])

    def run(self) -> Run:
        """The run, on images of 8 x 8 pixels or on what a model takes."""
        trial = Trial(self.kind, self.name, (*_SETTINGS, *self.others))
        data = trial.data() if self.kind == "models" else _samples(trial)
        chosen = trial.settings(data, **self.own)
        return chosen, build_timeline(chosen, data), data


def cases() -> Iterator[Case]:
    """All plug-ins, the kinds taking turns; large networks, which take seconds each, at the end."""
    columns = [[case for name in plugins.names(kind) for case in _of_plugin(kind, name)] for kind in KINDS]
    found = [case for case in chain.from_iterable(zip_longest(*columns)) if case is not None]
    return iter(sorted(found, key=lambda case: case.kind == "models" and _is_large(case)))


def _is_large(case: Case) -> bool:
    """Whether a model's network has more than two million parameters."""
    try:
        model = plugins.create(Model, Trial(case.kind, case.name).settings(**case.own).model)
        with torch.device("meta"):  # weights are not needed
            data = smallest(model)
            network = model.build(data.input_shape, data.num_classes, data.vocabulary)
    except SettingsError:  # as the run will be
        return False
    return sum(value.numel() for value in network.parameters()) > 2_000_000


def _of_plugin(kind: str, name: str) -> Iterator[Case]:
    """A plug-in by what it declares; networks with every norm that they may have, a quarter of the clients as attackers."""
    try:
        plugin: Any = plugins.load(kind, name)
    except SettingsError:  # as the run will be
        yield Case(kind, name, {})
        return
    fields = plugin.Settings.model_fields
    own: dict[str, Any] = {key: 1 for key, value in fields.items() if value.is_required() and key != "name"}
    if kind == "attacks" and fields["share"].annotation is not NoneType:
        own["share"] = 0.25
    others = ["scenario.num_devices=8", "model={name: mlp, widths: [16]}"]
    if kind == "models":
        others = ["scenario.num_devices=3"]
    if kind != "algorithms":
        others.append("algorithm.weighting=uniform")  # as noise on updates requires
    if kind != "algorithms" or plugin.optimizer != "plain_sgd":
        others.append("local.momentum=0.5")
    if kind == "objectives" and plugin.task != "classification":
        others += ["scenario={name: static, num_clients: 8, rounds: 8}", "partition={name: iid, stratified: false}"]
    if kind == "uplink" and name != "clip":
        others.append(f"uplink=[{{name: clip}}, {{name: {name}}}]")
    norms = get_args(fields["norm"].annotation) if kind == "models" and "norm" in fields else ()
    for choice in [{"norm": norm} for norm in norms] or [{}]:
        yield Case(kind, name, own | choice, tuple(others))


def _samples(trial: Trial) -> Dataset:
    """Three hundred random images of ten classes; for the objectives of another task, with numbers or bits as labels."""
    data = images(300, classes=10)
    task = trial.plugin.task if trial.kind == "objectives" else data.task
    if task == "classification":
        return data
    bits = (data.train_labels.unsqueeze(1) >> torch.arange(4)) & 1
    labels = bits.double() if task == "multilabel" else data.train_labels.double() / 10
    return replace(data, train_labels=labels, test_labels=labels, num_classes=1, task=task)


def outcome(run: Run, device: torch.device) -> dict[str, Tensor]:
    """All that a run carries on after some rounds, on the CPU; of a run that diverges, after its last round."""
    module = FederatedModule(*run).to(device)
    module.build()
    state = module.state
    try:
        run_rounds(module.federation, ROUNDS, state)
    except Diverged:
        pass
    finally:
        module.parts.workers.close()
    named = tensors(state) | {f"initializer.{name}": value for name, value in state.initializer.items()}
    return {name: value.detach().cpu() for name, value in named.items()} | {"round": torch.tensor(state.round)}
