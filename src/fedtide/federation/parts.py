"""The parts of one run, assembled once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.algorithms.base import Algorithm, Problem
from fedtide.core import plugins
from fedtide.core.errors import SettingsError, shortened
from fedtide.core.faults import broken_contract
from fedtide.core.randomness import Randomness, key64
from fedtide.costs.wireless import Wireless, flops_per_parameter
from fedtide.engine import contract
from fedtide.engine.augment import Augmentation
from fedtide.engine.executors import factory
from fedtide.engine.executors.executor import Executor
from fedtide.engine.flat import Layout, flatten
from fedtide.engine.passes.evaluation import Scores, evaluate
from fedtide.engine.passes.fit import Fit, fit
from fedtide.engine.probe import refuse_untrainable
from fedtide.engine.task import Task
from fedtide.engine.workers import Workers
from fedtide.exchange.base import Exchange
from fedtide.federation.compatibility import refuse_other_clock, refuse_other_optimiser
from fedtide.federation.features import on_fixed_features
from fedtide.federation.footprint import client_rows, evaluates
from fedtide.federation.payload import Payload, payload
from fedtide.federation.ranks import Alone, Group
from fedtide.federation.saving.memory import MemoryStore
from fedtide.federation.synthetic import SyntheticSamples, capacity
from fedtide.initialisation.base import Initialiser
from fedtide.models.base import Model, Network
from fedtide.objectives.base import Objective
from fedtide.participation.base import Participation
from fedtide.settings.run import RunSettings
from fedtide.weighting.base import Weighting
from fedtide.world.dataset import Dataset, refuse_other_task
from fedtide.world.timeline import Assignment, HeldOut, Timeline

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Hardware:
    """Where and in which precision a run computes.

    Attributes:
        device: of training. dtype: of parameters. autocast: dtype of mixed precision, or None.
        group: processes that share the work.
        scratch: folder of memories kept on disk.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    autocast: torch.dtype | None = None
    group: Group = field(default_factory=Alone)
    scratch: Path | None = None


