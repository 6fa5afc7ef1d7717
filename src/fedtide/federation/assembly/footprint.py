"""What is known of a run before its first round: the memory that it takes at least, by part, and what the log says of it.

Counted are vectors of models, rows of clients, batches and data. What the operations of a network need on their way is not:
a run that finds too little memory for that ends with a line that names the settings to lower.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, shortened
from fedtide.federation.assembly.hardware import MemoryStore
from fedtide.federation.features.attack import outnumbered
from fedtide.federation.features.kept_models import LAST_SERVED, LATEST
from fedtide.federation.rounds.plan import learning_rate
from fedtide.federation.scoring.client_samples import owners
from fedtide.federation.scoring.final_models import file_size
from fedtide.federation.types import Chosen, Parts
from fedtide.methods.algorithms.base import RunPreview, overrides
from fedtide.methods.initializers.base import Initializer
from fedtide.settings.run import Async, RunSettings
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.optimizers import optimizer
from fedtide.training.engine.plan import sample_count, step_count
from fedtide.training.resources.memory import available_bytes, outlined
from fedtide.training.resources.workers import available_cores
from fedtide.world.dataset import Dataset, resident_bytes
from fedtide.world.scenarios.base import Scenario
from fedtide.world.timeline import Timeline

_BLOCK = 4096  # bytes that the disk gives at a time


@dataclass(frozen=True)
class Part:
    """Bytes of one part of a run's memory, and what makes it smaller."""

    what: str
    size: int
    remedy: str


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
    settings, network = chosen.settings, outlined(chosen.model, data)
    layout, number, sample = Layout(network), dtype.itemsize, math.prod(data.input_shape)
    vector = number * (layout.size + layout.buffer_size)
    everything = sum(value.numel() for value in (*network.parameters(), *network.buffers()))
    constants = everything - layout.size - layout.buffer_size
    cohort = _cohort(chosen, timeline)
    samples, steps, width = _work(settings, timeline, cohort)
    workers = 1 if device.type != "cpu" else settings.engine.workers or available_cores()
    at_once = min(cohort, workers * (settings.engine.chunk or 1))  # chunks that the engine plans fit what is free
    kept = chosen.client_rows(layout)
    takes = [feature.memory(chosen, timeline, layout) for feature in chosen.features]
    once = _kept_once(chosen, timeline) + sum(memory.once for memory in takes)
    each = _per_participant(chosen, kept, layout.size) + sum(memory.each for memory in takes)
    added = sum(memory.samples for memory in takes)
    # Steps that are recorded have buffers of their own.
    recorded = each if device.type == "cuda" and not overrides(chosen.algorithm, "direction") else 0
    batches = Part(
        f"the batches of a round, {samples:,} samples in {steps:,} local steps of {cohort} clients",
        8 * (samples + 3 * steps),
        "lower local.epochs or local.steps, or lower the number of participants",
    )
    device_parts = [
        Part(
            f"{once + workers} copies of the model with {layout.size:,} parameters",
            (once + workers) * (vector + number * constants),
            "lower engine.workers, or choose a smaller model",
        ),
        Part(
            f"a cohort of {cohort} clients with {each:g} vectors of {layout.size:,} numbers each",
            int(cohort * each * vector),
            "lower the number of participants, or choose a smaller model",
        ),
        Part(
            f"local steps of {at_once} clients at once on {width} samples",
            int(at_once * (number * (layout.size + width * sample) + recorded * vector)),
            "lower local.batch_size, engine.workers or engine.chunk, or choose a smaller model",
        ),
        Part(
            "the data",
            resident_bytes(data, device, dtype, added),
            "choose a smaller dataset, or use a machine with more memory",
        ),
    ]
    return Footprint(
        device=[*device_parts, *([batches] if device.type != "cpu" else [])],
        host=[batches],
        kept=_kept(chosen, timeline, kept, cohort, number),
    )


def _kept_once(chosen: Chosen, timeline: Timeline) -> int:
    """Vectors that a run keeps once: its first model, the current and the next one, and those of what it has chosen."""
    mode = chosen.settings.mode
    under_way = min(mode.concurrency, _present(timeline)) if isinstance(mode, Async) else 0  # where each job started
    stores = type(chosen.initializer).keep is not Initializer.keep
    return 3 + len(chosen.algorithm.server) + 2 * stores * timeline.sessions + under_way


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
    if chosen.initializer.trains:
        return _present(timeline)
    if isinstance(chosen.settings.mode, Async):
        return chosen.algorithm.buffer
    return _expected_cohort(chosen, timeline)


def _expected_cohort(chosen: Chosen, timeline: Timeline) -> int:
    """Clients that a round of the run draws when most are present."""
    present = _present(timeline)
    return max(1, round(present * chosen.participation.participation_fraction(present)))


