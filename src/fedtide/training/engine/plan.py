"""Which samples each client sees in each local step: a table of positions keyed by (seed, round, client).

The table is flat, one step after the other, so its size is that of the samples, however unequal the clients are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.core.randomness import generators, keys64
from fedtide.settings.groups.local import LocalSettings

Classes = Callable[[Ints], Ints]  # classes of the training samples at some positions
EPOCHS = ("epochs", "mean_epochs")  # units of local work that are passes over a client's samples
_BETWEEN = 1181783497276652981  # an odd multiplier keeps the keys of a step's batches apart


class Window(NamedTuple):
    """Consecutive local steps of some clients, side by side: K steps of c clients, of at most B samples.

    Attributes:
        indices: int64 [c, K, B], positions in the training set, 0 where unused.
        sizes: int64 [c, K], samples in each step, 0 past a client's last step. keys: int64 [c, K].
        full: of each step, whether all clients have B samples.
    """

    indices: Tensor
    sizes: Tensor
    keys: Tensor
    full: list[bool]


@dataclass(frozen=True)
class BatchPlan:
    """Samples of a cohort of C clients: N in T local steps, client by client and step by step.

    Attributes:
        samples: int64 [N], positions in the training set. keys: int64 [T], of dropout and augmentation.
        bounds: [T + 1], where the samples of each step begin, and where the last ones end; on the CPU, as what follows.
        first: [C + 1], where the steps of each client begin, and where the last one's end.
        steps: local steps that each client takes, at most those planned.
        batch: most samples whose gradient is computed at once; None: all of a step.
    """

    samples: Tensor
    keys: Tensor
    bounds: Ints
    first: Ints
    steps: list[int]
    batch: int | None = None

    def without(self, rows: Sequence[int]) -> BatchPlan:
        """The same plan, with no steps for some clients."""
        return self.until([0 if row in rows else count for row, count in enumerate(self.steps)])

    def until(self, steps: list[int]) -> BatchPlan:
        """The same plan, with fewer steps for some clients."""
        return replace(self, steps=steps)

    def to(self, device: torch.device) -> BatchPlan:
        """The same plan with its ``samples`` and ``keys`` on a device; the CPU does not wait for a GPU."""
        return replace(self, samples=_placed(self.samples, device), keys=_placed(self.keys, device))

    @property
    def longest(self) -> int:
        return max(self.steps, default=0)

    @cached_property
    def planned(self) -> Ints:
        """Local steps of each client before some were taken from it, [C]."""
        return np.diff(self.first)

    @cached_property
    def width(self) -> int:
        """Most samples of a planned step."""
        return int(np.diff(self.bounds).max(initial=0))

    def of(self, row: int) -> tuple[Tensor, list[int]]:
        """The samples of all steps that a client takes, int64 [n], and how many each step has."""
        first = self.first[row]
        bounds = self.bounds[first : first + self.steps[row] + 1]
        return self.samples[bounds[0] : bounds[-1]], np.diff(bounds).tolist()

    def window(self, rows: slice, steps: range) -> Window:
        """Some steps of some clients."""
        device, step = self.samples.device, np.arange(steps.start, steps.stop)
        taken = step < np.array(self.steps[rows], dtype=np.int64)[:, None]
        places = np.where(taken, self.first[:-1][rows, None] + step, 0)
        begins, ends = self.bounds[places], self.bounds[places + 1]
        counts = (ends - begins) * taken
        columns = torch.arange(self.width, device=device)
        start, sizes, where = (_placed(torch.from_numpy(part), device) for part in (begins, counts, places))
        real = columns < sizes.unsqueeze(-1)
        found = self.samples[torch.where(real, start.unsqueeze(-1) + columns, 0)]
        return Window(found * real, sizes, self.keys[where], (counts == self.width).all(0).tolist())


def _placed(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def batches_of(samples: int, most: int | None) -> list[tuple[slice, int]]:
    """The batches, of at most ``most`` samples, of a local step on so many, and what to add to the step's key for each."""
    starts = range(0, samples, most or samples)
    return [(slice(at, min(at + starts.step, samples)), _BETWEEN * number) for number, at in enumerate(starts)]


