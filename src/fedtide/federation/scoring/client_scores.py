"""Scores of every client on its own data."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.scoring.client_samples import Tested, own_samples, owners, samples_of
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues, part_of
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.types import RoundContext
from fedtide.records.files.client_scores import GAINS
from fedtide.training.engine.passes.evaluation import Scores, evaluate
from fedtide.training.engine.passes.metrics import Fit, fit
from fedtide.world.clients import ClientNames
from fedtide.world.presence.membership import GROUPS, PRESENT, membership

_SPREAD = ("mean", "std", "worst_decile")
_OF_ACCURACY = (*_SPREAD, "below")
_RECORDED = ("r2", "mae")
_WORST = 0.1


class ClientScores:
    """Evaluates every client: the reported model, the model it is served, and one it has adapted, on the client's own data.

    A client's accuracy is that on its own samples of the split, those of the last round in which it was present. Where the
    data does not know whose they are, it is the expected accuracy on samples with the client's share of labels: the mean of
    the accuracies per class (under drift: per concept and class), weighted by its training samples. Clients without samples
    have none. Spreads are over the clients present.

    A gain is the accuracy of a client's own model minus that of the reported one on the same samples; none is recorded where
    no global model is trained. A client is ``known`` once it has taken part.

    ``own``: whether clients are served models of their own.
    """

    def __init__(self, served: ServedModels, own: bool) -> None:
        self._evaluator, self._served, self._own = served.evaluator, served, own
        self._finetunes = served.evaluator.settings.finetune_steps > 0
        self._gains = not own or "global" in served.parts.algorithm.models

    @property
    def columns(self) -> list[str]:
        """Columns of the history; none if clients are not evaluated."""
        if not self._evaluator.settings.clients_every:
            return []
        names = [f"client_accuracy_{name}" for name in (*_OF_ACCURACY, *GROUPS)]
        if self._own:
            departed = ("departed",) if self._served.keeps_last else ()
            names += [
                f"served_accuracy_{name}"
                for name in (*_OF_ACCURACY, *PRESENT, *departed, "known", "unknown", "samples")
            ]
            names.append("served_known")
        if self._finetunes:
            names += [f"finetuned_accuracy_{name}" for name in (*_OF_ACCURACY, *PRESENT)]
        if self._gains:
            own = {"served": self._own, "finetuned": self._finetunes}
            names += [name for kind, given in own.items() if given for name in GAINS[kind]]
        return names

    def score(self, record: RoundRecord, r: RoundContext, model: ModelValues, scores: Scores) -> None:
        """Write scores of clients into the row of the round, and a line per client into the table of client scores.

        ``model``: the reported one, with its ``scores`` per class.
        """
        evaluator, state, t, size = self._evaluator, r.state, r.plan.t, len(r.plan.ids)
        groups = membership(evaluator.timeline, t)
        present, departed = evaluator.timeline.at(t).clients, groups["departed"]
        clients = np.concatenate([present, departed])
        tested = samples_of(evaluator, t, clients)
        accuracy, loss = of_reported(evaluator, model, scores, tested)
        table: dict[str, Sequence[Any]] = {"client": clients.tolist(), **named_columns(evaluator, clients, groups)}
        table["samples"] = [len(own) if tested.chosen else None for own in tested.positions]
        table |= {"accuracy": cells(accuracy), "loss": cells(loss)}
        threshold, here = evaluator.settings.client_threshold, tested.positions[: len(present)]
        record.row |= _prefixed("client_accuracy", summary(accuracy, clients, groups, threshold))

        def write(prefix: str, scores: list[Scores], members: dict[str, Ints]) -> Floats:
            own, own_loss = of_each(scores, tested.counts)
            own, own_loss = (np.append(values, np.full(len(clients) - len(own), np.nan)) for values in (own, own_loss))
            record.row |= _prefixed(f"{prefix}_accuracy", summary(own, clients, members, threshold))
            table.update({f"{prefix}_accuracy": cells(own), f"{prefix}_loss": cells(own_loss)})
            if self._gains:
                gain = (own - accuracy)[: len(present)]
                mean, worse = GAINS[prefix]
                record.row |= {mean: _mean(gain), worse: _mean(gain < 0, ~np.isnan(gain))}
                table[mean] = cells(own - accuracy)
            return own

        if self._own:
            served, known = self._served.scores(state, t, size, here), state.seen.cpu().numpy()[present]
            members = {**groups, "known": present[known], "unknown": present[~known]}
            if self._served.keeps_last:
                left = tested.positions[len(present) :]
                served += self._served.last_scores(state, departed, left, size)
            else:
                del members["departed"]
            own = write("served", served, members)[: len(present)]
            sizes = tested.sizes[: len(present)]
            record.row |= {"served_accuracy_samples": _mean(own, sizes), "served_known": float(known.mean())}
            table["known"] = [*known.tolist(), *([None] * len(departed))]
        if self._finetunes:
            rate = float(record.row["lr"] or 0)
            members = {name: groups[name] for name in PRESENT}
            write("finetuned", self._served.finetuned(state, t, size, rate, here), members)
        record.client_scores = {"round": [t + 1] * len(clients), **table}


def expected(scores: Scores, label_counts: Tensor) -> tuple[Floats, Floats]:
    """Accuracy and loss expected on samples with the labels of each client, NaN without any.

    ``scores`` are per class [L], or per client and class [n, L]; ``label_counts`` is float64 [n, L]. Classes that are not
    evaluated do not count.
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
    names = ClientNames.of(evaluator.timeline, evaluator.data)
    known = {"name": names.shown(clients.tolist())} if names.own else {}
    group = np.full(len(clients), "", dtype=object)
    for name, members in groups.items():
        group[np.isin(clients, members)] = name
    return {**known, "group": group.tolist()}


