"""What a partition plug-in provides: labels in, one array of positions per client out; and the steps that partitions share."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Plugin
from fedtide.world.dataset import Samples
from fedtide.world.timeline import Timeline

NEGLIGIBLE = 1e-12  # mass on the remaining classes below which a prior is ignored

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Dealt:
    """What each client holds, and JSON-able ``notes``.

    Attributes:
        shards: one int64 array of positions per client, ascending.
        origins: int64 [clients], number of each client in the data; empty if clients are not those of the data.
    """

    shards: list[Ints]
    origins: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    notes: Mapping[str, Any] = field(default_factory=dict)


class Partition(Plugin):
    """Deals samples to clients.

    ``scope`` is what one call covers if the population consists of groups (scenario ``sessions``): rules of scope ``group``
    deal each group's labels, rules of scope ``population`` deal to all clients at once; groups are consecutive clients.
    """

    kind: ClassVar[str] = "partitions"

    scope: ClassVar[Literal["group", "population"]] = "group"

    @property
    def needs_classes(self) -> bool:
        return True  # most rules deal by label

    @abstractmethod
    def deal(self, labels: Ints, num_clients: int, num_classes: int, seed: int, group: int = 0) -> list[Ints]:
        """Deal all samples (or those that the rule uses) to ``num_clients`` clients.

        Args:
            labels: int64 [n] labels of the samples; not all of 0..num_classes-1 need occur.
            num_clients, num_classes: their numbers.
            seed, group: every draw uses ``generator(seed, "partition.<purpose>", group, ...)``.

        Returns:
            One int64 array of positions into ``labels`` per client.

        Raises:
            SettingsError: the request is impossible; raised before drawing, with the largest feasible value.
        """

    def assign(self, samples: Samples, num_clients: int | None, num_classes: int, seed: int, group: int = 0) -> Dealt:
        """:meth:`deal` for samples; a partition by the data's clients overrides it, and may have no number of clients."""
        if num_clients is None:
            raise SettingsError(
                f"scenario.num_clients = null requires partition natural; partition {self.settings.name} requires a "
                "number"
            )
        dealt = self.deal(samples.label, num_clients, num_classes, seed, group)
        return Dealt([np.sort(places) for places in dealt])

    def evaluated(self, timeline: Timeline, train: Samples, test: Samples) -> Timeline:
        """The finished timeline, possibly with other held-out samples; ``train`` and ``test`` are all samples."""
        return timeline


def require_at_most(name: str, value: int, limit: int, reason: str) -> None:
    """Refuse ``value`` above ``limit``, by a SettingsError with the reason and the largest feasible value."""
    if value > limit:
        raise SettingsError(f"{name} = {value} is too large: {reason}; the largest feasible value is {limit}")


def require_least(min_per_client: int, samples: int, num_clients: int) -> None:
    """Refuse a smallest size that some client cannot have."""
    reason = f"{samples} samples for {num_clients} clients"
    require_at_most("min_per_client", min_per_client, samples // num_clients, reason)


def require_a_sample_each(num_clients: int, samples: int) -> None:
    """Refuse more clients than samples."""
    require_at_most("num_clients", num_clients, samples, f"{samples} samples, at least one per client")


def require_multiple(num_clients: int, step: int, limit: int, reason: str) -> None:
    """Refuse a number of clients that is not a multiple of ``step`` or exceeds ``limit``, which has a ``reason``."""
    largest = limit // step * step
    if num_clients % step or num_clients > largest:
        raise SettingsError(
            f"num_clients = {num_clients} is not feasible: {reason}; it must be a multiple of {step}, "
            f"the largest feasible value is {largest}"
        )


def rarest(labels: Ints, classes: Iterable[int]) -> int:
    """Number of samples of the rarest of ``classes``."""
    counts = np.bincount(labels, minlength=1)
    return min(int(counts[label]) if label < len(counts) else 0 for label in classes)


def equal_sizes(samples: int, num_clients: int) -> Ints:
    """Sizes that differ by at most one, largest first: int64 [num_clients]."""
    return samples // num_clients + (np.arange(num_clients) < samples % num_clients).astype(np.int64)


def class_pools(labels: Ints, classes: Iterable[int], rng: np.random.Generator) -> list[Ints]:
    """Shuffled positions of the samples of each of ``classes``."""
    return [rng.permutation(np.flatnonzero(labels == label)) for label in classes]


def by_owner(owner: Ints, values: Ints, num_clients: int) -> list[Ints]:
    """``values[owner == k]`` for every client k, in order."""
    ordered = values[np.argsort(owner, kind="stable")]
    return np.split(ordered, np.cumsum(np.bincount(owner, minlength=num_clients))[:-1])


def cut(pools: Sequence[Ints], counts: Ints) -> list[Ints]:
    """Cut every pool into consecutive parts, one per client: ``counts`` [classes, clients], int64, has their lengths."""
    pieces = [np.split(pool, np.cumsum(row)[:-1]) for pool, row in zip(pools, counts, strict=True)]
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]


