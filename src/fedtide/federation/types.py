"""The nouns of a federation, which name each other: parts of a run, its state, a round in progress, and a feature of rounds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.core.randomness import Randomness
from fedtide.federation.assembly.hardware import Hardware, MemoryStore, Share
from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.scoring.evaluator import Evaluator
from fedtide.federation.traffic import Payload, payload
from fedtide.methods.algorithms.base import Algorithm, Extra, Round
from fedtide.methods.communication.base import Communication
from fedtide.methods.costs.wireless import Segment, Wireless
from fedtide.methods.initializers.base import Initializer
from fedtide.methods.uplink.base import Link
from fedtide.methods.weighting.base import Weighting
from fedtide.settings.run import RunSettings
from fedtide.training.engine.executors.executor import Executor
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.local import Cohort
from fedtide.training.engine.optimizers import optimizer
from fedtide.training.engine.task import Task
from fedtide.training.models.base import Model, Network
from fedtide.training.objectives.base import Objective
from fedtide.training.resources.workers import Workers
from fedtide.world.dataset import Dataset
from fedtide.world.participation.base import Participation
from fedtide.world.timeline import Timeline

F = TypeVar("F", bound="Feature")


@dataclass(frozen=True)
class Memory:
    """What a feature takes beside its rows: vectors [d], ``once`` and for ``each`` participant, and added training samples."""

    once: int = 0
    each: int = 0
    samples: int = 0


class Feature:
    """A capability of rounds beside the algorithm's: what changes, keeps or records something on the way of models and updates.

    The features of a run are in one tuple, the server's first and the clients' last. What goes to the clients passes them in
    this order (:meth:`begin`, :meth:`before`), what comes back in the reverse (:meth:`after`, :meth:`close`, :meth:`record`).
    What a feature learns in a round and needs later in it is in ``r.notes[self.name]``; what outlasts the round, in
    ``state.features[self.name]`` and in the clients' :meth:`rows`. An instance keeps nothing but caches.

    Attributes:
        name: of what it keeps.
        updates: whether :meth:`after` reads or changes what arrives. Every process then has all rows, unless it is ``rowwise``:
            no row of what it does depends on another one. What it records of participants is then gathered from all processes.
        rehearses: whether it takes part in the gradient rounds of initializers.
        lasting: whether its rows outlast departures and session starts. gathers: whether training needs them.
        idles: whether it records rounds without participants, too.
    """

    name: ClassVar[str]
    updates: bool = False
    rowwise: bool = False
    rehearses: ClassVar[bool] = True
    lasting: ClassVar[bool] = False
    gathers: ClassVar[bool] = True
    idles: ClassVar[bool] = False

    # Before the run.

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        """What it does not go with, in a line that names the setting and a way out; None if nothing."""
        return None

    def bind(self, parts: Parts) -> None:
        """Receive the assembled parts, once; raises a SettingsError if it does not go with them."""

    def rows(self, chosen: Chosen, layout: Layout) -> dict[str, int]:
        """Names and widths of vectors that it keeps for every client: zero at first, cleared when the client leaves."""
        return {}

    def bits(self, numbers: int) -> int | None:
        """Bits on the wire of an update of so many numbers after this feature; None: as many as before."""
        return None

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        """What it takes beside :meth:`rows`, for the memory that a run is planned with."""
        return Memory()

    def state(self, parts: Parts) -> dict[str, Any]:
        """What it keeps at the server before the first round."""
        return {}

    # Between rounds.

    def open(self, parts: Parts, state: RunState, t: int) -> None:
        """Before everything else of round ``t``, the start of a session included, which it may cause."""

    def begin(self, parts: Parts, state: RunState, t: int, session: bool, replaced: bool) -> bool:
        """After the start of a ``session``, if any, and before the plan of round ``t``.

        Returns whether the model has been replaced, so that no client has it: it was already (``replaced``), or is now.
        """
        return replaced

    def plan(self, parts: Parts, state: RunState, plan: RoundPlan) -> RoundPlan:
        """Change who takes part, or at which learning rates."""
        return plan

    def forget(self, parts: Parts, state: RunState, clients: Tensor, left: bool) -> None:
        """Clients, int64 [m], have ``left``; or their rows are about to be cleared, for whatever reason."""

    # In a round.

    def before(self, r: RoundContext) -> None:
        """Before local training: change what the participants train on."""

    def after(self, r: RoundContext) -> None:
        """After local training: change what arrives at the server, ``r.received``."""

    def close(self, r: RoundContext) -> None:
        """After the server's step; ``r.state`` holds the new model."""

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        """What to record of every round: columns [C, 1] of the participants, and numbers, NaN for none."""
        return {}


