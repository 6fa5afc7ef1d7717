"""The memory that a run will take, by part, before anything large is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from fedtide.accounting.cohorts import cohorts
from fedtide.core.errors import SettingsError
from fedtide.engine.executors.factory import executor_name
from fedtide.engine.flat import Layout
from fedtide.engine.memory import available_bytes, chunk_size
from fedtide.engine.optimisers import optimiser
from fedtide.engine.passes.curvature import FLOATS
from fedtide.engine.plan import step_count
from fedtide.engine.size import Size, measure
from fedtide.engine.task import TINY
from fedtide.engine.workers import available_cores
from fedtide.federation.features.kept_models import LAST_SERVED, LATEST
from fedtide.federation.features.synthetic import capacity
from fedtide.federation.saving.memory import MemoryStore
from fedtide.federation.types import Chosen
from fedtide.initialisation.base import Initialiser
from fedtide.settings.clock import Events
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset, resident_bytes
from fedtide.world.timeline import Timeline

_ROWS, _ROWS_PER_MEMORY = 2.5, 7
"""Vectors of a participant that are alive at once: of its model, with the last round's until they are collected; and for each
of its memories, as read, as added to the gradient, and in the algebra of ``finish`` (peaks of nine algorithms, measured)."""

_BLOCK = 4096  # bytes that the disk gives at a time
_FIRST, _SECOND, _SAMPLES = 2, 5, 3
"""Numbers per activation that a full gradient keeps for its backward pass, and a Hessian-vector product for two of them; copies
of per-sample gradients (measured)."""

_LAYERS = 1.5  # input and output of the widest layer, with the working memory of its operation (measured)


@dataclass(frozen=True)
class Part:
    """Bytes of one part of a run's memory, and what makes it smaller."""

    what: str
    size: int
    remedy: str


@dataclass(frozen=True)
class Footprint:
    """The memory that a run takes in addition to its loaded data.

    ``device`` is on the training device, the host of a run on a CPU; ``host`` beside it; ``kept`` for the clients' memories.
    """

    device: list[Part]
    host: list[Part]
    kept: Part

    @property
    def run(self) -> int:
        """Bytes of all parts but the clients' memories."""
        return sum(part.size for part in (*self.device, *self.host))

    def refuse_excess(self, device: torch.device, memory: MemoryStore) -> None:
        """Refuse a run that does not fit into what is available; names the largest part and what makes it smaller."""
        places = {device: list(self.device)}
        places.setdefault(torch.device("cpu"), []).extend(self.host)
        if memory.on_disk:
            memory.require(self.kept.size, self.kept.what)
        else:
            places.setdefault(memory.device, []).append(self.kept)
        for place, parts in places.items():
            wanted, free = sum(part.size for part in parts), available_bytes(place)
            if wanted > free:
                largest = max(parts, key=lambda part: part.size)
                raise SettingsError(
                    f"the run needs {gigabytes(wanted)} of memory on {place}, but {gigabytes(free)} are available; "
                    f"largest part: {largest.what}, {gigabytes(largest.size)}; {largest.remedy}"
                )


