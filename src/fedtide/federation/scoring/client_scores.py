"""Scores of every client on its own data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.engine.passes.evaluation import Scores, evaluate
from fedtide.federation.record import RoundRecord
from fedtide.federation.round import RoundResult
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues, part_of
from fedtide.federation.scoring.personal import Personal
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.state import RunState
from fedtide.world.membership import GROUPS, PRESENT, last_round, membership

_SPREAD = ("mean", "std", "worst_decile", "below")
_WORST = 0.1


class ClientScores:
    """Evaluates every client: the reported model, the model it is served, and one it has adapted, on the client's own data.

    A client's accuracy is that on its own samples of the split, those of the last round in which it was present. Where the
    data does not know whose they are, it is the expected accuracy on samples with the client's share of labels: the mean of
    the accuracies per class (under drift: per concept and class), weighted by its training samples. Clients without samples
    have none. Mean, standard deviation,
    mean of the worst tenth and share below ``evaluation.client_threshold`` are over the clients present.

    Args:
        evaluator: of the run. personal: local steps, None without ``evaluation.personalise``.
        served: models of the clients' own, None for an algorithm that has none.
    """

    def __init__(self, evaluator: Evaluator, personal: Personal | None, served: ServedModels | None) -> None:
        self._evaluator, self._personal, self._served = evaluator, personal, served

    @property
    def columns(self) -> list[str]:
        """Columns of the history; none if clients are not evaluated."""
        if not self._evaluator.settings.clients_every:
            return []
        own = [prefix for prefix, used in (("served", self._served), ("personal", self._personal)) if used is not None]
        return [
            *(f"client_accuracy_{name}" for name in (*_SPREAD, *GROUPS)),
            *(f"{prefix}_accuracy_{name}" for prefix in own for name in (*_SPREAD, *PRESENT)),
        ]

    def score(self, record: RoundRecord, state: RunState, result: RoundResult, reported: Reported, t: int) -> None:
        """Write ``client_accuracy_*`` into the row of round ``t``, and a line per client into the table of client scores."""
        evaluator, groups = self._evaluator, membership(self._evaluator.timeline, t)
        threshold = evaluator.settings.client_threshold
        present, departed = evaluator.timeline.at(t).clients, groups["departed"]
        clients = np.concatenate([present, departed])
        counts, own = _label_counts(evaluator, t, clients), own_samples(evaluator, t, clients)
        table: dict[str, Sequence[Any]] = {"client": clients.tolist(), **named_columns(evaluator, clients, groups)}
        if own is None:
            accuracy, loss = expected(_by_concept(evaluator, reported, counts), counts)
            table["samples"] = [None] * len(clients)
        else:
            accuracy, loss = _measured(evaluator, reported.model, own)
            table["samples"] = [len(positions) for positions in own]
        table |= {"accuracy": cells(accuracy), "loss": cells(loss)}
        record.row |= _prefixed("client_accuracy", summary(accuracy, clients, groups, threshold))
        tested = _all_samples(evaluator, t) if own is None else own[: len(present)]
        inside = {name: groups[name] for name in PRESENT}
        found: dict[str, list[Scores]] = {}
        if self._served is not None:
            found["served"] = self._served.scores(state, result, t, tested)
        if self._personal is not None:
            found["personal"] = self._personal.scores(result, t, float(record.row["lr"] or 0), tested)
        for prefix, each in found.items():
            accuracy, loss = _of_each(each, None if own is not None else counts)
            absent = [None] * len(departed)
            table |= {f"{prefix}_accuracy": [*cells(accuracy), *absent], f"{prefix}_loss": [*cells(loss), *absent]}
            record.row |= _prefixed(f"{prefix}_accuracy", summary(accuracy, present, inside, threshold))
        record.client_scores = {"round": [t + 1] * len(clients), **table}


class Reported(NamedTuple):
    """The model that is reported, and its scores per class."""

    model: ModelValues
    scores: Scores


def expected(scores: Scores, label_counts: Tensor) -> tuple[Floats, Floats]:
    """Accuracy and loss expected on samples with the labels of each client, NaN without any.

    ``label_counts`` is float64 [n, L]; classes that are not evaluated do not count.
    """
    weights = label_counts * (scores.count > 0)
    shares = weights / weights.sum(1, keepdim=True)
    count = scores.count.clamp(min=1)
    accuracy, loss = (
        (shares * (values.to(torch.float64) / count)).sum(1).numpy() for values in (scores.correct, scores.loss)
    )
    return accuracy, loss


def named_columns(evaluator: Evaluator, clients: Ints, groups: dict[str, Ints]) -> dict[str, Sequence[Any]]:
    """Columns with the clients' names in the data, if they have any, and their groups."""
    names, numbers = evaluator.data.origins.clients, evaluator.timeline.origin_of_client
    known = {"name": [names[numbers[client]] for client in clients]} if names and len(numbers) else {}
    group = np.full(len(clients), "", dtype=object)
    for name, members in groups.items():
        group[np.isin(clients, members)] = name
    return {**known, "group": group.tolist()}


def due(evaluator: Evaluator, t: int) -> bool:
    """Whether clients are evaluated after round ``t``."""
    every = evaluator.settings.clients_every
    return every > 0 and ((t + 1) % every == 0 or t + 1 == evaluator.timeline.rounds)


