"""Tiny federations for tests: synthetic data, timelines written by hand, scripted cohorts, real rounds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.authoring import samples
from fedtide.authoring.rounds import assert_close, assert_same, run_rounds, tensors
from fedtide.authoring.samples import dataset, images, series, tokens
from fedtide.core import plugins
from fedtide.core.plugins import PluginSettings
from fedtide.core.randomness import Randomness
from fedtide.federation.assembly.choose import choose
from fedtide.federation.assembly.footprint import Footprint, footprint
from fedtide.federation.assembly.hardware import Hardware
from fedtide.federation.assembly.parts import assembled
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.saving.checkpoint import StoredRows
from fedtide.federation.state import initial_state
from fedtide.federation.traffic import Payload, payload
from fedtide.federation.types import Feature, Parts, RunState
from fedtide.methods.algorithms.base import Algorithm, Problem, Round, RunPreview, Vectors
from fedtide.methods.selection.base import Candidates, Selection
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.local import Cohort, Local
from fedtide.training.engine.plan import BatchPlan
from fedtide.training.models.base import Network
from fedtide.world.dataset import Dataset
from fedtide.world.participation.base import Participation
from fedtide.world.timeline import Assignment, Timeline

__all__ = ["assembled", "assert_close", "assert_same", "dataset", "images", "run_rounds", "series", "tensors", "tokens"]

Ints = NDArray[np.int64]


F = TypeVar("F", bound=Feature)


def one(parts: Parts, kind: type[F]) -> F:
    """The feature of a kind, which the run has."""
    found = parts.feature(kind)
    assert found is not None
    return found


LIGHT: dict[str, dict[str, Any]] = {
    "cfl_generative": {"size": 10, "steps": 10},
    "creff": {"per_class": 8, "match_steps": 5, "head_epochs": 5},
    "fedgen": {"hidden": 32, "generator_steps": 5},
    "fedrep": {"head_epochs": 2},
}
"""Less work for algorithms whose server, or whose clients before they train, do much; the others keep their defaults."""


WRAPPED: dict[str, dict[str, Any]] = {
    "module": {"path": "own_nets:Plain", "arguments": {"norm": "GroupNorm", "num_channels": 4}},
    "torchvision": {"architecture": "shufflenet_v2_x0_5"},
}
"""Small networks for models that take theirs from elsewhere."""


def network(model: str) -> dict[str, Any]:
    """Settings of a model with a small network."""
    return {"name": model, **WRAPPED.get(model, {})}


def light(algorithm: str) -> dict[str, Any]:
    """Settings of an algorithm with little work beside the training."""
    return {"name": algorithm, **LIGHT.get(algorithm, {})}


def clock(algorithm: str) -> dict[str, Any]:
    """What an algorithm needs besides its own settings: nothing, or a clock of events."""
    plugin: Any = plugins.load("algorithms", algorithm)
    return {} if "sync" in plugin.modes else {"mode": "async", "participation": "all"}


def needs(algorithm: str) -> dict[str, Any]:
    """The same, and a model with more than its last layer where the algorithm trains that apart."""
    plugin: Any = plugins.load("algorithms", algorithm)
    return clock(algorithm) | ({"model": {"name": "mlp", "widths": [4]}} if "body" in plugin.needs else {})


def settings(**values: Any) -> RunSettings:
    """Settings of a run on a tiny model; ``values`` are top-level keys of the settings file."""
    base = {
        "model": "softmax_regression",
        "validation": 0.0,
        "local": {"epochs": 1, "batch_size": 4},
        "engine": {"workers": 1},
        "costs": {"wireless": "async" in str(values.get("mode"))},  # which takes as long as training such a model
    }
    return Params({**base, **values}).run()


def vectors(count: int = 60, features: int = 5, classes: int = 3, seed: int = 0) -> Dataset:
    """Gaussian features whose labels follow a random linear rule, float64."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, features))
    labels = (inputs @ rng.normal(size=(features, classes)) + rng.normal(size=(count, classes))).argmax(1)
    return dataset(torch.from_numpy(inputs), torch.from_numpy(labels), classes)