def gigabytes(size: int) -> str:
    """A number of bytes, rounded."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def footprint(chosen: Chosen, timeline: Timeline, data: Dataset, device: torch.device, dtype: torch.dtype) -> Footprint:
    """The memory of a run on loaded data."""
    settings, algorithm, initialiser = chosen.settings, chosen.algorithm, chosen.initialiser
    local, engine, number = settings.local, settings.engine, dtype.itemsize
    size = measure(chosen.model, data)
    workers = 1 if device.type != "cpu" else engine.workers or available_cores()
    executor = executor_name(size.network, device, engine, chosen.model.family)
    vector = number * (size.parameters + size.buffers)
    cohort = _cohort(chosen, timeline)
    steps, width = _work(settings, timeline)
    batch, sample = min(width, local.batch_size), math.prod(data.input_shape)
    at_once = min(cohort, workers)
    if executor == "stacked":
        lanes = workers if size.parameters <= TINY else 1
        chunk = engine.chunk or chunk_size(size.parameters, cohort, width, sample, number, device, lanes)
        at_once = min(cohort, chunk * workers)
    layout = Layout(size.network)
    kept = chosen.client_rows(layout)
    rows_kept = timeline.num_clients * number * sum(kept.values())
    if settings.federation.memory == "disk" and LATEST not in kept:  # a row takes space once it is written
        seen = min(timeline.num_clients, cohort * timeline.rounds)
        rows_kept = min(rows_kept, seen * sum(number * numbers + _BLOCK for numbers in kept.values()))
    separate = (
        [numbers for name, numbers in kept.items() if name not in (LATEST, LAST_SERVED)] if initialiser.trains else []
    )
    rows = _ROWS + _ROWS_PER_MEMORY * sum(kept[name] for name in algorithm.client) / layout.size
    rows += 2 * algorithm.has_phases  # where a phase starts, and the models of the phase before
    rows += len(optimiser(local).vectors)
    if chosen.links:  # what arrives besides what was trained, and what links keep
        rows += 1 + sum(link.width(name, layout.size) for link in chosen.links for name in link.memory) / layout.size
    rows += bool(algorithm.server) + algorithm.gradients
    rows += (settings.aggregation.name != "mean") + (chosen.attackers is not None)  # updates, and what is sent instead
    response = getattr(settings.detector, "response", "none")
    models = 2 * workers + 6 + len(algorithm.server) + (response == "reset_model")
    models += 4 if timeline.sessions > 1 or response == "start_session" else 0
    models += 3 * (settings.downlink is not None)  # the clients' copy, what it lacks and what is sent of it
    if type(initialiser).keep is not Initialiser.keep:
        models += 2 * timeline.sessions
    if isinstance(settings.clock, Events):
        models += min(settings.clock.concurrency, _present(timeline))  # each job under way starts from another one
        rows += 1  # and so may each of those that an update is made of
    plan = Part(
        f"the batches of a round, {cohort} clients x {steps} local steps x {width} samples",
        cohort * steps * 8 * (width + 3),
        "lower local.amount, or let fewer clients take part",
    )
    before = sum(link.vectors(partial(cohorts, chosen.participation, timeline, settings.seed)) for link in chosen.links)
    noise = Part(
        f"noise of earlier rounds, {before} vectors of {size.parameters:,} numbers each",
        2 * 8 * before * size.parameters,  # float64, and anew in every round
        "give uplink.noise fewer bands or decays, or choose a smaller model",
    )
    moved = device.type != "cpu"
    each = 2 + (algorithm.gradients_per_step if algorithm.has_direction else 0)  # a step keeps its gradients apart
    copies = 0 if chosen.attackers is None else len(chosen.attackers.repainted)
    added = capacity(timeline, algorithm.synthetic_per_shard) + copies
    copied = (len(data.train_inputs) + copies) * sample * data.train_inputs.element_size()
    return Footprint(
        device=[
            Part(
                f"{models} copies of the model with {size.parameters:,} parameters",
                models * (vector + number * size.constants),
                _smaller("engine.workers"),
            ),
            Part(
                f"a cohort of {cohort} clients with about {rows:g} vectors of {size.parameters:,} numbers each",
                int(cohort * rows * vector),
                "let fewer clients take part, or choose a smaller model",
            ),
            Part(
                f"local steps of {at_once} clients at once on {batch} samples",
                at_once * number * (each * size.parameters + 2 * batch * size.activations + (width - batch) * sample),
                _smaller("local.batch_size", "engine.chunk" if executor == "stacked" else "engine.workers"),
            ),
            _evaluation(chosen, timeline, data, size, workers, number),
            *([_gradients(chosen, timeline, size, min(cohort, workers), number)] if algorithm.gradients else []),
            *([plan] if moved else []),
            *([noise] if before else []),
            Part(
                "the data",
                resident_bytes(data, device, dtype, added),
                "choose a smaller dataset, or run it where there is more memory",
            ),
        ],
        host=[
            plan,
            *([Part(f"the data with {copies} poisoned samples", copied, "lower attack.poisoned")] if copies else []),
        ],
        kept=Part(
            f"federation.memory: {', '.join(kept)} of {timeline.num_clients} clients",
            rows_kept + timeline.num_clients * number * sum(separate),
            "set federation.memory: disk" if settings.federation.memory != "disk" else "free some of it",
        ),
    )


def _smaller(*keys: str) -> str:
    return f"lower {' or '.join(keys)}, or choose a smaller model"


def _present(timeline: Timeline) -> int:
    """Most clients that are present in a round."""
    return max(len(item.clients) for item in timeline.assignments)


def _cohort(chosen: Chosen, timeline: Timeline) -> int:
    """Most clients that train in a round."""
    present = _present(timeline)
    if chosen.initialiser.trains:
        return present
    if isinstance(chosen.settings.clock, Events):
        return chosen.algorithm.buffer
    return max(1, round(present * chosen.participation.participation_fraction(present)))


def _work(settings: RunSettings, timeline: Timeline) -> tuple[int, int]:
    """Most local steps of a client in a round, and most samples of a step."""
    local = settings.local
    held = np.array([len(shard) for shard in timeline.shards])
    largest = int(held.max(initial=0))
    means = [
        float(held[item.shards].mean()) for item in timeline.assignments[:1000]
    ]  # where there are more, it is constant
    steps = max(step_count(largest, mean, local) for mean in means)
    width = local.step_samples if local.straddle else min(local.step_samples, largest)
    return max(steps, settings.evaluation.personalise), width


def _gradients(chosen: Chosen, timeline: Timeline, size: Size, at_once: int, number: int) -> Part:
    """Backward passes over all samples of some clients at once, which keep a batch's activations."""
    evaluation, curvature = chosen.settings.evaluation, chosen.algorithm.curvature
    largest = max(map(len, timeline.shards), default=0)
    batch = min(evaluation.batch_size, largest)
    numbers = 2 * size.parameters + _FIRST * batch * size.activations
    if curvature:
        of_samples = _SAMPLES * min(FLOATS, largest * size.parameters)
        numbers = 4 * size.parameters + max(_SECOND * batch * size.activations, numbers, of_samples)
    what = "gradients and curvature" if curvature else "full gradients"
    return Part(
        f"{what} of {at_once} clients at once on {batch} samples",
        at_once * number * numbers,
        _smaller("evaluation.batch_size", "engine.workers"),
    )


