"""Which samples each client sees in each local step: a table of indices keyed by (seed, round, client)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.core.randomness import generators, keys64
from fedtide.settings.groups.local import LocalSettings

Classes = Callable[[Ints], Ints]  # classes of the training samples at some positions
EPOCHS = ("epochs", "mean_epochs")  # units of local work that are passes over a client's samples
_BETWEEN = 1181783497276652981  # an odd multiplier keeps the keys of a step's batches apart


@dataclass(frozen=True)
class BatchPlan:
    """Samples of a cohort of C clients over at most S steps of at most B samples.

    Attributes:
        indices: int64 [C, S, B], positions in the training set, 0 where unused.
        sizes: int64 [C, S] on the CPU, samples in each step, 0 past a client's last step.
        steps: local steps of each client. keys: int64 [C, S], of dropout and augmentation.
        batch: most samples whose gradient is computed at once; None: all of a step.
    """

    indices: Tensor
    sizes: Tensor
    steps: list[int]
    keys: Tensor
    batch: int | None = None

    def without(self, rows: Sequence[int]) -> BatchPlan:
        """The same plan, with no steps for some clients."""
        return self.until([0 if row in rows else count for row, count in enumerate(self.steps)])

    def until(self, steps: list[int]) -> BatchPlan:
        """The same plan, with fewer steps for some clients."""
        taken = torch.arange(self.sizes.shape[1]) < torch.tensor(steps, dtype=torch.int64).unsqueeze(1)
        return replace(self, sizes=self.sizes * taken, steps=steps)

    def to(self, device: torch.device) -> BatchPlan:
        """The same plan with its ``indices`` and ``keys`` on a device; the CPU does not wait for a GPU."""

        def place(tensor: Tensor) -> Tensor:
            return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

        return replace(self, indices=place(self.indices), keys=place(self.keys))

    @property
    def longest(self) -> int:
        return max(self.steps, default=0)


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


def _draw(
    flat: Ints, shard: Ints, stride: int, local: LocalSettings, classes: Classes, rng: np.random.Generator
) -> None:
    """Fill ``flat`` with repeated passes over a shard, one from every ``stride`` on; the last may be cut short."""
    probabilities = _balanced(classes(shard)) if local.order == "class_balanced" else None
    for start in range(0, len(flat), stride):
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
    lengths = [len(shard) for shard in shards]
    steps_of = {length: step_count(length, mean_size, local) for length in set(lengths)}
    steps = [steps_of[length] for length in lengths]
    spans, batch, longest = local.batches_span_epochs, local.step_samples, max(steps, default=0)
    width = batch if spans else min(batch, max(lengths, default=0))
    indices = np.zeros((len(shards), longest, width), dtype=np.int64)
    rngs = generators(seed, purpose, keys, clients)
    for row, shard, count, rng in zip(indices, shards, steps, rngs, strict=True):
        if count:
            stride = len(shard) if spans else -(-len(shard) // batch) * width  # a pass ends with a short batch
            _draw(row.reshape(-1)[: count * width], shard, stride, local, classes, rng)
    step, samples = np.arange(longest, dtype=np.int64), np.array(lengths, dtype=np.int64)[:, None]
    last = -(-samples // batch) - 1  # batch of a pass
    sizes = np.full((len(shards), longest), batch)
    if not spans:
        sizes = np.where(step % (last + 1).clip(min=1) == last, samples - last * batch, batch)
    sizes *= step < np.array(steps, dtype=np.int64)[:, None]
    odd = np.int64(2862933555777941757)  # a multiplier that keeps the keys of different steps apart
    with np.errstate(over="ignore"):
        step_keys = keys64(seed, f"{purpose}.samples", keys, clients)[:, None] + step * odd
    where, counts, drawn = map(torch.from_numpy, (indices, sizes, step_keys))
    return BatchPlan(where, counts, steps, drawn, local.batch_size).to(device)
