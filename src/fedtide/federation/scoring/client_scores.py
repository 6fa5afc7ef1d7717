"""How the clients fare: the reported model on every client's own data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.engine.passes.evaluation import Scores, evaluate
from fedtide.federation.parts import Parts
from fedtide.federation.record import RoundRecord
from fedtide.federation.round import RoundResult
from fedtide.federation.scoring.personal import personal_scores
from fedtide.world.membership import GROUPS, PRESENT, last_round, membership

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SPREAD = ("mean", "std", "worst_decile", "below")
_WORST = 0.1


def columns(parts: Parts) -> list[str]:
    """Columns of the history; none if clients are not evaluated."""
    evaluation = parts.settings.evaluation
    if not evaluation.clients_every:
        return []
    names = [f"client_accuracy_{ending}" for ending in (*_SPREAD, *GROUPS)]
    return names + (
        [f"personal_accuracy_{ending}" for ending in (*_SPREAD, *PRESENT)] if evaluation.personalise else []
    )


def due(parts: Parts, t: int) -> bool:
    """Whether clients are evaluated in round ``t``."""
    every = parts.settings.evaluation.clients_every
    return every > 0 and ((t + 1) % every == 0 or t + 1 == parts.timeline.rounds)


def score_clients(
    parts: Parts, record: RoundRecord, result: RoundResult, model: tuple[Tensor, Tensor], scores: Scores, t: int
) -> None:
    """Write ``client_accuracy_*`` into the row of round ``t``, and a line per client into the table of client scores.

    A client's accuracy is that on its own samples of the split, those of the last round in which it was present. Where the
    data does not know whose they are, it is the expected accuracy on samples with the client's share of labels: the mean of
    the accuracies per class, weighted by its training samples. Clients without samples have none. Mean, standard deviation,
    mean of the worst tenth and share below ``evaluation.client_threshold`` are over the clients present.

    Args:
        parts: of the run. record: of the round. result: of its training.
        model: that is reported; parameters and floating buffers.
        scores: of the model, per class.
        t: round (0-based).
    """
    evaluation, groups = parts.settings.evaluation, membership(parts.timeline, t)
    present, departed = parts.timeline.at(t).clients, groups["departed"]
    clients = np.concatenate([present, departed])
    label_counts, own = _label_counts(parts, t, clients), own_samples(parts, evaluation.splits[0], t, clients)
    table: dict[str, Sequence[Any]] = {"client": clients.tolist()}
    if parts.data.origins.clients and len(parts.timeline.origin_of_client):
        table["name"] = [parts.data.origins.clients[parts.timeline.origin_of_client[client]] for client in clients]
    table["group"] = _names(clients, groups)
    if own is None:
        accuracy, loss = expected(scores, label_counts)
        table["samples"] = [None] * len(clients)
    else:
        accuracy, loss = _measured(parts, model, own)
        table["samples"] = [len(positions) for positions in own]
    table |= {"accuracy": _cells(accuracy), "loss": _cells(loss)}
    threshold = evaluation.client_threshold
    found = summary(accuracy, clients, groups, threshold)
    record.row |= {f"client_accuracy_{name}": value for name, value in found.items()}
    if evaluation.personalise:
        everything = parts.positions(evaluation.splits[0], parts.timeline.evaluated_at(t))
        tested = [everything] * len(present) if own is None else own[: len(present)]
        each = personal_scores(parts, result, t, float(record.row["lr"] or 0), tested)
        if own is None:
            pairs = [expected(mine, counts[None]) for mine, counts in zip(each, label_counts, strict=False)]
        else:
            pairs = [(_share(mine.correct, mine.count), _share(mine.loss, mine.count)) for mine in each]
        own_accuracy, own_loss = (np.concatenate(values) for values in zip(*pairs, strict=True))
        absent = [None] * len(departed)
        table["personal_accuracy"] = [*_cells(own_accuracy), *absent]
        table["personal_loss"] = [*_cells(own_loss), *absent]
        found = summary(own_accuracy, present, {name: groups[name] for name in PRESENT}, threshold)
        record.row |= {f"personal_accuracy_{name}": value for name, value in found.items()}
    record.client_scores = {"round": [t + 1] * len(clients), **table}


def expected(scores: Scores, label_counts: Tensor) -> tuple[Floats, Floats]:
    """Accuracy and loss expected on samples with the labels of each client, NaN without any.

    Args:
        scores: of the model, per class. label_counts: float64 [C, L]; classes that are not evaluated do not count.
    """
    weights = label_counts * (scores.count > 0)
    shares = weights / weights.sum(1, keepdim=True)
    count = scores.count.clamp(min=1)
    accuracy, loss = (
        (shares * (values.to(torch.float64) / count)).sum(1).numpy() for values in (scores.correct, scores.loss)
    )
    return accuracy, loss


def own_samples(parts: Parts, split: str, t: int, clients: Ints) -> list[Ints] | None:
    """Positions of each client's own samples of a split, as evaluated in the last round in which it was present.

    Returns:
        ``None`` if the data does not know whose they are. Positions are those of the test set, or of the training set for
        ``validation``.
    """
    origins, timeline = parts.data.origins, parts.timeline
    owners = origins.train_client if split == "validation" else origins.test_client
    if owners is None or not len(timeline.origin_of_client):
        return None
    found: dict[int, Ints] = {}
    rounds = last_round(timeline, t)[clients]
    for round_ in np.unique(rounds):
        positions = parts.positions(split, timeline.evaluated_at(round_))
        positions = positions[np.argsort(owners[positions], kind="stable")]
        asked = clients[rounds == round_]
        numbers = timeline.origin_of_client[asked]
        begins, ends = (np.searchsorted(owners[positions], numbers, side) for side in ("left", "right"))
        found |= {client: positions[slice(*span)] for client, *span in zip(asked.tolist(), begins, ends, strict=True)}
    return [found[client] for client in clients.tolist()]


def _measured(parts: Parts, model: tuple[Tensor, Tensor], own: list[Ints]) -> tuple[Floats, Floats]:
    """Accuracy and loss of the model on each client's own samples, NaN without any."""
    evaluation, positions = parts.settings.evaluation, torch.from_numpy(np.concatenate(own)).to(parts.device)
    if not len(positions):
        return np.full(len(own), np.nan), np.full(len(own), np.nan)
    count = torch.tensor([len(part) for part in own])
    owners = torch.repeat_interleave(torch.arange(len(own)), count).to(parts.device)
    inputs, labels = parts.split(evaluation.splits[0])
    w, b = model
    scores = evaluate(parts.workers, w, b, inputs[positions], labels[positions], evaluation.batch_size, groups=owners)
    missing = len(own) - len(scores.count)  # clients without samples at the end
    sums = [torch.nn.functional.pad(values, (0, missing)).to(torch.float64) for values in (scores.correct, scores.loss)]
    return (sums[0] / count).numpy(), (sums[1] / count).numpy()


def _share(values: Tensor, count: Tensor) -> Floats:
    """One mean over all samples, NaN without any."""
    return (values.sum().to(torch.float64) / count.sum()).reshape(1).numpy()


def _label_counts(parts: Parts, t: int, clients: Ints) -> Tensor:
    """Training samples per class that each client holds, or last held, float64 [C, L]."""
    timeline, shards = parts.timeline, []
    for client, round_ in zip(clients, last_round(timeline, t)[clients], strict=True):
        held = timeline.at(round_)
        shards.append(timeline.shards[held.shards[np.searchsorted(held.clients, client)]])
    return parts.label_counts(shards)


def _names(clients: Ints, groups: dict[str, Ints]) -> list[str]:
    names = np.full(len(clients), "", dtype=object)
    for name, members in groups.items():
        names[np.isin(clients, members)] = name
    return names.tolist()


def summary(accuracy: Floats, clients: Ints, groups: dict[str, Ints], threshold: float) -> dict[str, float | None]:
    """Spread over the clients present, and the mean of each group; ``None`` where no accuracy is known.

    Args:
        accuracy: of each client, NaN if unknown. clients: their ids. groups: by name, ids. threshold: of ``below``.
    """
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


def _cells(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
