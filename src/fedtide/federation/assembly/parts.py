"""The parts of one run, assembled once."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedtide.core.discovery.faults import broken_contract
from fedtide.core.errors import SettingsError, shortened
from fedtide.core.randomness import Randomness, key64
from fedtide.federation.assembly.choose import choose, refuse_unsuitable
from fedtide.federation.assembly.hardware import Hardware, MemoryStore
from fedtide.federation.features.attack import Attacking
from fedtide.federation.features.synthetic import SyntheticSamples
from fedtide.federation.scoring.evaluator import Evaluator
from fedtide.federation.types import Chosen, Parts
from fedtide.methods.algorithms.base import Problem
from fedtide.methods.costs.wireless import Wireless, flops_per_parameter
from fedtide.settings.run import RunSettings
from fedtide.training.engine import contract
from fedtide.training.engine.augment import Augmentation
from fedtide.training.engine.executors import factory
from fedtide.training.engine.flat import Layout, flatten
from fedtide.training.engine.passes.evaluation import features
from fedtide.training.engine.probe import mark_constants, refuse_untrainable
from fedtide.training.engine.task import Task
from fedtide.training.models.base import Model, Network
from fedtide.training.resources.workers import Workers
from fedtide.world.concepts import under
from fedtide.world.dataset import Dataset, Split
from fedtide.world.timeline import Timeline


def assembled(settings: RunSettings, timeline: Timeline, data: Dataset, hardware: Hardware | None = None) -> Parts:
    """The parts of a run with these settings, whatever memory it takes; as :func:`assemble`."""
    data = under(data, timeline.concepts)
    return assemble(choose(settings, timeline, data), timeline, data, hardware)


def assemble(chosen: Chosen, timeline: Timeline, data: Dataset, hardware: Hardware | None = None) -> Parts:
    """Assemble a run; by default on one CPU process in single precision. The data are moved to the device.

    Raises:
        SettingsError: parts are incompatible.
    """
    hardware, settings, algorithm = hardware or Hardware(), chosen.settings, chosen.algorithm
    refuse_unsuitable(chosen, timeline, data)
    attack = chosen.feature(Attacking)
    data = data if attack is None else attack.attackers.poisoned_data(data)
    samples = chosen.feature(SyntheticSamples)
    synthetic = 0 if samples is None else samples.capacity(timeline)
    data = data.resident(hardware.device, hardware.dtype).with_capacity(synthetic)
    build, network = partial(_built, chosen, data), _network(chosen, data)
    task = _task(chosen, network, data, hardware)
    wireless = _wireless(settings, network, Layout(network), data) if settings.costs.wireless else None
    repainted = attack is not None and attack.attackers.attack.repaints  # which is tested on others
    if task.network.has_fixed_features and not repainted:
        task = on_fixed_features(task, settings, synthetic)
    data, layout, randomness = task.data, Layout(task.network, hardware.device), Randomness(settings.seed)
    whole = task.network is network
    drawn = _Drawn(
        lambda number: flatten(_part(build("models", number), whole), hardware.dtype, hardware.device)[0], settings
    )
    sizes = timeline.num_clients, data.num_classes, data.input_shape
    algorithm.bind(Problem(layout, *sizes, randomness, drawn, timeline.rounds, timeline.concepts.maps))
    w0, b0 = flatten(task.network, hardware.dtype, hardware.device)
    workers = Workers(task, settings.engine.workers)
    parts = Parts(
        **vars(chosen),
        timeline=timeline,
        hardware=hardware,
        data=data,
        network=network,
        task=task,
        layout=layout,
        w0=w0,
        b0=b0,
        workers=workers,
        executor=factory.make(task, workers, settings.engine, chosen.model.family),
        evaluator=Evaluator(settings.evaluation, timeline, data, workers, randomness),
        memory=MemoryStore(settings.client_state.storage, hardware.device, hardware.scratch),
        wireless=wireless,
        randomness=randomness,
    )
    for feature in parts.features:
        feature.bind(parts)
    return parts


def _network(chosen: Chosen, data: Dataset) -> Network:
    """The run's network."""
    model, settings, network = chosen.model, chosen.settings, _built(chosen, data, "model")
    _refuse_other_outputs(model, network, data)
    mark_constants(network, data)
    if "linear_head" in chosen.algorithm.needs and not network.has_linear_head:
        raise SettingsError(
            f"algorithm {settings.algorithm.name} requires a single final nn.Linear; model {settings.model.name} has "
            "a different head"
        )
    if "body" in chosen.algorithm.needs and Layout(network).mask("head").all():
        raise SettingsError(
            f"algorithm {settings.algorithm.name} trains the last layer of a model separately; model "
            f"{settings.model.name} has no other layers, use one like mlp"
        )
    return network


