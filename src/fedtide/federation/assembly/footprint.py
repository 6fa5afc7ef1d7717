"""The memory that a run takes at least, by part, from sizes that are known before anything large is allocated.

Counted are vectors of models, rows of clients, batches and data. What the operations of a network need on their way is not:
a run that finds too little memory for that ends with a line that names the settings to lower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from fedtide.core.errors import SettingsError, shortened
from fedtide.federation.features.kept_models import LAST_SERVED, LATEST
from fedtide.federation.saving.memory import MemoryStore
from fedtide.federation.types import Chosen, Part
from fedtide.methods.algorithms.base import overrides
from fedtide.methods.initializers.base import Initializer
from fedtide.settings.run import Async, RunSettings
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.optimizers import optimizer
from fedtide.training.engine.plan import step_count
from fedtide.training.resources.memory import available_bytes, measure
from fedtide.training.resources.workers import available_cores
from fedtide.world.dataset import Dataset, resident_bytes
from fedtide.world.timeline import Timeline

_BLOCK = 4096  # bytes that the disk gives at a time


@dataclass(frozen=True)
class Footprint:
    """The memory that a run takes at least, in addition to its loaded data.

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


@contextmanager
def naming_exhaustion(what: str) -> Iterator[None]:
    """Memory that runs out is a MemoryError that says in what, and which settings to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise MemoryError(
            f"{what} ran out of memory: lower local.batch_size, evaluation.batch_size or engine.workers (with executor "
            f"stacked, engine.chunk), or choose a smaller model ({shortened(str(error))})"
        ) from error


def gigabytes(size: int) -> str:
    """A number of bytes, rounded."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def footprint(chosen: Chosen, timeline: Timeline, data: Dataset, device: torch.device, dtype: torch.dtype) -> Footprint:
    """The memory of a run on loaded data."""
    settings, algorithm, size = chosen.settings, chosen.algorithm, measure(chosen.model, data)
    number, sample = dtype.itemsize, math.prod(data.input_shape)
    vector = number * (size.parameters + size.buffers)
    cohort, present = _cohort(chosen, timeline), _present(timeline)
    steps, width = _work(settings, timeline)
    workers = 1 if device.type != "cpu" else settings.engine.workers or available_cores()
    at_once = min(cohort, workers * (settings.engine.chunk or 1))  # chunks that the engine plans fit what is free
    layout = Layout(size.network)
    kept = chosen.client_rows(layout)
    takes = [feature.memory(chosen, timeline, layout) for feature in chosen.features]
    others = [part for memory in takes for part in memory.others]
    once = _kept_once(chosen, timeline, present) + sum(memory.once for memory in takes)
    each = _per_participant(chosen, kept, layout.size) + sum(memory.each for memory in takes)
    gradients = 1 + (max(map(algorithm.gradients_in, range(4))) if overrides(algorithm, "direction") else 0)
    copies = 0 if chosen.attackers is None else len(chosen.attackers.repainted)
    added = sum(memory.samples for memory in takes) + copies
    batches = Part(
        f"the batches of a round, {cohort} clients x {steps} local steps x {width} samples",
        cohort * steps * 8 * (width + 3),
        "lower local.epochs or local.steps, or lower the number of participants",
    )
    device_parts = [
        Part(
            f"{once + workers} copies of the model with {size.parameters:,} parameters",
            (once + workers) * (vector + number * size.constants),
            "lower engine.workers, or choose a smaller model",
        ),
        Part(
            f"a cohort of {cohort} clients with {each:g} vectors of {size.parameters:,} numbers each",
            int(cohort * each * vector),
            "lower the number of participants, or choose a smaller model",
        ),
        Part(
            f"local steps of {at_once} clients at once on {width} samples",
            at_once * number * (gradients * size.parameters + width * sample),
            "lower local.batch_size, engine.workers or engine.chunk, or choose a smaller model",
        ),
        Part(
            "the data",
            resident_bytes(data, device, dtype, added) + number * sample * _gathered(chosen, timeline),
            "choose a smaller dataset, or use a machine with more memory",
        ),
    ]
    poisoned = Part(
        f"the data with {copies} poisoned samples",
        (len(data.train_inputs) + copies) * sample * data.train_inputs.element_size(),
        "lower attack.poisoned",
    )
    return Footprint(
        device=[*device_parts, *others, *([batches] if device.type != "cpu" else [])],
        host=[batches, *([poisoned] if copies else [])],
        kept=_kept(chosen, timeline, kept, cohort, number),
    )