def due(evaluator: Evaluator, t: int) -> bool:
    """Whether clients are evaluated after round ``t``."""
    every = evaluator.settings.clients_every
    return every > 0 and ((t + 1) % every == 0 or t + 1 == evaluator.timeline.rounds)


def of_reported(evaluator: Evaluator, model: ModelValues, scores: Scores, tested: Tested) -> tuple[Floats, Floats]:
    """Accuracy and loss of the reported model for each client, NaN without samples."""
    if not tested.chosen and tested.counts is not None:
        return expected(_by_concept(evaluator, model, scores, tested.counts), tested.counts)
    clients = len(tested.positions)
    positions = np.concatenate([*tested.positions, np.zeros(0, dtype=np.int64)])
    if not len(positions):
        return np.full(clients, np.nan), np.full(clients, np.nan)
    owners = np.repeat(np.arange(clients), [len(own) for own in tested.positions])
    part, width = part_of(evaluator.settings.splits[0]), 1
    if tested.counts is not None:
        width, classes = tested.counts.shape[1], evaluator.data.classes(positions, part)
        known = evaluator.timeline.concepts
        concept = positions // (known.test if part == "test" else known.train) if known else 0
        owners = owners * width + concept * evaluator.data.num_classes + classes
    groups = evaluator.on_device(owners)
    samples = evaluator.data.read(part, evaluator.on_device(positions))
    scores = evaluate(evaluator.workers, *model, *samples, evaluator.batch, groups=groups)
    missing = clients * width - len(scores.count)  # groups without samples at the end
    found = Scores(
        *(
            functional.pad(values, (0, missing)).view(clients, width)
            for values in (scores.correct, scores.count, scores.loss)
        )
    )
    if tested.counts is not None:
        return expected(found, tested.counts)
    count = found.count[:, 0].to(torch.float64)
    return (found.correct[:, 0] / count).numpy(), (found.loss[:, 0] / count).numpy()


def _by_concept(evaluator: Evaluator, model: ModelValues, scores: Scores, label_counts: Tensor) -> Scores:
    """Scores of the reported model per class, and under drift per concept and class of those that clients see, else zero."""
    concepts, classes = len(evaluator.timeline.concepts.maps), evaluator.data.num_classes
    if not evaluator.timeline.concepts:
        return scores
    seen = label_counts.view(-1, concepts, classes).sum((0, 2)).nonzero()[:, 0].tolist()
    found = evaluator.by_concept(model, evaluator.settings.splits[0], seen)
    none = torch.zeros(classes, dtype=torch.int64)
    each = [found.get(number, Scores(none, none, none.to(torch.float64))) for number in range(concepts)]
    return Scores(*(torch.cat([getattr(one, name) for one in each]) for name in ("correct", "count", "loss")))


def of_each(each: list[Scores], label_counts: Tensor | None) -> tuple[Floats, Floats]:
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


def summary(accuracy: Floats, clients: Ints, groups: dict[str, Ints], threshold: float) -> dict[str, float | None]:
    """Spread of accuracies (NaN if unknown) over the clients present, and each group's mean; ``None`` where none is known."""
    known = accuracy[np.isfinite(accuracy) & ~np.isin(clients, groups.get("departed", []))]
    found = {**spread(known), "below": float((known < threshold).mean()) if len(known) else None}
    for name, members in groups.items():
        own = accuracy[np.isin(clients, members) & np.isfinite(accuracy)]
        found[name] = float(own.mean()) if len(own) else None
    return found


def spread(values: Floats, lower: bool = False) -> dict[str, float | None]:
    """Mean, standard deviation and mean of the worst tenth of those that are known, None without any; ``lower`` is better."""
    known = np.sort(values[np.isfinite(values)])
    if not len(known):
        return dict.fromkeys(_SPREAD)
    count = math.ceil(_WORST * len(known))
    worst = known[-count:] if lower else known[:count]
    return {"mean": float(known.mean()), "std": float(known.std()), "worst_decile": float(worst.mean())}


