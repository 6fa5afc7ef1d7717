"""Which held-out samples each client is tested on."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.federation.scoring.evaluator import Evaluator, part_of
from fedtide.world.presence.membership import last_round
from fedtide.world.timeline import HeldOut


class Tested(NamedTuple):
    """Samples of the first split that clients are tested on.

    Attributes:
        positions: of each client's; the same array for clients that share all of them.
        counts: float64 [n, L], under drift [n, C L], samples of each class (and concept) that the client holds: its accuracy is
            the one expected under them. None where the samples are its own, which all count alike.
        chosen: whether each client has samples of its own, drawn for it or because it owns them.
    """

    positions: list[Ints]
    counts: Tensor | None
    chosen: bool

    @property
    def sizes(self) -> Floats:
        """What each client counts in a mean over samples."""
        if self.counts is None:
            return np.array([len(own) for own in self.positions], dtype=np.float64)
        return np.asarray(self.counts.sum(1).numpy(), dtype=np.float64)


def samples_of(evaluator: Evaluator, t: int, clients: Ints) -> Tested:
    """The samples of clients, those of the last round up to ``t`` in which each was present.

    Their own where the data know whose they are. Otherwise all, or ``evaluation.client_samples`` of them with the client's
    shares of labels.
    """
    own = own_samples(evaluator, t, clients)
    if own is not None:
        return Tested(own, None, True)
    counts = _label_counts(evaluator, t, clients)
    if evaluator.settings.client_samples is None:
        return Tested(_all_samples(evaluator, t, counts), counts, False)
    return Tested(_drawn_samples(evaluator, t, clients, counts), counts, True)


def owners(evaluator: Evaluator, split: str) -> Ints | None:
    """Whose the samples are, by virtual position, that hold those of a split; ``None`` unless the clients of the run own them.

    ``split``: one of an evaluation, or ``train``.
    """
    origins, timeline = evaluator.data.origins, evaluator.timeline
    found = origins.train_client if part_of(split) == "train" else origins.test_client
    if found is None or not len(timeline.origin_of_client):
        return None
    return np.tile(found, len(timeline.concepts.maps))


def owners_of(evaluator: Evaluator, split: str, held_out: HeldOut | None) -> Ints:
    """Whose each sample of :meth:`Evaluator.samples` is, where they have owners."""
    of, trained = owners(evaluator, split), owners(evaluator, "train")
    assert of is not None
    assert trained is not None
    later = held_out.train if split == "test" and held_out is not None else np.zeros(0, dtype=np.int64)
    return np.concatenate([of[evaluator.positions(split, held_out)], trained[later]])


def own_samples(evaluator: Evaluator, t: int, clients: Ints) -> list[Ints] | None:
    """Positions of each client's own samples of the first split, as evaluated in the last round in which it was present.

    In the training set for ``validation``, else in the test set; ``None`` if the data does not know whose they are.
    """
    timeline, split = evaluator.timeline, evaluator.settings.splits[0]
    of = owners(evaluator, split)
    if of is None:
        return None
    found: dict[int, Ints] = {}
    rounds = last_round(timeline, t)[clients]
    for round_ in np.unique(rounds):
        positions = evaluator.positions(split, timeline.evaluated_at(round_))
        positions = positions[np.argsort(of[positions], kind="stable")]
        asked = clients[rounds == round_]
        numbers = timeline.origin_of_client[asked]
        begins, ends = (np.searchsorted(of[positions], numbers, side) for side in ("left", "right"))
        found |= {client: positions[slice(*span)] for client, *span in zip(asked.tolist(), begins, ends, strict=True)}
    return [found[client] for client in clients.tolist()]


def _label_counts(evaluator: Evaluator, t: int, clients: Ints) -> Tensor:
    """Training samples per class that each client holds, or last held, float64 [n, L]; under drift [n, C L]."""
    timeline, concepts, shards = evaluator.timeline, evaluator.timeline.concepts, []
    for client, round_ in zip(clients, last_round(timeline, t)[clients], strict=True):
        held = timeline.at(round_)
        shards.append(timeline.shards[held.shards[np.searchsorted(held.clients, client)]])
    if not concepts:
        return evaluator.data.label_counts(shards)
    split = [shard[concepts.of(shard) == number] for shard in shards for number in range(len(concepts.maps))]
    return evaluator.data.label_counts(split).view(len(shards), -1)


def _all_samples(evaluator: Evaluator, t: int, counts: Tensor) -> list[Ints]:
    """All held-out samples for each client, as it sees them: the same array for clients that see the same."""
    split, timeline = evaluator.settings.splits[0], evaluator.timeline
    if not timeline.concepts:
        return [evaluator.positions(split, timeline.evaluated_at(t))] * len(counts)
    seen = counts.view(len(counts), len(timeline.concepts.maps), -1).sum(2) > 0
    known: dict[tuple[int, ...], Ints] = {}
    for row in seen:
        numbers = tuple(row.nonzero()[:, 0].tolist())
        if numbers not in known:
            parts = [evaluator.under(split, number) for number in numbers]
            known[numbers] = np.concatenate([*parts, np.zeros(0, dtype=np.int64)])
    return [known[tuple(row.nonzero()[:, 0].tolist())] for row in seen]


def sample_counts(held: Floats, available: Ints, wanted: int) -> Ints:
    """How many of some held-out samples stand for a client, by class, int64 [L].

    ``wanted`` times its share of the class, rounded and at least one of a class that it holds, and at most what there is.

    Args:
        held: [L] training samples. available: [L] held-out samples.
    """
    shares = held / max(held.sum(), 1)
    number = np.maximum(1, np.floor(wanted * shares + 0.5)).astype(np.int64)
    return np.where(held > 0, np.minimum(available, number), 0)


def _drawn_samples(evaluator: Evaluator, t: int, clients: Ints, counts: Tensor) -> list[Ints]:
    """``evaluation.client_samples`` held-out samples for each client, with its shares of labels (and of concepts).

    They are the first ones of a permutation of each label's samples that belongs to the client: the same in every round, for
    every algorithm and population, and those of a smaller number are among those of a larger one.
    """
    wanted, split, timeline = evaluator.settings.client_samples or 0, evaluator.settings.splits[0], evaluator.timeline
    classes = evaluator.data.num_classes
    by_class: list[Ints] = []
    for number in range(counts.shape[1] // classes):
        positions = evaluator.under(split, number) if number else evaluator.positions(split, timeline.evaluated_at(t))
        labels = evaluator.data.classes(positions, part_of(split))
        by_class += [positions[labels == label] for label in range(classes)]
    available, found = np.array([len(positions) for positions in by_class]), []
    for client, held in zip(clients.tolist(), counts.numpy(), strict=True):
        taken = sample_counts(held, available, wanted)
        parts = [
            positions[evaluator.randomness.generator("client_tests", client, place).permutation(len(positions))[:count]]
            for place, (positions, count) in enumerate(zip(by_class, taken, strict=True))
            if count
        ]
        found.append(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]))
    return found