class Channel:
    """How the server's model reaches the clients: as it is, in every exchange."""

    def model(self, state: RunState) -> Tensor:
        """The model [d] that a client receives which starts to train."""
        return state.w

    def receive(self, parts: Parts, state: RunState, clients: Sequence[int], t: int) -> list[int]:
        """Bytes that each of these clients receives to train in round ``t``; from now on it has the model."""
        return [parts.payload(state.extra).down] * len(clients)

    def leave(self, state: RunState, clients: Collection[int]) -> None:
        """Clients have left between two updates of an asynchronous server."""


@dataclass
class Chosen:
    """What a run's settings choose by name.

    ``links``: of the uplink, in their order. ``features``: the server's first, the clients' last. ``channel``: one of them,
    or a plain one.
    """

    settings: RunSettings
    algorithm: Algorithm
    initializer: Initializer
    participation: Participation
    communication: Communication
    weighting: Weighting
    objective: Objective
    model: Model
    links: list[Link]
    channel: Channel = field(default_factory=Channel)
    features: tuple[Feature, ...] = ()

    @property
    def robust(self) -> bool:
        """Whether an aggregation rule takes the place of the mean."""
        return self.settings.aggregation.name != "mean"

    def feature(self, kind: type[F]) -> F | None:
        """The feature of a kind, if the run has it."""
        return next((feature for feature in self.features if isinstance(feature, kind)), None)

    def client_rows(self, layout: Layout) -> dict[str, int]:
        """Names and widths of the rows kept for every client of a network."""
        local = self.settings.local
        rows = {name: self.algorithm.width(name, layout, {}) for name in self.algorithm.client}
        if local.keeps_momentum:
            rows |= optimizer(local).widths(layout.size)
        for feature in self.features:
            rows |= feature.rows(self, layout)
        return rows

    def evaluates(self, model: str) -> bool:
        """Whether ``global``, ``participants``, ``all`` or ``ensemble`` is evaluated in the run."""
        evaluation = self.settings.evaluation
        chosen = self.algorithm.models if evaluation.models is None else evaluation.models
        return model == evaluation.model or model in chosen


