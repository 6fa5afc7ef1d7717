"""Passes over data without training: scores and full gradients, on the worker threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtide.core.array_types import Bools, Ints
from fedtide.training.resources.workers import Workers, WorkerState
from fedtide.world.dataset import Split


@dataclass(frozen=True)
class Scores:
    """Scores of one model on some samples, per class, or per group if :func:`evaluate` is given groups.

    Attributes:
        correct, count: [L], samples of each class: correctly predicted ones, and all; int64, or float64 of a mixture.
        loss: float64 [L], summed cross-entropy of each class.
        masked: as ``correct``, samples correctly predicted by the arg-max over the labels of a view; None without a view.
    """

    correct: Tensor
    count: Tensor
    loss: Tensor
    masked: Tensor | None = None

    def accuracy(self, labels: Bools | None = None, correct: Tensor | None = None) -> float | None:
        """Fraction of correct predictions among samples whose label is in ``labels`` (bool [L]); ``None`` without any.

        The arg-max is over all labels; with ``correct = scores.masked`` over those of the view.
        """
        view = slice(None) if labels is None else torch.from_numpy(labels)
        hits = self.correct if correct is None else correct
        count = self.count[view].sum().item()
        return float(hits[view].sum().item() / count) if count else None

    def mean_loss(self, labels: Bools | None = None) -> float | None:
        """Mean cross-entropy over the same samples."""
        view = slice(None) if labels is None else torch.from_numpy(labels)
        count = self.count[view].sum().item()
        return float(self.loss[view].sum()) / count if count else None

    def row(self, labels: Bools | None = None) -> dict[str, float | None]:
        """The scores that every run records, by name, over the same samples."""
        return {"accuracy": self.accuracy(labels), "loss": self.mean_loss(labels)}

    def per_class(self) -> list[float | None]:
        """Accuracy of each class, ``None`` for a class without samples."""
        pairs = zip(self.correct.tolist(), self.count.tolist(), strict=True)
        return [correct / count if count else None for correct, count in pairs]

    @staticmethod
    def mixed(parts: Sequence[tuple[float, Scores]]) -> Scores:
        """Scores on a mixture of sample sets of one size, each with its share."""
        if len(parts) == 1:
            return parts[0][1]

        def mean(name: str) -> Tensor:
            return torch.stack([share * getattr(scores, name).to(torch.float64) for share, scores in parts]).sum(0)

        return Scores(
            mean("correct"), mean("count"), mean("loss"), None if parts[0][1].masked is None else mean("masked")
        )


def evaluate(
    workers: Workers,
    w: Tensor,
    b: Tensor,
    inputs: Tensor,
    labels: Tensor,
    batch: int,
    view: Bools | None = None,
    groups: Tensor | None = None,
) -> Scores:
    """Scores of one model (w [d], b [q]), or of an ensemble (w [C, d], b [C, q]) that averages its logits.

    Args:
        workers, inputs, labels: pool and resident samples. batch: samples per forward pass.
        view: bool [L], labels that a second arg-max over the same logits is restricted to, for ``Scores.masked``.
        groups: int64 [n], the group each sample is counted in, instead of its label.
    """
    size = workers.task.data.num_classes if groups is None else int(groups.max()) + 1
    seen = [(labels, labels if groups is None else groups)]
    (scores,) = evaluate_seen(workers, w, b, inputs, seen, size, batch, view)
    return scores


def evaluate_seen(
    workers: Workers,
    w: Tensor,
    b: Tensor,
    inputs: Tensor,
    seen: Sequence[tuple[Tensor, Tensor]],
    size: int,
    batch: int,
    view: Bools | None = None,
) -> list[Scores]:
    """Scores of one model for each of several pairs of labels and groups [n] of the same inputs, in one pass.

    ``size``: number of groups; other arguments as above.
    """
    excluded = None if view is None else torch.from_numpy(~view).to(inputs.device)

    def tally(logits: Tensor, part: slice) -> Tensor:
        return torch.stack([_tally(logits, labels[part], groups[part], size, excluded) for labels, groups in seen])

    total = torch.zeros(len(seen), 2 if excluded is None else 3, size, dtype=torch.float64)
    for found in _in_batches(workers, w, b, inputs, batch, tally):
        total += found
    scores = []
    for (loss, correct, *masked), (_, groups) in zip(total, seen, strict=True):
        count = torch.bincount(groups.cpu(), minlength=size)
        scores.append(Scores(correct.to(torch.int64), count, loss, masked[0].to(torch.int64) if masked else None))
    return scores


def _in_batches(
    workers: Workers, w: Tensor, b: Tensor, inputs: Tensor, batch: int, use: Callable[[Tensor, slice], Tensor]
) -> list[Tensor]:
    """``use(logits, part)`` of every batch of inputs, in order; an ensemble has the mean of its logits."""
    task, forward = workers.task, workers.forward
    members: list[tuple[Tensor, Tensor]] = list(zip(w, b, strict=True)) if w.dim() == 2 else [(w, b)]

    def one(_: WorkerState, start: int) -> Tensor:
        part = slice(start, start + batch)
        with torch.inference_mode():
            prepared = task.lay_out(task.data.prepare(inputs[part], task.dtype))
            outputs = [forward(*member, prepared) for member in members]
            return use(outputs[0] if len(outputs) == 1 else torch.stack(outputs).mean(0), part)

    return workers.map(one, range(0, len(inputs), batch))


def _tally(logits: Tensor, labels: Tensor, groups: Tensor, size: int, excluded: Tensor | None) -> Tensor:
    """Per group: summed cross-entropy, correct predictions, and those without the ``excluded`` labels; float64, CPU."""
    scores = logits.mT.contiguous()  # [L, B]: vectorized over samples, many times faster than over a few classes
    values = [-torch.log_softmax(scores, 0).gather(0, labels.unsqueeze(0)).squeeze(0).to(torch.float64)]
    values.append((scores.max(0).indices == labels).to(torch.float64))
    if excluded is not None:
        masked = scores.masked_fill(excluded.unsqueeze(1), -torch.inf)
        values.append((masked.max(0).indices == labels).to(torch.float64))
    tally = torch.zeros(len(values), size, dtype=torch.float64)  # on the CPU: a GPU adds in no fixed order
    return tally.scatter_add_(1, groups.cpu().expand(len(values), -1), torch.stack(values).cpu())


def evaluate_each(
    workers: Workers,
    models: tuple[Tensor, Tensor],
    of: Sequence[int],
    split: Split,
    shards: list[Ints],
    batch: int,
    concepts: tuple[int, int] | None = None,
) -> list[Scores]:
    """Scores of a model of its own for every client, each on its own samples, a shard of positions in a split.

    Args:
        models: parameters [M, d] and floating buffers [M, q]. of: the model of each client.
        concepts: number C of concepts and samples of the split under each; scores are then per concept and class, [C L].
    """
    W, B = models

    def client(_: WorkerState, row: int) -> Scores:
        return _of_client(workers, W[of[row]], B[of[row]], split, shards[row], batch, concepts)

    return workers.map(client, range(len(shards)))


def own_loss(workers: Workers, w: Tensor, b: Tensor, shard: Ints, batch: int) -> float:
    """Mean cross-entropy of one model on a client's training samples, in the calling thread; NaN without any."""
    loss = _of_client(workers, w, b, "train", shard, batch, None).mean_loss()
    return math.nan if loss is None else loss


