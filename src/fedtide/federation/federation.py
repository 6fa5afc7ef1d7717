"""A federation: the parts of one run put together, and the play of its rounds."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide import plugins
from fedtide.algorithms.base import Algorithm
from fedtide.algorithms.round import Vectors
from fedtide.costs.ledger import payload
from fedtide.costs.wireless import Stretch, Wireless, flops_per_parameter
from fedtide.data.dataset import Dataset
from fedtide.engine import executor as executors
from fedtide.engine.augment import Augmentation
from fedtide.engine.evaluation import Scores, evaluate
from fedtide.engine.flat import Layout, flatten
from fedtide.engine.memory import require
from fedtide.engine.task import Task
from fedtide.engine.workers import Workers
from fedtide.errors import Diverged, SettingsError
from fedtide.exchange.base import Exchange
from fedtide.federation.consistency import consistency
from fedtide.federation.gradient_rounds import GradientRounds
from fedtide.federation.invented import Invented, room
from fedtide.federation.memory import Home
from fedtide.federation.opening import opening
from fedtide.federation.ranks import Ranks
from fedtide.federation.report import RoundReport
from fedtide.federation.round import Call, Played, train_round
from fedtide.federation.schedules import learning_rate
from fedtide.federation.scoring import columns, evaluates, score
from fedtide.federation.state import RunState
from fedtide.initialisation.base import Boundary, Initialiser
from fedtide.models.base import Model, Network
from fedtide.objectives.base import Objective
from fedtide.participation.base import Participation
from fedtide.randomness import key64
from fedtide.scenarios.timeline import Timeline
from fedtide.settings import RunSettings
from fedtide.weighting.base import Weighting

Ints = NDArray[np.int64]


class Federation:
    """One run's world, engine and algorithm.

    Args:
        settings: of the run.
        timeline: who is there when, with what.
        data: the dataset, on any device; it is made resident on ``device``.
        device, dtype: where and in which precision training happens.
        autocast: dtype of mixed precision, or None.
        ranks: processes that share the work.
        scratch: folder of memories kept on disk.
    """

    def __init__(
        self,
        settings: RunSettings,
        timeline: Timeline,
        data: Dataset,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        autocast: torch.dtype | None = None,
        ranks: Ranks | None = None,
        scratch: Path | None = None,
    ) -> None:
        self.settings, self.timeline = settings, timeline
        self.device, self.ranks = device or torch.device("cpu"), ranks or Ranks()
        self.home = Home(settings.federation.memory, self.device, scratch)
        self.algorithm: Algorithm = self._plugin("algorithms", settings.algorithm)
        if self.algorithm.invents and data.kind == "text":
            raise SettingsError(f"algorithm {settings.algorithm.name} makes samples up, but data {data.name} is text")
        if "validation" in settings.evaluation.splits and not len(timeline.validation):
            raise SettingsError(
                f"validation = {settings.validation:g}: evaluation.splits needs a share > 0 to evaluate on"
            )
        self.data = data.resident(self.device, dtype).with_room(room(timeline, self.algorithm.invents))
        self.labels: Ints = self.data.train_labels.cpu().numpy()
        self.invented = Invented(self.data, self.labels, len(data.train_labels))
        if self.algorithm.stateful and timeline.notes.get("stateless"):
            raise SettingsError(
                f"algorithm {settings.algorithm.name} needs clients that remember; scenario {settings.scenario.name} has "
                "clients that do not"
            )
        self.initialiser: Initialiser = self._plugin("initialisation", settings.initialiser)
        self.participation: Participation = self._plugin("participation", settings.participation)
        self.exchange: Exchange = self._plugin("exchange", settings.exchange)
        self.exchange.require(self.algorithm, settings.local)
        self.weighting: Weighting = self._plugin("weighting", settings.algorithm.weighting)  # type: ignore[attr-defined]
        objective: Objective = self._plugin("objectives", settings.objective)
        model: Model = self._plugin("models", settings.model)
        network = self._network(model)
        local = settings.local
        images = self.data.kind == "image" and (local.flip > 0 or local.crop > 0)
        augmentation = (
            Augmentation(local.flip, local.crop, local.crop_probability, local.crop_padding) if images else None
        )
        if augmentation is not None:
            augmentation.check(self.data.input_shape)
        layout = executors.image_layout(settings.engine, model.channels_last, self.device)
        self.task = Task(network, self.data, objective, local, augmentation, self.device, dtype, autocast, layout)
        self.layout = Layout(network)
        self.algorithm.bind(self.layout, settings.seed)
        self.w0, self.b0 = flatten(network, dtype, self.device)
        self.workers = Workers(self.task, settings.engine.workers)
        self.executor = executors.make(self.task, self.workers, settings.engine, model.family)
        self.payload = payload(self.algorithm, self.layout.size, self.layout.buffer_size, self.data.num_classes)
        self.wireless = self._wireless(network) if settings.costs.wireless else None

    @staticmethod
    def _plugin(kind: str, settings: plugins.PluginSettings) -> Any:
        return plugins.load(kind, settings.name)(settings)

    def _network(self, model: Model) -> Network:
        """The run's network; library initialisers draw from torch's global stream, so it is keyed and put back."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key64(self.settings.seed, "model") & (2**63 - 1))
            return model.build(self.data.input_shape, self.data.num_classes, self.data.vocabulary)

    def _wireless(self, network: Network) -> Wireless:
        costs = self.settings.costs
        own = next(network.parameters())
        sample = self.data.prepare(self.data.test_inputs[:1].to(own.device), own.dtype)
        return Wireless(costs, self.settings.seed, self.layout.size, costs.phi or flops_per_parameter(network, sample))

    def label_counts(self, shards: Sequence[Ints]) -> Tensor:
        """Samples per class of each shard, float64 [C, L]."""
        classes, owners = self.data.num_classes, np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
        counts = np.bincount(owners * classes + self.labels[np.concatenate(shards)], minlength=len(shards) * classes)
        return torch.from_numpy(counts.reshape(-1, classes).astype(np.float64))

    def population_counts(self, t: int) -> Tensor:
        """Samples per class of every client present in round ``t``, float64 [K, L]."""
        return self.label_counts([self.timeline.shards[shard] for shard in self.timeline.at(t).shards])

    def client_vectors(self) -> list[str]:
        """Names of the vectors kept for every client."""
        kept = self.settings.local.momentum > 0 and self.settings.local.momentum_scope == "client"
        return [
            *self.algorithm.client,
            *(["momentum"] if kept else []),
            *(["latest"] if evaluates(self, "all") else []),
        ]

    def start(self) -> RunState:
        """State before the first round."""
        clients, size, classes = self.timeline.num_clients, self.layout.size, self.data.num_classes
        names = self.client_vectors()
        return RunState(
            round=0,
            w=self.w0.clone(),
            b=self.b0.clone(),
            server={
                name: torch.full_like(self.w0, self.algorithm.server_start(name)) for name in self.algorithm.server
            },
            memory={name: self.home.rows(clients, size, self.w0.dtype) for name in names},
            seen=torch.zeros(clients, dtype=torch.bool),
            counts=torch.zeros(clients, dtype=torch.int64),
            extra=self.algorithm.extra(size, clients, classes),
        )

    def restore(self, saved: dict[str, Any]) -> RunState:
        """State from :meth:`RunState.tensors`, every part where it belongs."""
        state = RunState.restore(saved, self.device, torch.device("cpu"))
        state.memory = self.home.take(state.memory)
        return state

    def memory_plan(self) -> str:
        """What the run will hold, as one line.

        Raises:
            SettingsError: it does not fit.
        """
        vector = self.layout.size * self.w0.element_size()
        present = max(len(item.clients) for item in self.timeline.assignments)
        cohort = max(1, round(present * self.participation.expected_fraction(present)))
        rows = cohort * vector * (3 + len(self.algorithm.client) + (self.settings.local.momentum > 0))
        state = self.client_vectors()
        scratch = [name for name in state if name != "latest"] if self.initialiser.trains else []
        kept = self.timeline.num_clients * vector * len([*state, *scratch])
        require(rows, self.device, f"a cohort of {cohort} clients with {self.layout.size:,} parameters each")
        self.home.require(kept, f"federation.memory: {', '.join(state)} of {self.timeline.num_clients} clients")
        return (
            f"{self.layout.size:,} parameters; about {cohort} of {present} clients a round; "
            f"{rows / 1e6:,.1f} MB for the cohort, {kept / 1e6:,.1f} MB of client memories on {self.home}; "
            f"{self.executor.describe()}{', channels last' if self.task.layout == torch.channels_last else ''}"
        )

    def play(self, state: RunState) -> RoundReport:
        """Play round ``state.round`` and advance the state.

        Raises:
            Diverged: the loss or the model is not finite, or the loss exploded; ``state.round`` counts the round and
                the exception's ``report`` holds its row.
        """
        began, t, before = time.perf_counter(), state.round, dict(state.totals)
        first, length = self.timeline.session_span(t)
        opened = None
        if t == first:
            opened = self._begin_session(state, t)
        else:
            self._forget_departed(state, t)
        call = self._call(t, first, length)
        watched = self.settings.evaluation.consistency and self.ranks.rank == 0
        fits = consistency(self, state.w, state.b, call) if watched else {}
        if t == first:
            up, down = self.algorithm.opening_traffic(call.population, self.data.num_classes)
            state.totals["bytes_up"] += up
            state.totals["bytes_down"] += down
        played = train_round(self, state, call)
        state.w, state.b, state.round = played.w, played.b, t + 1
        exchanges = self.charge(state, call, played.stretches, played.length)
        finite = math.isfinite(played.train_loss) and bool(torch.isfinite(played.w).all())
        failed = not finite or played.train_loss > self.settings.federation.explode
        report = self._report(state, call, played, fits, t, failed)
        report.opening = opened
        seconds = time.perf_counter() - began
        report.row["seconds"] = round(seconds, 4)
        charged = ("kappa", *(("latency", "energy") if self.wireless else ()))
        report.row["exchanges"] = exchanges
        report.row |= {name: _digits(state.totals[name] - before[name]) for name in charged}
        state.totals["seconds"] += seconds
        if failed:
            message = f"diverged in round {t + 1}: training loss {played.train_loss:g}; try a smaller local.lr"
            raise Diverged(message, report)
        if t == first + length - 1:
            self.initialiser.end(self._boundary(state, t))
        return report

    def charge(self, state: RunState, call: Call, stretches: Sequence[Stretch], length: int) -> int:
        """Add what a round costs to the totals of ``state``; the rows of the history hold what was added since the last.

        Args:
            state: of the run, not of a scratch copy.
            call: who took part, and the key of the fading (``keys`` and ``purpose``).
            stretches: who trained how much before each exchange of models; each costs its members one payload both ways.
            length: local steps of the round, which its exchanges are counted against.

        Returns:
            How often a participant exchanged models, all together.
        """
        exchanges = sum(len(stretch.rows) for stretch in stretches)
        state.totals["kappa"] += exchanges * self.payload.models / (len(call.ids) * length)
        state.totals["bytes_down"] += exchanges * self.payload.down
        state.totals["bytes_up"] += exchanges * self.payload.up
        if self.wireless:
            sent = self.payload.down, self.payload.up
            cost = self.wireless.round_cost(call.keys, call.ids, stretches, *sent, call.purpose)
            state.totals["latency"] += cost.latency_s
            state.totals["energy"] += cost.energy_J
        return exchanges

    def _call(self, t: int, first: int, length: int) -> Call:
        here = self.timeline.at(t)
        sizes = np.array([len(self.timeline.shards[shard]) for shard in here.shards])
        able = np.flatnonzero(sizes > 0)
        drawn = able[self.participation.draw(here.clients[able], t, self.settings.seed)]
        local = self.settings.local
        at, span = (t - first, length) if local.restart else (t, self.timeline.rounds)
        return Call(
            ids=here.clients[drawn].tolist(),
            subsets=here.shards[drawn].tolist(),
            shards=[self.timeline.shards[shard] for shard in here.shards[drawn]],
            population=len(here.clients),
            mean_size=float(sizes.mean()),
            expected=self.participation.expected_fraction(len(able)),
            session=int(self.timeline.session_of_round[t]),
            session_round=t - first,
            t=t,
            at=t,
            lr=learning_rate(local, at, span),
            local=local,
            purpose="batches",
            keys=(t,),
        )

    def _boundary(self, state: RunState, t: int) -> Boundary:
        first, _ = self.timeline.session_span(t)
        earlier = self.timeline.label_views[np.unique(self.timeline.view_of_round[:first])]
        return Boundary(
            session=int(self.timeline.session_of_round[t]),
            pilot=self.timeline.pilot,
            w=state.w,
            b=state.b,
            w0=self.w0,
            b0=self.b0,
            devices=self.timeline.at(t).clients.tolist(),
            store=state.initialiser,
            lr=self.settings.local.lr,
            old_labels=torch.from_numpy(earlier.any(0)).to(self.device),
            services=GradientRounds(self, state, t),
        )

    def _begin_session(self, state: RunState, t: int) -> dict[str, Any] | None:
        """The initialiser's model, and memories reset or handed to the new population; returns what is recorded of it."""
        boundary = self._boundary(state, t)
        w, b = self.initialiser.start(boundary)
        state.w, state.b = w.clone(), b.clone()
        self._renew_memories(state, t)
        return opening(self, boundary, (state.w, state.b), t) if t > 0 and self.ranks.rank == 0 else None

    def _renew_memories(self, state: RunState, t: int) -> None:
        if "latest" in state.memory:
            state.memory["latest"].copy_(state.w)
        if t == 0:
            return
        if self.settings.federation.at_session == "keep":
            self._keep_memories(state, t)
            return
        for name, vector in state.server.items():
            vector.fill_(self.algorithm.server_start(name))
        for name, rows in state.memory.items():
            if name != "latest":
                rows.zero_()
        state.seen.zero_()
        state.extra = self.algorithm.extra(self.layout.size, self.timeline.num_clients, self.data.num_classes)

    def _forget_departed(self, state: RunState, t: int) -> None:
        """Who has left inside a session comes back as a new client; the server's memories stay, or are brought in line."""
        present = self.timeline.at(t).clients
        gone = torch.from_numpy(np.setdiff1d(self.timeline.at(t - 1).clients, present))
        if not len(gone):
            return
        for name, rows in state.memory.items():
            if name != "latest":
                rows.index_fill_(0, gone.to(rows.device), 0)
        state.seen[gone] = False
        if self.settings.federation.at_session == "keep":
            self._keep_memories(state, t)

    def _keep_memories(self, state: RunState, t: int) -> None:
        here = self.timeline.at(t)
        sizes = torch.tensor([len(self.timeline.shards[shard]) for shard in here.shards], dtype=self.w0.dtype)
        omega = (sizes / sizes.mean()).unsqueeze(1).to(self.home.device)
        self.algorithm.keep_at_session(Vectors(state.server), Vectors(state.memory), here.clients.tolist(), omega)

    def _report(
        self, state: RunState, call: Call, played: Played, fits: dict[str, list[float]], t: int, failed: bool
    ) -> RoundReport:
        evaluation = self.settings.evaluation
        due = (t + 1) % evaluation.every == 0 or t + 1 == self.timeline.rounds
        report = RoundReport(
            {
                "round": t + 1,
                "session": call.session + 1,
                "train_loss": played.train_loss,
                "present": call.population,
                "selected": len(call.ids),
                "completed": sum(len(shard) > 0 for shard in call.shards),
                "drift": played.drift,
                "bytes_up": int(state.totals["bytes_up"]),
                "bytes_down": int(state.totals["bytes_down"]),
                "gradient_rounds": int(state.totals["gradient_rounds"]),
                "lr": call.lr,
                **dict.fromkeys(columns(self)),
                **played.server,
            },
            clients={**played.clients, **fits},
        )
        report.per_class["held"] = self.label_counts(call.shards).sum(0).to(torch.int64).tolist()
        if due and not failed and self.ranks.rank == 0:
            score(self, report, state, played, t)
        return report

    def scores(self, w: Tensor, b: Tensor, split: str = "test", view: NDArray[np.bool_] | None = None) -> Scores:
        """Per-class scores of a model on the test set or the validation split; ``view`` as in :func:`evaluate`."""
        data = self.data
        inputs, labels = data.test_inputs, data.test_labels
        if split == "validation":
            held = torch.from_numpy(self.timeline.validation).to(self.device)
            inputs, labels = data.train_inputs[held], data.train_labels[held]
        return evaluate(self.workers, w, b, inputs, labels, self.settings.evaluation.batch_size, view)

    def state_dict(self, state: RunState) -> dict[str, Tensor]:
        """The global model by parameter and buffer name, on the CPU."""
        return {name: value.clone().cpu() for name, value in self.layout.named(state.w, state.b).items()}


def _digits(value: float) -> float:
    """Nine digits: the difference of two sums is not worth more."""
    return float(f"{value:.9g}")