@dataclass
class Parts(Chosen):
    """One run's plug-ins, world and engine; only the synthetic samples at the end of ``data`` and the ``timeline`` change.

    Attributes:
        timeline: with the sessions that a detector's alarms have begun.
        data, network, task, layout: resident data; the whole network; what of it is trained; its parameters.
        w0 [d], b0 [q]: the initial model and its floating buffers.
        memory: where the clients' memories are kept.
    """

    timeline: Timeline = field(kw_only=True)
    hardware: Hardware = field(kw_only=True)
    data: Dataset = field(kw_only=True)
    network: Network = field(kw_only=True)
    task: Task = field(kw_only=True)
    layout: Layout = field(kw_only=True)
    w0: Tensor = field(kw_only=True)
    b0: Tensor = field(kw_only=True)
    workers: Workers = field(kw_only=True)
    executor: Executor = field(kw_only=True)
    evaluator: Evaluator = field(kw_only=True)
    memory: MemoryStore = field(kw_only=True)
    wireless: Wireless | None = field(kw_only=True)
    randomness: Randomness = field(kw_only=True)
    _counted: dict[int, tuple[Ints, Tensor]] = field(default_factory=dict, init=False, repr=False)

    @property
    def updates(self) -> bool:
        """Whether a feature reads or changes what arrives."""
        return any(feature.updates for feature in self.features)

    @property
    def sums_only(self) -> bool:
        """Whether the end of a round needs sums over the participants alone, and not all local models in one process."""
        together = any(feature.updates and not feature.rowwise for feature in self.features)
        return "sums" in self.algorithm.admits and not together and not self.evaluates("ensemble")

    def label_counts(self, numbers: Sequence[int], shards: Sequence[Ints]) -> Tensor:
        """Training samples per class of shards and their numbers, float64 [C, L]; the timeline's are counted once in a run."""
        own, known = self.timeline.shards, self._counted
        if any(own[number] is not shard for number, shard in zip(numbers, shards, strict=True)):
            return self.data.label_counts(shards)  # with samples added or removed, whose labels may change
        # A timeline that has taken the place of another may have other shards under its numbers.
        for number in {number for number in numbers if number not in known or known[number][0] is not own[number]}:
            known[number] = own[number], self.data.label_counts([own[number]])[0]
        return torch.stack([known[number][1] for number in numbers])

    def rows_that(self, *, last: bool = False, rest: bool = False) -> set[str]:
        """Names of features' rows that ``last`` beyond departures, or that ``rest``: training does not need them."""
        chosen = [f for f in self.features if (last and f.lasting) or (rest and not f.gathers)]
        return {name for feature in chosen for name in feature.rows(self, self.layout)}

    def payload(self, extra: Extra = MappingProxyType({})) -> Payload:
        """What one exchange costs; of some algorithms it depends on their ``extra`` tensors, empty before the first round."""
        return payload(self.algorithm, [feature.bits for feature in self.features], self.layout, extra)

    def named(self, w: Tensor, b: Tensor) -> dict[str, Tensor]:
        """A model by parameter and buffer name, on the CPU, with all that a network of its class needs to load it."""
        values, network = self.stacked(w, b), self.network
        others = {network.stored_name(name): value for name, value in network.state_dict().items()}
        return {name: value.clone().cpu() for name, value in (values | {**others, **values}).items()}

    def stacked(self, w: Tensor, b: Tensor) -> dict[str, Tensor]:
        """Views of what differs between models, parameters [..., d] and floating buffers [..., q], by name as :meth:`named`."""
        first: dict[int, str] = {}
        values = self.layout.named(w, b)
        for name, value in self.network.state_dict(keep_vars=True).items():
            if (same := first.setdefault(id(value), name)) != name and same in values:
                values[name] = values[same]  # tied: the layout knows a value by its first name
        return {self.network.stored_name(name): value for name, value in values.items()}


@dataclass
class RunState:
    """Everything needed to resume a run between two rounds; random generators are never part of it.

    Attributes:
        round, w, b: number of rounds done, global parameters [d] and floating buffers [q].
        server: the algorithm's server vectors [d].
        memory: the clients' vectors [N, d] by name: the algorithm's, what a kept local optimizer remembers (its count of
            steps is [N, 1]), and those of features.
        seen: bool [N], clients that have a memory. counts: int64 [N], rounds each client took part in.
        written: int64 [N], number of the last round (from 1) in which a client's rows of ``memory`` were written; 0 for never.
        features: what features keep at the server, by their names.
        extra: the algorithm's further tensors. initializer: the initializer's. events: with ``mode: async``, jobs under way.
        totals: up to now: bytes, gradient rounds, local steps, seconds on this machine, simulated latency [s] and energy [J],
            and the sum of the rounds' normalized communication costs kappa.
    """

    round: int
    w: Tensor
    b: Tensor
    server: dict[str, Tensor]
    memory: dict[str, Tensor]
    seen: Tensor
    counts: Tensor
    written: Tensor
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    extra: dict[str, Tensor] = field(default_factory=dict)
    initializer: dict[str, Tensor] = field(default_factory=dict)
    events: dict[str, Any] = field(default_factory=dict)
    totals: dict[str, float] = field(
        default_factory=lambda: (
            dict.fromkeys(("bytes_up", "bytes_down", "gradient_rounds", "steps"), 0)
            | dict.fromkeys(("seconds", "latency", "energy", "kappa"), 0.0)
        )
    )

    def tensors(self) -> dict[str, Any]:
        """Plain containers of tensors and numbers, for saving; nothing is copied."""
        return vars(self).copy()

    @staticmethod
    def restore(values: dict[str, Any], device: torch.device) -> RunState:
        """State from :meth:`tensors`, on ``device``."""

        def place(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: place(item) for key, item in value.items()}
            return value.to(device) if isinstance(value, Tensor) else value

        return RunState(**{key: place(value) for key, value in values.items()})