def step_count(size: int, mean_size: float, local: LocalSettings) -> int:
    """Local steps of a client with ``size`` samples when the average client has ``mean_size``."""
    if size == 0:
        return 0
    if local.unit == "steps":
        return local.amount
    if local.batches_span_epochs:
        samples = mean_size if local.unit == "mean_epochs" else size
        return max(1, int(local.amount * samples / min(local.step_samples, samples)))
    batches = -(-size // local.step_samples)
    if local.unit == "capped_steps":
        return min(local.amount, batches)
    if local.unit == "mean_epochs":
        return local.amount * int(np.ceil(mean_size / local.step_samples))
    return local.amount * batches


def sample_count(size: int, mean_size: float, local: LocalSettings) -> int:
    """Samples in the batches of all local steps of a client; arguments as in :func:`step_count`."""
    steps = step_count(size, mean_size, local)
    if local.batches_span_epochs or steps == 0:
        return steps * local.step_samples
    passes, rest = divmod(steps, -(-size // local.step_samples))
    return passes * size + rest * local.step_samples


def _balanced(labels: Ints) -> Floats:
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    probabilities: Floats = 1.0 / (len(counts) * counts[classes])
    return probabilities


def _draw(flat: Ints, shard: Ints, local: LocalSettings, classes: Classes, rng: np.random.Generator) -> None:
    """Fill ``flat`` with repeated passes over a shard; the last may be cut short."""
    probabilities = _balanced(classes(shard)) if local.order == "class_balanced" else None
    for start in range(0, len(flat), len(shard)):
        order = shard
        if local.order == "shuffled":
            order = rng.permutation(shard)
        elif local.order == "class_balanced":
            order = rng.choice(shard, len(shard), p=probabilities)
        part = flat[start : start + len(shard)]
        part[:] = order[: len(part)]


def plan_batches(
    shards: Sequence[Ints],
    clients: Sequence[int],
    local: LocalSettings,
    mean_size: float,
    seed: int,
    purpose: str,
    keys: tuple[int, ...],
    device: torch.device,
    classes: Classes,
) -> BatchPlan:
    """The plan of one round.

    Args:
        shards, clients: positions in the training set, and ids; a client's draw is keyed by (seed, purpose, keys, id).
        mean_size: mean number of samples per client of the population.
        purpose, keys: ``"batches"`` and the round number in training; other values for other training.
        classes: of samples, for ``local.order = class_balanced``.
    """
    lengths = np.array([len(shard) for shard in shards], dtype=np.int64)
    work_of = {
        length: (step_count(length, mean_size, local), sample_count(length, mean_size, local))
        for length in set(lengths.tolist())
    }
    planned, counts = np.array([work_of[length] for length in lengths.tolist()], dtype=np.int64).reshape(-1, 2).T
    samples = np.empty(counts.sum(), dtype=np.int64)
    rngs = generators(seed, purpose, keys, clients)
    for end, count, shard, rng in zip(counts.cumsum(), counts, shards, rngs, strict=True):
        if count:
            _draw(samples[end - count : end], shard, local, classes, rng)
    first, batch = np.append(0, planned.cumsum()), local.step_samples
    step = np.arange(first[-1]) - np.repeat(first[:-1], planned)  # of its client
    sizes = np.full(len(step), batch)
    if not local.batches_span_epochs:
        last = -(-lengths // batch) - 1  # batch of a pass
        ends = step % np.repeat(last + 1, planned) == np.repeat(last, planned)
        sizes[ends] = np.repeat(lengths - last * batch, planned)[ends]
    odd = np.int64(2862933555777941757)  # a multiplier that keeps the keys of different steps apart
    with np.errstate(over="ignore"):
        drawn = np.repeat(keys64(seed, f"{purpose}.samples", keys, clients), planned) + step * odd
    bounds = np.append(0, sizes.cumsum())
    where, step_keys = map(torch.from_numpy, (samples, drawn))
    return BatchPlan(where, step_keys, bounds, first, planned.tolist(), local.batch_size).to(device)
