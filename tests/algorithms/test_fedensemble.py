"""FedEnsemble: FedAvg that predicts with the participants' logits added up."""

from __future__ import annotations

import torch
from torch.func import functional_call

from support import federation, play, settings, steady, vectors, watch

LOCAL = {"amount": 3, "unit": "steps", "batch_size": 3, "lr": 0.5}


def test_it_trains_as_fedavg_and_adds_up_logits() -> None:
    """With a hidden layer; for a linear model, logits of the mean are the mean of the logits."""
    data, world = vectors(), steady((20, 20, 20), 3)
    common = {"local": LOCAL, "model": {"name": "mlp", "widths": [6]}}
    fed, plain = (federation(settings(algorithm=name, **common), world, data) for name in ("fedensemble", "fedavg"))
    seen = watch(fed)
    state, reports = play(fed)
    other, rows = play(plain)
    assert torch.equal(state.w, other.w)
    network = fed.parts.task.network.double()
    for (r, _), report, row in zip(seen, reports, rows, strict=True):
        assert report.row["test_accuracy"] == row.row["test_accuracy"]
        logits = torch.stack([functional_call(network, r.layout.named(w), (data.test_inputs,)) for w in r.W])
        right = logits.sum(0).argmax(1) == data.test_labels
        assert report.row["test_accuracy_ensemble"] == float(right.double().mean())
    assert any(report.row["test_accuracy_ensemble"] != report.row["test_accuracy"] for report in reports)


def test_it_can_be_what_is_reported() -> None:
    world = steady((20, 20, 20), 2)
    chosen = {"local": LOCAL, "algorithm": "fedensemble"}
    usual = play(federation(settings(**chosen), world, vectors()))[1]
    named = play(federation(settings(**chosen, evaluation={"reported": "ensemble"}), world, vectors()))[1]
    for first, second in zip(usual, named, strict=True):
        assert second.row["test_accuracy"] == first.row["test_accuracy_ensemble"]
        assert second.row["test_accuracy_cloud"] == first.row["test_accuracy"]