def _work(settings: RunSettings, timeline: Timeline, cohort: int) -> tuple[int, int, int]:
    """Samples and local steps of a round of the largest clients, and most samples of a step."""
    local, held = settings.local, np.array([len(shard) for shard in timeline.shards], dtype=np.int64)
    few = timeline.assignments[:1000]  # where there are more, their means are equal
    mean = max(float(held[item.shards].mean()) for item in few)
    sizes, clients = np.unique(np.sort(held)[-cohort:], return_counts=True)
    largest = list(zip(sizes.tolist(), clients.tolist(), strict=True))
    samples, steps = (
        max(
            sum(number * count(size, mean, work) for size, number in largest)
            for work in (local, local.with_work(settings.evaluation.finetune_steps, "steps"))
        )
        for count in (sample_count, step_count)
    )
    return samples, steps, local.step_samples if local.batches_span_epochs else min(local.step_samples, int(held.max()))


def _participants(parts: Parts) -> str:
    """How many clients train in a round of how many that are present, on average over the rounds, and how many there are."""
    timeline, fraction = parts.timeline, parts.participation.participation_fraction
    present = np.array([len(item.clients) for item in timeline.assignments])
    drawn = np.array([max(1.0, count * fraction(count)) for count in present.tolist()])
    rounds, everybody = timeline.assignment_of_round, timeline.num_clients
    at_once, there = (f"{count[rounds].mean():.1f}".removesuffix(".0") for count in (drawn, present))
    words = f"about {at_once} of {there} clients per round"
    return words if (present[rounds] == everybody).all() else f"{words} on average ({everybody} in all)"


def memory_plan(parts: Parts, wanted: Footprint) -> str:
    """The memory that a run needs, in one line."""
    mode, who = parts.settings.mode, _participants(parts)
    if isinstance(mode, Async):
        present = _present(parts.timeline)
        who = f"{min(mode.concurrency, present)} of {present} clients at once, results per update: {parts.algorithm.buffer}"
    kept = f"; models of clients, at the end on disk: at most {gigabytes(size)}" if (size := file_size(parts)) else ""
    return (
        f"{parts.layout.size:,} parameters; {who}; at least {gigabytes(wanted.run)} for the run, "
        f"{gigabytes(wanted.kept.size)} of client state on {parts.memory}{kept}; "
        f"executor {type(parts.executor).__name__.lower()}, workers: {parts.workers.count}"
    )


def advice(parts: Parts) -> list[str]:
    """What to know about settings and data: what has no effect, advice of algorithm and links."""
    timeline, local, initializer = parts.timeline, parts.settings.local, parts.initializer
    sizes = timeline.sizes_at(0)
    mean = float(sizes.mean())
    span = timeline.session_span(0)[1] if local.restart else timeline.rounds
    after_pilot = initializer.settings.post_pilot_start == "reset" and 0 < timeline.pilot < timeline.sessions
    starts_afresh = after_pilot or (initializer.fresh and timeline.sessions > timeline.pilot + 1)
    preview = RunPreview(
        lr=local.lr,
        last_lr=learning_rate(local, span - 1, span),
        steps=step_count(math.ceil(mean), mean, local),
        rounds=timeline.rounds,
        participation_fraction=parts.participation.participation_fraction(int((sizes > 0).sum())),
        smallest=float(sizes[sizes > 0].min()) / mean,
        fresh_starts=parts.settings.client_state.on_session_start == "keep" and starts_afresh,
        personalize=parts.settings.evaluation.finetune_steps,
        size=parts.layout.size,
    )
    return [
        *_unused_partition(parts.settings),
        *_unknown_owners(parts),
        *outnumbered(parts),
        *parts.algorithm.advice(preview),
        *(line for link in parts.links for line in link.advice(preview)),
    ]


def _unused_partition(chosen: RunSettings) -> list[str]:
    """A line if the scenario does not deal data with the partition."""
    used = plugins.create(Scenario, chosen.scenario).partition_settings()
    if used is None:
        return []
    rest = f" but for {', '.join(used)}" if used else ""
    return [
        f"partition {chosen.partition.name} has no effect{rest}: with these settings, scenario "
        f"{chosen.scenario.name} assigns the clients' data itself"
    ]


def _unknown_owners(parts: Parts) -> list[str]:
    """A line if scores per client are asked for that there are none of."""
    evaluation = parts.settings.evaluation
    split = evaluation.splits[0]
    of = owners(parts.evaluator, split)
    why = f"{split} samples have no client IDs" if of is None and parts.data.task != "classification" else ""
    if of is not None and not np.isin(parts.timeline.origin_of_client, of).any():
        why = f"no {split} sample is of a client with training samples; use data split by sample, not by client"
    if not evaluation.clients_every or not why:
        return []
    return [f"evaluation.clients_every = {evaluation.clients_every}: per-client scores are unavailable, since {why}"]