def owners(evaluator: Evaluator) -> Ints | None:
    """Whose the samples are, by virtual position, that hold those of the first split; ``None`` if the data does not know."""
    origins, timeline = evaluator.data.origins, evaluator.timeline
    found = origins.train_client if evaluator.settings.splits[0] == "validation" else origins.test_client
    if found is None or not len(timeline.origin_of_client):
        return None
    return np.tile(found, len(timeline.concepts.maps))


def own_samples(evaluator: Evaluator, t: int, clients: Ints) -> list[Ints] | None:
    """Positions of each client's own samples of the first split, as evaluated in the last round in which it was present.

    In the training set for ``validation``, else in the test set; ``None`` if the data does not know whose they are.
    """
    timeline, split, of = evaluator.timeline, evaluator.settings.splits[0], owners(evaluator)
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


def _measured(evaluator: Evaluator, model: ModelValues, own: list[Ints]) -> tuple[Floats, Floats]:
    """Accuracy and loss of the model on each client's own samples, NaN without any."""
    positions = evaluator.on_device(np.concatenate(own))
    if not len(positions):
        return np.full(len(own), np.nan), np.full(len(own), np.nan)
    count = torch.tensor([len(part) for part in own])
    owners = torch.repeat_interleave(torch.arange(len(own)), count).to(positions.device)
    samples = evaluator.data.read(part_of(evaluator.settings.splits[0]), positions)
    scores = evaluate(evaluator.workers, *model, *samples, evaluator.batch, groups=owners)
    missing = len(own) - len(scores.count)  # clients without samples at the end
    sums = [torch.nn.functional.pad(values, (0, missing)).to(torch.float64) for values in (scores.correct, scores.loss)]
    return (sums[0] / count).numpy(), (sums[1] / count).numpy()


def _by_concept(evaluator: Evaluator, reported: Reported, label_counts: Tensor) -> Scores:
    """Scores of the reported model per class, and under drift per concept and class of those that clients see, else zero."""
    concepts, classes = len(evaluator.timeline.concepts.maps), evaluator.data.num_classes
    if not evaluator.timeline.concepts:
        return reported.scores
    seen = label_counts.view(-1, concepts, classes).sum((0, 2)).nonzero()[:, 0].tolist()
    found = evaluator.by_concept(reported.model, evaluator.settings.splits[0], seen)
    none = torch.zeros(classes, dtype=torch.int64)
    each = [found.get(number, Scores(none, none, none.to(torch.float64))) for number in range(concepts)]
    return Scores(*(torch.cat([getattr(scores, name) for scores in each]) for name in ("correct", "count", "loss")))


def _all_samples(evaluator: Evaluator, t: int) -> list[Ints]:
    """All held-out samples for each client present, as it sees them: the same array for clients that see the same."""
    split, timeline = evaluator.settings.splits[0], evaluator.timeline
    if not timeline.concepts:
        return [evaluator.positions(split, timeline.evaluated_at(t))] * len(timeline.at(t).clients)
    known: dict[tuple[int, ...], Ints] = {}
    for row in timeline.concept_shares(t):
        numbers = tuple(np.flatnonzero(row).tolist())
        if numbers not in known:
            parts = [evaluator.under(split, number) for number in numbers]
            known[numbers] = np.concatenate([*parts, np.zeros(0, dtype=np.int64)])
    return [known[tuple(np.flatnonzero(row).tolist())] for row in timeline.concept_shares(t)]


def _of_each(each: list[Scores], label_counts: Tensor | None) -> tuple[Floats, Floats]:
    """Accuracy and loss of the clients' own models, expected under their labels where these are given."""
    if label_counts is None:
        pairs = [(_share(mine.correct, mine.count), _share(mine.loss, mine.count)) for mine in each]
    else:
        pairs = [expected(mine, counts[None]) for mine, counts in zip(each, label_counts, strict=False)]
    accuracy, loss = (np.concatenate(values) for values in zip(*pairs, strict=True))
    return accuracy, loss


def _share(values: Tensor, count: Tensor) -> Floats:
    """One mean over all samples, NaN without any."""
    return (values.sum().to(torch.float64) / count.sum()).reshape(1).numpy()


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


def summary(accuracy: Floats, clients: Ints, groups: dict[str, Ints], threshold: float) -> dict[str, float | None]:
    """Spread of accuracies (NaN if unknown) over the clients present, and each group's mean; ``None`` where none is known."""
    known = np.sort(accuracy[np.isfinite(accuracy) & ~np.isin(clients, groups.get("departed", []))])
    found = dict.fromkeys(_SPREAD)
    if len(known):
        worst, below = known[: math.ceil(_WORST * len(known))], known < threshold
        found = {
            "mean": float(known.mean()),
            "std": float(known.std()),
            "worst_decile": float(worst.mean()),
            "below": float(below.mean()),
        }
    for name, members in groups.items():
        own = accuracy[np.isin(clients, members) & np.isfinite(accuracy)]
        found[name] = float(own.mean()) if len(own) else None
    return found


def cells(values: Floats) -> list[float | None]:
    """Values with ``None`` for NaN."""
    return [None if math.isnan(value) else value for value in values.tolist()]


def _prefixed(prefix: str, values: dict[str, float | None]) -> dict[str, float | None]:
    return {f"{prefix}_{name}": value for name, value in values.items()}