def _of_client(
    workers: Workers, w: Tensor, b: Tensor, split: Split, shard: Ints, batch: int, concepts: tuple[int, int] | None
) -> Scores:
    """Scores of one model on the samples of one client; arguments as above."""
    task, forward = workers.task, workers.forward
    classes = task.data.num_classes
    size = classes if concepts is None else classes * concepts[0]
    total, count = torch.zeros(2, size, dtype=torch.float64), torch.zeros(size, dtype=torch.int64)
    positions = torch.from_numpy(shard).to(task.device)
    with torch.inference_mode():
        for part in torch.split(positions, batch) if len(positions) else ():
            inputs, labels = task.data.read(split, part)
            prepared = task.lay_out(task.data.prepare(inputs, task.dtype))
            logits = forward(w, b, prepared)
            groups = labels if concepts is None else labels + part // concepts[1] * classes
            total += _tally(logits, labels, groups, size, None)
            count += torch.bincount(groups.cpu(), minlength=size)
    return Scores(total[1].to(torch.int64), count, total[0])


def predict(workers: Workers, w: Tensor, b: Tensor, inputs: Tensor, batch: int) -> Tensor:
    """Logits of one model, or the mean logits of an ensemble, float64 [n, L] on the CPU; arguments as for :func:`evaluate`."""
    parts = _in_batches(workers, w, b, inputs, batch, lambda logits, _: logits.cpu().to(torch.float64))
    return torch.cat([torch.zeros(0, workers.task.data.outputs, dtype=torch.float64), *parts])