@dataclass
class Parts:
    """One run's world, engine and plug-ins; only the synthetic samples at the end of ``data`` change.

    Attributes:
        settings: of the run. timeline: who is present when, with what data. hardware: where it is computed.
        data: resident on the device. labels: classes of all training samples, on the CPU; 0 where the task has none.
        algorithm, initialiser, participation, exchange, weighting: plug-ins.
        network: the whole network. task: what is trained. layout: of its parameters.
        w0 [d], b0 [q]: the initial model and its floating buffers.
        workers, executor: of local training.
        memory: where the clients' memories are kept. synthetic: samples that the algorithm makes.
        payload: bytes of one exchange of models. wireless: cost model, or None.
        randomness: source of the run's draws.
    """

    settings: RunSettings
    timeline: Timeline
    hardware: Hardware
    data: Dataset
    labels: Ints
    algorithm: Algorithm
    initialiser: Initialiser
    participation: Participation
    exchange: Exchange
    weighting: Weighting
    network: Network
    task: Task
    layout: Layout
    w0: Tensor
    b0: Tensor
    workers: Workers
    executor: Executor
    memory: MemoryStore
    synthetic: SyntheticSamples
    payload: Payload
    wireless: Wireless | None
    randomness: Randomness

    @property
    def device(self) -> torch.device:
        """Of training."""
        return self.hardware.device

    @property
    def leads(self) -> bool:
        """Whether this process evaluates and records."""
        return self.hardware.group.rank == 0

    def label_counts(self, shards: Sequence[Ints]) -> Tensor:
        """Samples per class of each shard, float64 [C, L]."""
        classes, owners = self.data.num_classes, np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
        counts = np.bincount(owners * classes + self.labels[np.concatenate(shards)], minlength=len(shards) * classes)
        return torch.from_numpy(counts.reshape(-1, classes).astype(np.float64))

    def population_counts(self, present: Assignment) -> Tensor:
        """Samples per class of each of these clients, float64 [K, L]."""
        return self.label_counts(self.timeline.shards_of(present))

    def client_rows(self) -> dict[str, int]:
        """Names and lengths of the rows kept for every client."""
        return client_rows(self.settings, self.algorithm, self.layout.size)

    def evaluates(self, model: str) -> bool:
        """Whether ``cloud``, ``participants``, ``all`` or ``ensemble`` is evaluated in this run."""
        return evaluates(self.settings, self.algorithm, model)

    def scores(
        self,
        w: Tensor,
        b: Tensor,
        split: str = "test",
        view: NDArray[np.bool_] | None = None,
        held_out: HeldOut | None = None,
    ) -> Scores | Fit:
        """Scores of a model on test or validation samples: per class, or the fit of a task without classes.

        ``view`` as in :func:`evaluate`; ``held_out``: the samples, by default the test set or all validation samples.
        """
        return self.scores_on(w, b, *self.held_out(split, held_out), view)

    def scores_on(
        self, w: Tensor, b: Tensor, inputs: Tensor, labels: Tensor, view: NDArray[np.bool_] | None = None
    ) -> Scores | Fit:
        """The same on any resident samples."""
        batch = self.settings.evaluation.batch_size
        if self.data.task != "classification":
            return fit(self.workers, w, b, inputs, labels, batch)
        return evaluate(self.workers, w, b, inputs, labels, batch, view)

    def held_out(self, split: str, held_out: HeldOut | None = None) -> tuple[Tensor, Tensor]:
        """Inputs and labels of test or validation samples; arguments as in :meth:`scores`."""
        inputs, labels = self.split(split)
        if split == "test" and held_out is None:
            return inputs, labels
        chosen = torch.from_numpy(self.positions(split, held_out)).to(self.device)
        return inputs[chosen], labels[chosen]

    def split(self, split: str) -> tuple[Tensor, Tensor]:
        """Inputs and labels that positions of ``test`` or ``validation`` samples refer to."""
        data = self.data
        return (data.test_inputs, data.test_labels) if split == "test" else (data.train_inputs, data.train_labels)

    def positions(self, split: str, held_out: HeldOut | None = None) -> Ints:
        """Positions of test or validation samples; arguments as in :meth:`scores`."""
        if held_out is not None:
            return held_out.test if split == "test" else held_out.validation
        return np.arange(len(self.data.test_labels)) if split == "test" else self.timeline.validation

    def named(self, w: Tensor, b: Tensor) -> dict[str, Tensor]:
        """A model by parameter and buffer name, on the CPU, with all that a network of its class needs to load it."""
        network = self.network
        values = self.layout.named(w, b)
        values |= {name: value for name, value in network.state_dict().items() if name not in values}
        return {network.stored_name(name): value.clone().cpu() for name, value in values.items()}


def assemble(settings: RunSettings, timeline: Timeline, data: Dataset, hardware: Hardware | None = None) -> Parts:
    """Assemble a run.

    Args:
        settings: of the run.
        timeline: who is present when, with what data.
        data: the dataset, on any device; it is moved to that of ``hardware``.
        hardware: where to compute; by default one CPU process in single precision.

    Raises:
        SettingsError: parts are incompatible.
    """
    hardware = hardware or Hardware()
    device, dtype, local = hardware.device, hardware.dtype, settings.local
    algorithm = plugins.create(Algorithm, settings.algorithm)
    _refuse_unsuitable(settings, timeline, data, algorithm)
    own, synthetic = len(data.train_labels), capacity(timeline, algorithm.synthetic_per_shard)
    data = data.resident(device, dtype).with_capacity(synthetic)
    labels = data.train_classes
    exchange = plugins.create(Exchange, settings.exchange)
    exchange.require(algorithm, local)
    model = plugins.create(Model, settings.model)
    network = _network(model, settings.seed, data)
    if algorithm.linear_head and not network.has_linear_head:
        raise SettingsError(
            f"algorithm {settings.algorithm.name} needs logits that are one linear map of the features, a single nn.Linear at "
            f"the end of the network; the head of model {settings.model.name} is another"
        )
    executor = factory.executor_name(network, device, settings.engine, model.family)
    few = data.prepare(data.test_inputs[:2].to("cpu"), next(network.parameters()).dtype)
    refuse_untrainable(network, few, data.outputs, executor)
    memory_layout = factory.image_layout(settings.engine, model.channels_last, device)
    objective = plugins.create(Objective, settings.objective)
    task = Task(
        network, data, objective, local, _augmentation(settings, data), device, dtype, hardware.autocast, memory_layout
    )
    wireless = _wireless(settings, network, Layout(network), data) if settings.costs.wireless else None
    task = on_fixed_features(task, settings, synthetic)
    data, layout, randomness = task.data, Layout(task.network), Randomness(settings.seed)
    algorithm.bind(Problem(layout, timeline.num_clients, data.num_classes, data.input_shape, randomness))
    w0, b0 = flatten(task.network, dtype, device)
    participation = plugins.create(Participation, settings.participation)
    participation.bind(timeline, labels, settings.seed)
    workers = Workers(task, settings.engine.workers)
    return Parts(
        settings=settings,
        timeline=timeline,
        hardware=hardware,
        data=data,
        labels=labels,
        algorithm=algorithm,
        initialiser=plugins.create(Initialiser, settings.initialiser),
        participation=participation,
        exchange=exchange,
        weighting=plugins.create(Weighting, settings.algorithm.weighting),
        network=network,
        task=task,
        layout=layout,
        w0=w0,
        b0=b0,
        workers=workers,
        executor=factory.make(task, workers, settings.engine, model.family),
        memory=MemoryStore(settings.federation.memory, device, hardware.scratch),
        synthetic=SyntheticSamples(data, labels, own),
        payload=payload(algorithm, layout.size, layout.buffer_size),
        wireless=wireless,
        randomness=randomness,
    )