def deal(sizes: Sequence[int], start: int = 0) -> list[Ints]:
    """Consecutive, disjoint shards of the given sizes."""
    ends = start + np.cumsum(sizes)
    return [np.arange(end - size, end, dtype=np.int64) for size, end in zip(sizes, ends, strict=True)]


def timeline(
    shards: Sequence[Ints],
    present: Sequence[dict[int, int]],
    *,
    clients: int | None = None,
    session_of_round: Sequence[int] | None = None,
    classes: int = 3,
    notes: dict[str, Any] | None = None,
) -> Timeline:
    """A timeline from one table {client: shard} per round; every label counts."""
    tables = [np.array(sorted(table.items()), dtype=np.int64) for table in present]
    rounds = len(present)
    return Timeline(
        num_clients=max(client for table in present for client in table) + 1 if clients is None else clients,
        num_classes=classes,
        shards=list(shards),
        assignments=[Assignment(table[:, 0], table[:, 1]) for table in tables],
        assignment_of_round=np.arange(rounds, dtype=np.int64),
        session_of_round=np.array([0] * rounds if session_of_round is None else session_of_round, dtype=np.int64),
        label_views=np.ones((1, classes), dtype=np.bool_),
        view_of_round=np.zeros(rounds, dtype=np.int64),
        validation=np.zeros(0, dtype=np.int64),
        notes=notes or {},
    )


def steady(sizes: Sequence[int], rounds: int, classes: int = 3) -> Timeline:
    """Everybody present all the time with consecutive shards of the given sizes."""
    everybody = {client: client for client in range(len(sizes))}
    return timeline(deal(sizes), [everybody] * rounds, classes=classes)


class Script(Participation):
    """Cohorts as listed, one list of ids per round."""

    def __init__(self, cohorts: Sequence[Sequence[int]], share: float = 1.0) -> None:
        super().__init__(PluginSettings(name="script"))
        self.cohorts, self.share = cohorts, share

    def draw(self, present: Ints, round_: int, seed: int) -> Ints:
        """See :meth:`Participation.draw`."""
        return np.flatnonzero(np.isin(present, self.cohorts[round_]))

    def participation_fraction(self, present: int) -> float:
        """See :meth:`Participation.participation_fraction`."""
        return self.share


class Listed(Selection):
    """Groups as listed, one list of ids per round."""

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        super().__init__(PluginSettings(name="listed"))
        self.groups = groups

    def choose(self, candidates: Candidates) -> list[int]:
        """See :meth:`Selection.choose`."""
        r = candidates.r
        return [row for row, id_ in enumerate(r.ids) if id_ in self.groups[r.t]]


def planned(chosen: RunSettings, world: Timeline, data: Dataset, dtype: torch.dtype = torch.float32) -> Footprint:
    """The memory that a run on the CPU takes."""
    return footprint(choose(chosen, world, data), world, data, torch.device("cpu"), dtype)


def federation(
    chosen: RunSettings,
    world: Timeline,
    data: Dataset,
    *,
    dtype: torch.dtype = torch.float64,
    cohorts: Sequence[Sequence[int]] | None = None,
    start: Tensor | None = None,
) -> Federation:
    """A federation on the CPU, with the test's own cohorts or initial model where given."""
    parts = assembled(chosen, world, data, Hardware(dtype=dtype))
    if cohorts is not None:
        parts.participation = Script(cohorts)
    if start is not None:
        parts.w0 = start.to(dtype)
    return Federation(parts)


def stepped(fed: Federation) -> Iterator[tuple[RunState, RoundRecord]]:
    """The state and the record after every round; the threads are stopped after the last one."""
    state = initial_state(fed.parts)
    for _ in range(fed.parts.timeline.rounds):
        with torch.no_grad():
            record = fed.run_round(state)
        yield state, record
    fed.parts.workers.close()


