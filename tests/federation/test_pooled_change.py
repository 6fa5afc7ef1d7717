"""Accuracy of the clients that stay, over all their samples and over clients."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtide.federation.scoring.erased import Erased
from fedtide.world.dataset import Origins
from support import federation, settings, steady, vectors

SIZES = [4, 5, 15]


def test_large_clients_count_more_over_samples_than_over_clients() -> None:
    """Client 0 is erased; two others hold 5 and 15 test samples."""
    owner = np.repeat(np.arange(3), SIZES)
    data = replace(vectors(24), origins=Origins(owner, owner, clients=("a", "b", "c")))
    assert data.test_inputs is not None
    assert data.test_labels is not None
    inputs, labels = data.test_inputs, data.test_labels
    world = replace(steady(SIZES, 2), origin_of_client=np.arange(3))
    parts = federation(settings(model="softmax_regression", evaluation={"splits": ["test"]}), world, data).parts
    models = torch.randn(2, 18, generator=torch.Generator().manual_seed(1)).to(parts.w0)

    def accuracy(w: Tensor, of: list[int]) -> float:
        rows = np.isin(owner, of)
        logits = inputs[rows].to(w) @ w[:15].view(3, 5).T + w[15:]
        return float((logits.argmax(1) == labels[rows]).double().mean())

    erased = Erased(parts.evaluator, np.array([0]), 1, np.arange(4), np.array([1, 2]), np.arange(3))
    model, exact = ((w, parts.b0) for w in models)
    found = erased.measures(1, model, exact, model, model)
    each = [accuracy(models[0], [client]) - accuracy(models[1], [client]) for client in (1, 2)]
    pooled = accuracy(models[0], [1, 2]) - accuracy(models[1], [1, 2])
    assert found["retained_change"] == pytest.approx(sum(each) / 2)
    assert found["retained_pooled_change"] == pytest.approx(pooled)
    assert abs(pooled - sum(each) / 2) > 0.01