def hand_out(shares: Iterable[tuple[Ints, Sequence[int]]], num_clients: int) -> list[Ints]:
    """Cut every pool into one contiguous part per holder; sizes differ by at most one, larger parts first.

    ``shares`` are pairs of a shuffled pool of positions and its holders (clients in order, possibly repeated). Returns one
    int64 array of positions per client.
    """
    held: list[list[Ints]] = [[np.zeros(0, dtype=np.int64)] for _ in range(num_clients)]
    for pool, holders in shares:
        for holder, part in zip(holders, np.array_split(pool, len(holders)), strict=True):
            held[holder].append(part)
    return [np.concatenate(parts) for parts in held]


def fill_slots(
    slots: Ints,
    prior: Floats,
    pools: Sequence[Ints],
    rng: np.random.Generator,
    gives_up: Callable[[Floats], Floats],
    fallback: Callable[[Ints], Floats],
) -> list[Ints]:
    """Deal one sample per slot: its client draws a class from its prior restricted to the remaining classes.

    That has the distribution of redrawing until a class remains, which may never end; a client may also give up on its prior
    and draw from the fallback.

    Args:
        slots: int64 [n], the client of each slot in the order of dealing; the pools hold n positions in total.
        prior: float64 [clients, classes], label proportions of each client.
        pools: shuffled positions per class; each is used from its front.
        rng: one uniform number per slot for the class, one for giving up.
        gives_up: prior mass of the remaining classes, float64 [clients] -> probability of giving up; must be 1 for mass 0.
        fallback: samples left, int64 [classes] -> weights of the classes, float64 [classes], 0 where none are left.

    Returns:
        One int64 array of positions per client.
    """
    left = np.array([len(pool) for pool in pools], dtype=np.int64)
    quantile = 1.0 - rng.random(len(slots))  # in (0, 1], so that a class of weight 0 is never drawn
    persistence = rng.random(len(slots))
    chosen = np.empty(len(slots), dtype=np.int64)
    given_up = 0

    def restricted() -> tuple[list[Floats], list[float]]:
        cumulative = np.cumsum(prior * (left > 0), axis=1)
        mass = cumulative[:, -1:]
        rows = np.divide(cumulative, mass, out=np.zeros_like(cumulative), where=mass > 0)
        return list(rows), gives_up(np.minimum(mass[:, 0], 1.0)).tolist()

    rows, probability = restricted()
    for slot, client in enumerate(slots.tolist()):
        row = rows[client]
        if persistence[slot] < probability[client]:
            row = np.cumsum(fallback(left))
            row /= row[-1]
            given_up += 1
        label = int(row.searchsorted(quantile[slot]))
        chosen[slot] = label
        left[label] -= 1
        if left[label] == 0:
            rows, probability = restricted()
    if given_up:
        logger.info(
            "%d of %d samples were assigned outside their client's Dirichlet prior (capacity limits)",
            given_up,
            len(slots),
        )

    positions = np.empty(len(slots), dtype=np.int64)
    positions[np.argsort(chosen, kind="stable")] = np.concatenate(pools)
    return by_owner(slots, positions, len(prior))