def predict_each(
    workers: Workers, models: Sequence[tuple[Tensor, Tensor]], inputs: Sequence[Tensor], batch: int
) -> list[Tensor]:
    """Outputs of each of some models for inputs of its own, as :func:`predict`; the models share the worker threads."""
    task, forward = workers.task, workers.forward

    def one(_: WorkerState, row: int) -> Tensor:
        with torch.inference_mode():
            parts = [task.lay_out(task.data.prepare(part, task.dtype)) for part in torch.split(inputs[row], batch)]
            return torch.cat([forward(*models[row], part).cpu().to(torch.float64) for part in parts])

    return workers.map(one, range(len(models)))


def features(workers: Workers, w: Tensor, b: Tensor, inputs: Tensor, batch: int) -> Tensor:
    """Features [n, q] of one model in evaluation mode, on the run's device; arguments as for :func:`evaluate`."""
    task = workers.task

    def forward(worker: WorkerState, start: int) -> Tensor:
        module = worker.frozen("features")
        module.load(w, b)
        with torch.no_grad(), task.mixed():
            prepared = task.lay_out(task.data.prepare(inputs[start : start + batch], task.dtype))
            return module.network.features(prepared).to(task.dtype)

    return torch.cat(workers.map(forward, range(0, max(len(inputs), 1), batch)))


def full_gradient(
    workers: Workers, points: Tensor, b: Tensor, shards: list[Ints], batch: int, counts: Tensor
) -> Tensor:
    """Gradient [C, d] of the objective, and nothing else, over all samples of each client; zero for a client without samples.

    Args:
        points: parameters [d] shared by all clients, or one row per client [C, d].
        b: floating buffers [q], used as in evaluation mode.
        shards: each client's positions in the training set. batch: samples per pass.
        counts: [C, L] label counts of the clients, for the objective.
    """
    task = workers.task
    gradients = torch.zeros(len(shards), points.shape[-1], dtype=task.dtype, device=task.device)

    def client(worker: WorkerState, row: int) -> None:
        module, shard = worker.module, torch.from_numpy(shards[row]).to(task.device)
        module.load(points if points.dim() == 1 else points[row], b)
        module.network.eval()
        module.g.zero_()
        for start in range(0, len(shard), batch):
            inputs, labels = task.batch(shard[start : start + batch])
            with task.mixed():
                losses = task.objective.loss(module.network.outputs(inputs), labels, counts[row])
            torch.autograd.backward(losses.sum() / len(shard))
        gradients[row].copy_(module.g)

    workers.map(client, range(len(shards)))
    return gradients


def pass_through(
    workers: Workers, w: Tensor, b: Tensor, shards: list[Ints], batch: int
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Features [n, q], logits [n, L] and labels [n] of every client's samples, in evaluation mode, in the order of its shard.

    ``w`` [d], or [C, d] for a model of each client's own; ``b`` [q].
    """
    task = workers.task

    def client(worker: WorkerState, row: int) -> tuple[Tensor, Tensor, Tensor]:
        module, positions = worker.frozen("pass_through"), torch.from_numpy(shards[row]).to(task.device)
        module.load(w if w.dim() == 1 else w[row], b)
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        with torch.no_grad(), task.mixed():
            for start in range(0, max(len(positions), 1), batch):
                inputs, labels = task.batch(positions[start : start + batch])
                features = module.network.features(inputs)
                parts.append((features, module.network.head(features), labels))
        features, logits, labels = (torch.cat(column) for column in zip(*parts, strict=True))
        return features, logits, labels

    return workers.map(client, range(len(shards)))