def _mean(values: Floats | Bools, weights: Floats | Bools | None = None) -> float | None:
    """Weighted mean of the values that are known, None without any."""
    weights = np.where(np.isnan(values), 0.0, 1.0 if weights is None else weights)
    return float(np.nansum(weights * values) / weights.sum()) if weights.sum() else None


def cells(values: Floats) -> list[float | None]:
    """Values with ``None`` for NaN."""
    return [None if math.isnan(value) else value for value in values.tolist()]


def _prefixed(prefix: str, values: dict[str, float | None]) -> dict[str, float | None]:
    return {f"{prefix}_{name}": value for name, value in values.items()}


class ClientFits:
    """R², mean absolute error and loss of the reported model, and of the one that each is served, on clients' own samples.

    These are those of the last round in which the client was present. R² compares with the mean of the client's own samples.
    Where the data does not know whose the samples are, there are no scores. ``own``: as in :class:`ClientScores`.
    """

    def __init__(self, served: ServedModels, own: bool) -> None:
        self._evaluator, self._served, self._own = served.evaluator, served, own

    @property
    def columns(self) -> list[str]:
        """Columns of the history; none if clients are not evaluated."""
        if (
            not self._evaluator.settings.clients_every
            or owners(self._evaluator, self._evaluator.settings.splits[0]) is None
        ):
            return []
        names = [f"client_{score}_{name}" for score in _RECORDED for name in (*_SPREAD, *GROUPS)]
        if self._own:
            own = (*_SPREAD, *PRESENT, "known", "unknown")
            names += [*(f"served_{score}_{name}" for score in _RECORDED for name in own), "served_known"]
        return names

    def score(self, record: RoundRecord, r: RoundContext, model: ModelValues) -> None:
        """Write ``client_*`` and ``served_*`` into the row of the round, if it is due, and a line per client."""
        evaluator, t = self._evaluator, r.plan.t
        groups = membership(evaluator.timeline, t)
        clients = np.concatenate([evaluator.timeline.at(t).clients, groups["departed"]])
        if not due(evaluator, t) or (own := own_samples(evaluator, t, clients)) is None:
            return
        table: dict[str, Sequence[Any]] = {"client": clients.tolist(), **named_columns(evaluator, clients, groups)}
        table["samples"] = [len(positions) for positions in own]

        def write(fits: list[Fit], members: dict[str, Ints], prefix: str, column: str) -> None:
            rows = [each.row() for each in fits]
            for score in (*_RECORDED, "loss"):
                values = np.full(len(clients), np.nan)
                values[: len(rows)] = np.array([row[score] for row in rows], dtype=np.float64)  # NaN for None
                table[f"{column}{score}"] = cells(values)
                if score in _RECORDED:
                    found = _spread(values, clients, members, lower=score == "mae")
                    record.row |= {f"{prefix}_{score}_{name}": value for name, value in found.items()}

        write(self._each(model, own), groups, "client", "")
        if self._own:
            present = evaluator.timeline.at(t).clients
            known = r.state.seen.cpu().numpy()[present]
            members = {name: groups[name] for name in PRESENT} | {"known": present[known], "unknown": present[~known]}
            fits = self._served.fits(r.state, t, len(r.plan.ids), own[: len(present)])
            write(fits, members, "served", "served_")
            record.row["served_known"] = float(known.mean())
            table["known"] = [*known.tolist(), *([None] * len(groups["departed"]))]
        record.client_scores = {"round": [t + 1] * len(clients), **table}

    def _each(self, model: ModelValues, own: list[Ints]) -> list[Fit]:
        """The fit of every client's samples, from one pass over all."""
        evaluator = self._evaluator
        positions = evaluator.on_device(np.concatenate(own))
        samples = evaluator.data.read(part_of(evaluator.settings.splits[0]), positions)
        together, lengths = fit(evaluator.workers, *model, *samples, evaluator.batch), [len(part) for part in own]
        parts = zip(torch.split(together.outputs, lengths), torch.split(together.labels, lengths), strict=True)
        return [replace(together, outputs=outputs, labels=labels) for outputs, labels in parts]


def _spread(values: Floats, clients: Ints, groups: dict[str, Ints], lower: bool) -> dict[str, float | None]:
    """Mean, standard deviation and mean of the worst tenth over the clients present, and each group's mean."""
    sign = -1.0 if lower else 1.0
    found = summary(sign * values, clients, groups, 0.0)
    del found["below"]
    return {name: value if name == "std" or value is None else sign * value for name, value in found.items()}