def _kept_once(chosen: Chosen, timeline: Timeline, present: int) -> int:
    """Vectors that a run keeps once: its first model, the current and the next one, and those of what it has chosen."""
    mode = chosen.settings.mode
    stores = type(chosen.initializer).keep is not Initializer.keep
    return (
        3
        + len(chosen.algorithm.server)
        + 2 * stores * timeline.sessions
        + (min(mode.concurrency, present) if isinstance(mode, Async) else 0)  # where each job under way started
    )


def _per_participant(chosen: Chosen, kept: dict[str, int], size: int) -> float:
    """Vectors of each participant: its model, what is kept for it, and those of algorithm, optimizer and clock."""
    algorithm, used = chosen.algorithm, optimizer(chosen.settings.local)
    own = kept.keys() - {LATEST, LAST_SERVED} - used.widths(size).keys()
    return (
        1
        + sum(kept[name] for name in own) / size
        + 2 * overrides(algorithm, "phases")  # where a phase starts, and the models of the phase before
        + len(used.vectors)
        + isinstance(chosen.settings.mode, Async)  # a start of its own
    )


def _kept(chosen: Chosen, timeline: Timeline, kept: dict[str, int], cohort: int, number: int) -> Part:
    """The clients' memories, and those of an initializer that trains, which are kept apart."""
    clients, on_disk = timeline.num_clients, chosen.settings.client_state.storage == "disk"
    size = clients * number * sum(kept.values())
    if on_disk and LATEST not in kept:  # a row takes space once it is written
        seen = min(clients, cohort * timeline.rounds)
        size = min(size, seen * sum(number * numbers + _BLOCK for numbers in kept.values()))
    if chosen.initializer.trains:
        size += clients * number * sum(kept[name] for name in kept.keys() - {LATEST, LAST_SERVED})
    return Part(
        f"client_state.storage: {', '.join(kept)} of {clients} clients",
        size,
        "free some memory" if on_disk else "set client_state.storage: disk",
    )


def _present(timeline: Timeline) -> int:
    """Most clients that are present in a round."""
    return max(len(item.clients) for item in timeline.assignments)


def _cohort(chosen: Chosen, timeline: Timeline) -> int:
    """Most clients that train in a round."""
    present = _present(timeline)
    if chosen.initializer.trains:
        return present
    if isinstance(chosen.settings.mode, Async):
        return chosen.algorithm.buffer
    return max(1, round(present * chosen.participation.participation_fraction(present)))


def _work(settings: RunSettings, timeline: Timeline) -> tuple[int, int]:
    """Most local steps of a client in a round, and most samples of a step."""
    local = settings.local
    held = np.array([len(shard) for shard in timeline.shards])
    largest = int(held.max(initial=0))
    few = timeline.assignments[:1000]  # where there are more, their means are equal
    steps = max(step_count(largest, float(held[item.shards].mean()), local) for item in few)
    width = local.step_samples if local.batches_span_epochs else min(local.step_samples, largest)
    return max(steps, settings.evaluation.finetune_steps), width


def _gathered(chosen: Chosen, timeline: Timeline) -> int:
    """Most samples that are gathered to be evaluated on, besides the test samples."""
    evaluation = chosen.settings.evaluation
    validation = len(timeline.validation) if "validation" in evaluation.splits else 0
    everybody = evaluation.consistency or (evaluation.session_start_losses and timeline.sessions > 1)
    return max(validation, sum(map(len, timeline.shards_at(0))) if everybody else 0)