def watch(fed: Federation) -> list[tuple[Round, Tensor]]:
    """A list that fills with every round's record and new model, as the algorithm's last hook sees and leaves them.

    Gradient rounds at a session's start are left out.
    """
    seen: list[tuple[Round, Tensor]] = []
    finish, run_round = fed.parts.algorithm.finish, fed.run_round

    def hook(r: Round) -> Tensor:
        result = finish(r)
        server = Vectors({name: vector.clone() for name, vector in r.server})
        seen.append((replace(r, server=server, extra=dict(r.extra)), result.clone()))
        return result

    def keep_last(state: RunState) -> RoundRecord:
        before = len(seen)
        try:
            return run_round(state)
        finally:
            del seen[before:-1]

    fed.parts.algorithm.finish = hook  # type: ignore[method-assign]
    fed.run_round = keep_last  # type: ignore[method-assign]
    return seen


def preview(**values: Any) -> RunPreview:
    """An ordinary run: 15 % of equal clients, 300 rounds of five steps."""
    usual = {"lr": 0.1, "last_lr": 0.05, "steps": 5, "rounds": 300, "participation_fraction": 0.15}
    return RunPreview(**{**usual, "smallest": 1.0, "size": 1000, **values})  # type: ignore[arg-type]


def problem(layout: Layout, *, clients: int = 4, classes: int = 10) -> Problem:
    """A learning problem around a network's layout."""
    return Problem(
        layout, clients, classes, (5,), Randomness(0), lambda number: torch.full((layout.size,), float(number)), 1
    )


def traffic(algorithm: Algorithm, size: int = 1000, buffers: int = 0) -> Payload:
    """What one exchange costs with a model of ``size`` parameters and ten classes."""
    network = torch.nn.Linear(size - 1, 1)
    network.register_buffer("statistics", torch.zeros(buffers))
    layout = Layout(network)
    algorithm.bind(problem(layout))
    return payload(algorithm, [], layout, {})


def bare(W: Tensor, added: Local, moments: dict[str, Tensor] | None = None) -> Cohort:
    """A cohort of which only the coefficients matter."""
    none = torch.zeros(0)
    return Cohort(
        W=W,
        buffers=none,
        moments=moments or {},
        b=none,
        plan=BatchPlan(none, none, *[np.zeros(0, dtype=np.int64)] * 2, []),
        label_counts=none,
        lr=0.1,
        added=added,
        losses=none,
    )


def closest(first: Tensor, second: Tensor) -> float:
    """Largest absolute difference."""
    return float((first - second).abs().max()) if first.numel() else 0.0


def trajectory(
    algorithm: Any,
    world: Timeline,
    data: Dataset,
    *,
    cohorts: Sequence[Sequence[int]] | None = None,
    start: Tensor | None = None,
    **values: Any,
) -> tuple[list[Tensor], RunState]:
    """Global models after every round, float64, and the state at the end; ``values`` are further settings."""
    fed = federation(settings(algorithm=algorithm, **values), world, data, cohorts=cohorts, start=start)
    seen = watch(fed)
    state, _ = run_rounds(fed)
    return [w for _, w in seen], state


def largest_gap(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    """Largest absolute difference of two trajectories of one length."""
    return max(closest(a, b) for a, b in zip(first, second, strict=True))


def smallest(model: str) -> tuple[Dataset, Network]:
    """The smallest data a model takes, and its network for them."""
    plugin: Any = plugins.load("models", model)
    built = plugin(plugin.Settings(**network(model)))
    data = samples.smallest(built)
    return data, built.build(data.input_shape, data.num_classes, data.vocabulary)


def in_full(saved: dict[str, Any]) -> dict[str, Any]:
    """The values of a saved state that was loaded, with the rows of its log in memory."""
    stored = saved["memory"]
    if not isinstance(stored, StoredRows):
        return saved
    memory = {name: torch.zeros(form.shape, dtype=form.dtype) for name, form in stored.forms.items()}
    stored.write_into(memory)
    return {**saved, "memory": memory}