def _evaluation(chosen: Chosen, timeline: Timeline, data: Dataset, size: Size, workers: int, number: int) -> Part:
    """Batches in evaluation mode, and the samples that are gathered for it."""
    evaluation, sample = chosen.settings.evaluation, math.prod(data.input_shape)
    batch = min(evaluation.batch_size, max(data.size("test"), len(timeline.validation)))
    batches = min(workers, -(-max(data.size("test"), 1) // evaluation.batch_size))
    if chosen.algorithm.early_stop is not None:  # every worker with a client of its own
        held = min(evaluation.batch_size, max(map(len, timeline.shards), default=0))
        batch, batches = max(batch, held), max(batches, min(workers, _cohort(chosen, timeline)))
    gathered = len(timeline.validation) if "validation" in evaluation.splits else 0
    if evaluation.consistency or (evaluation.boundary_losses and timeline.sessions > 1):
        gathered = max(gathered, sum(map(len, timeline.shards_at(0))))
    if chosen.attackers is not None and chosen.attackers.attack.repaints:  # before and after they are changed
        gathered = max(gathered, 2 * batches * batch)
    wanted = number * (int(_LAYERS * batches * batch * (size.widest + sample)) + gathered * sample)
    return Part(f"evaluation, {batches} times {batch} samples at once", wanted, _smaller("evaluation.batch_size"))