def _refuse_unsuitable(settings: RunSettings, timeline: Timeline, data: Dataset, algorithm: Algorithm) -> None:
    name = settings.algorithm.name
    refuse_other_task(data, settings)
    refuse_other_clock(settings, algorithm)
    refuse_other_optimiser(settings, algorithm)
    if algorithm.synthetic_per_shard and data.kind == "text":
        raise SettingsError(f"algorithm {name} makes synthetic samples, but data {data.name} is text")
    if "validation" in settings.evaluation.splits and not len(timeline.validation):
        raise SettingsError(f"validation = {settings.validation:g}: evaluation.splits needs a share > 0 to evaluate on")
    if timeline.notes.get("stateless") and (algorithm.stateful or settings.local.keeps_momentum):
        what = f"algorithm {name}" if algorithm.stateful else "local.momentum_scope = client"
        raise SettingsError(
            f"{what} needs clients that remember; scenario {settings.scenario.name} has clients that do not"
        )


def _network(model: Model, seed: int, data: Dataset) -> Network:
    """The run's network; torch's initialisers draw from the global generator, so it is seeded and then restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key64(seed, "model") & (2**63 - 1))
        network = model.build(data.input_shape, data.outputs, data.vocabulary)
    _refuse_other_outputs(model, network, data)
    return network


def _refuse_other_outputs(model: Model, network: Any, data: Dataset) -> None:
    contract.instance(model, "build", network, Network)
    if not any(True for _ in network.parameters()):
        raise broken_contract(model, "build", "a network with parameters, got one without")
    few = data.test_inputs[:2].to("cpu")
    training = network.training
    try:
        with torch.no_grad():
            outputs = network.eval().outputs(data.prepare(few, next(network.parameters()).dtype))
    except RuntimeError as error:
        wanted = f"a network that takes samples {list(data.input_shape)}; {shortened(str(error))}"
        raise broken_contract(model, "build", wanted) from error
    network.train(training)
    shape, logits = [len(few), data.outputs], list(getattr(outputs.logits, "shape", ()))
    if logits != shape:
        raise broken_contract(model, "build", f"a network with logits {shape} for {len(few)} samples, got {logits}")


def _augmentation(settings: RunSettings, data: Dataset) -> Augmentation | None:
    local = settings.local
    if data.kind != "image" or (local.flip == 0 and local.crop == 0):
        return None
    augmentation = Augmentation(local.flip, local.crop, local.crop_probability, local.crop_padding)
    augmentation.check(data.input_shape)
    return augmentation


def _wireless(settings: RunSettings, network: Network, layout: Layout, data: Dataset) -> Wireless:
    costs, parameter = settings.costs, next(network.parameters())
    sample = data.prepare(data.test_inputs[:1].to(parameter.device), parameter.dtype)
    return Wireless(costs, settings.seed, layout.size, costs.phi or flops_per_parameter(network, sample))