def _built(chosen: Chosen, data: Dataset, purpose: str, *keys: int) -> Network:
    """A network; torch's initializers draw from the global generator, so it is seeded and then restored."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key64(chosen.settings.seed, purpose, *keys) & (2**63 - 1))
        return chosen.model.build(data.input_shape, data.outputs, data.vocabulary)


def _task(chosen: Chosen, network: Network, data: Dataset, hardware: Hardware) -> Task:
    settings, model, device = chosen.settings, chosen.model, hardware.device
    executor = factory.executor_name(network, device, settings.engine, model.family)
    few = data.prepare(data.read("test", slice(2))[0].to("cpu"), next(network.parameters()).dtype)
    refuse_untrainable(network, few, data.outputs, executor)
    return Task(
        network=network,
        data=data,
        objective=chosen.objective,
        local=settings.local,
        augmentation=_augmentation(settings, data),
        device=device,
        dtype=hardware.dtype,
        autocast=hardware.autocast,
        layout=factory.image_layout(settings.engine, model.channels_last, device),
    )


def _refuse_other_outputs(model: Model, network: Any, data: Dataset) -> None:
    contract.instance(model, "build", network, Network)
    if not any(True for _ in network.parameters()):
        raise broken_contract(model, "build", "a network with parameters, got one without")
    few = data.read("test", slice(2))[0].to("cpu")
    training = network.training
    try:
        with torch.no_grad():
            outputs = network.eval().outputs(data.prepare(few, next(network.parameters()).dtype))
    except RuntimeError as error:
        wanted = f"a network for samples of shape {list(data.input_shape)}; {shortened(str(error))}"
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
    sample = data.prepare(data.read("test", slice(1))[0].to(parameter.device), parameter.dtype)
    return Wireless(costs, settings.seed, layout.size, costs.phi or flops_per_parameter(network, sample))


class _Drawn:
    """An initialization of the network by number; a trace that depends on it depends on the model's settings and the seed."""

    def __init__(self, draw: Callable[[int], Tensor], settings: RunSettings) -> None:
        self._draw, self.trace_key = draw, (settings.model.canonical(), settings.seed)

    def __call__(self, number: int) -> Tensor:
        return self._draw(number)


def _part(network: Network, whole: bool) -> Network:
    return network if whole else HeadAlone(network)


class HeadAlone(Network):
    """The head of a network, on its features."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.head, self.constants = copy.deepcopy(network.head), network.constants

    def features(self, inputs: Tensor) -> Tensor:
        return inputs

    def contrast(self, features: Tensor, logits: Tensor) -> Tensor:
        return logits


def on_fixed_features(task: Task, settings: RunSettings, synthetic: int) -> Task:
    """The same problem with the network's fixed features as the data, if these are the same in all rounds, else the task.

    The ``synthetic`` samples that the algorithm adds have no features yet.
    """
    if task.augmentation is not None or synthetic:
        return task
    w, b = flatten(task.network, task.dtype, task.device)
    workers = Workers(task, settings.engine.workers)
    splits: tuple[Split, ...] = ("train", "test")
    train, test = (
        features(workers, w, b, task.data.read(split, slice(None))[0], settings.evaluation.batch_size)
        for split in splits
    )
    workers.close()
    return replace(task, network=HeadAlone(task.network), data=task.data.with_features(train, test))