@dataclass
class RoundContext:
    """A round in progress, as features see it; ``round`` is the algorithm's view of it, from local training on.

    Attributes:
        plan: with the samples that participants train on, which features may change. features: those that take part.
        w: [d] the server's model before the round. sent: [d] the one that clients train from.
        bytes_down: received by each participant in an exchange; None where jobs received it before.
        memory: the participants' rows by name. share: which rows this process trains.
        cohort: the trained models. start: [C, d] where their training started, None if no feature reads updates.
        segments: local work before each exchange of models. passes: see :class:`RoundServices`. gradients: mean number of
            gradients on batches that a participant took; None where it is that of local steps.
        train_loss: mean training loss; with an aggregation rule, of the participants whose loss is finite, if there are any.
        losses: of each participant, float64 [C], NaN where it took no step.
        drift: mean distance of the local models from the one that was sent. failed: whether the run has diverged.
        notes: what features need later in the round, by their names.
        participants: [d] mean of the local models once the round is over, or the new model where that is not evaluated.
        clients, server: what is recorded of the round: columns of the participants, empty if there are none, and numbers.
        events: entries of ``events.jsonl``, JSON-able, each with its ``kind``.
    """

    parts: Parts
    state: RunState
    plan: RoundPlan
    features: tuple[Feature, ...]
    w: Tensor
    sent: Tensor
    bytes_down: list[int] | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Tensor] = field(default_factory=dict)
    round: Round = field(init=False)
    share: Share = field(init=False)
    cohort: Cohort = field(init=False)
    start: Tensor | None = field(init=False)
    segments: list[Segment] = field(init=False)
    passes: Floats = field(init=False)
    gradients: float | None = field(init=False)
    train_loss: float = field(init=False)
    losses: Tensor = field(init=False)
    drift: float = field(init=False)
    failed: bool = field(init=False)
    participants: Tensor = field(init=False)
    clients: dict[str, Sequence[float]] = field(init=False)
    server: dict[str, float | None] = field(init=False)
    events: list[dict[str, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        """The round, its participants, and what is known of it so far: at no moment are all fields set."""
        return f"RoundContext(t={self.plan.t}, purpose={self.plan.purpose!r}, ids={self.plan.ids}, has={[*vars(self)]})"

    @property
    def received(self) -> Tensor:
        """What arrives at the server, [C, d]; set to another tensor by features that change it."""
        return self.round.W

    @received.setter
    def received(self, rows: Tensor) -> None:
        self.round.W = rows

    @property
    def started(self) -> Tensor:
        """Where training started [C, d], for features that read updates."""
        assert self.start is not None
        return self.start

    @property
    def here(self) -> slice:
        """The rows of the cohort that this process has."""
        return slice(0, len(self.plan.ids)) if self.share.whole else self.share.rows

    @property
    def rehearsal(self) -> bool:
        """Whether this is a gradient round of an initializer."""
        return self.plan.purpose == "gradient"

    @property
    def trained(self) -> int:
        """Participants that took local steps."""
        return sum(count > 0 for count in self.cohort.plan.steps) if self.plan.ids else 0
