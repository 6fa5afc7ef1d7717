"""Scores and full gradients against the plain computation."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedtide.federation.federation import Federation
from fedtide.training.engine.passes.evaluation import Scores, evaluate, full_gradient, predict
from support import closest, deal, federation, images, settings, steady, vectors


def made(workers: int = 1, model: str = "softmax_regression", decay: float = 0.0) -> Federation:
    """A federation whose initial model is not symmetric."""
    data = vectors() if model == "softmax_regression" else images(side=8)
    local = {"weight_decay": decay, "clip": 0.01, "flip": 0.5 if model != "softmax_regression" else 0.0}
    return federation(settings(model=model, engine={"workers": workers}, local=local), steady((4, 5), 1), data)


@pytest.mark.parametrize(("workers", "batch"), [(1, 60), (3, 7), (1, 1000)])
def test_scores_are_those_of_the_whole_test_set(workers: int, batch: int) -> None:
    fed = made(workers)
    inputs, labels = fed.parts.data.test_inputs, fed.parts.data.test_labels
    scores = evaluate(fed.parts.workers, fed.parts.w0, fed.parts.b0, inputs, labels, batch)
    fed.parts.workers.close()
    with torch.no_grad():
        logits = fed.parts.task.network.double()(inputs)
    right, losses = logits.argmax(1) == labels, functional.cross_entropy(logits, labels, reduction="none")
    assert scores.accuracy() == pytest.approx(right.double().mean().item(), abs=1e-12)
    assert scores.mean_loss() == pytest.approx(losses.mean().item(), abs=1e-12)
    for label in range(3):
        view = np.arange(3) == label
        assert scores.accuracy(view) == pytest.approx(right[labels == label].double().mean().item(), abs=1e-12)
        assert scores.mean_loss(view) == pytest.approx(losses[labels == label].mean().item(), abs=1e-12)
    assert scores.per_class() == [scores.accuracy(np.arange(3) == label) for label in range(3)]


def test_samples_can_be_counted_under_groups_of_ones_own() -> None:
    fed = made()
    inputs, labels = fed.parts.data.test_inputs, fed.parts.data.test_labels
    groups = torch.arange(len(labels)) % 7 + 1
    scores = evaluate(fed.parts.workers, fed.parts.w0, fed.parts.b0, inputs, labels, 8, groups=groups)
    parts = [
        evaluate(fed.parts.workers, fed.parts.w0, fed.parts.b0, inputs[own], labels[own], 8)
        for own in (groups == 3, groups == 7)
    ]
    fed.parts.workers.close()
    assert scores.count.tolist() == torch.bincount(groups).tolist()
    assert [int(scores.correct[group]) for group in (3, 7)] == [int(part.correct.sum()) for part in parts]
    assert [float(scores.loss[group]) for group in (3, 7)] == pytest.approx([float(part.loss.sum()) for part in parts])


def test_logits_keep_the_precision_of_the_model() -> None:
    fed = made()
    inputs = fed.parts.data.test_inputs
    logits = predict(fed.parts.workers, fed.parts.w0, fed.parts.b0, inputs, 7)
    fed.parts.workers.close()
    with torch.no_grad():
        assert closest(logits, fed.parts.task.network.double()(inputs)) < 1e-15
    assert predict(fed.parts.workers, fed.parts.w0, fed.parts.b0, inputs[:0], 7).shape == (0, 3)


def test_a_class_without_samples_has_no_accuracy() -> None:
    scores = Scores(torch.tensor([1, 0]), torch.tensor([2, 0]), torch.tensor([0.5, 0.0], dtype=torch.float64))
    assert scores.per_class() == [0.5, None]
    assert scores.accuracy(np.array([False, True])) is None
    assert scores.mean_loss(np.array([False, True])) is None


@pytest.mark.parametrize(("model", "batch"), [("softmax_regression", 3), ("cnn_svhn", 3), ("cnn_svhn", 100)])
def test_the_full_gradient_is_that_of_the_mean_loss_alone(model: str, batch: int) -> None:
    """No decay, clipping or augmentation; evaluation mode; zero without samples."""
    fed = made(2, model, decay=0.5)
    shards = [*deal((4, 1)), np.zeros(0, dtype=np.int64), *deal((6,), start=5)]
    rng = torch.Generator().manual_seed(1)
    points = fed.parts.w0 + 0.1 * torch.randn(4, len(fed.parts.w0), generator=rng, dtype=torch.float64)
    counts = torch.ones(4, 3, dtype=torch.float64)
    own = full_gradient(fed.parts.workers, points, fed.parts.b0, shards, batch, counts)
    shared = full_gradient(fed.parts.workers, points[0], fed.parts.b0, shards, batch, counts)
    fed.parts.workers.close()
    network = fed.parts.task.network.double().eval()
    for row, shard in enumerate(shards):
        for gradient, point in ((own[row], points[row]), (shared[row], points[0])):
            torch.nn.utils.vector_to_parameters(point, network.parameters())
            network.zero_grad()
            if len(shard):
                index = torch.from_numpy(shard)
                functional.cross_entropy(
                    network(fed.parts.data.train_inputs[index]), fed.parts.data.train_labels[index]
                ).backward()
            wanted = [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]
            assert closest(gradient, torch.cat([value.reshape(-1) for value in wanted])) < 1e-12
