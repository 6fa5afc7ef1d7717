"""FedEnsemble: FedAvg that predicts with the participants' logits added up."""

import torch
from torch.func import functional_call

from support import federation, run_rounds, settings, steady, vectors, watch

LOCAL = {"steps": 3, "batch_size": 3, "lr": 0.5}


def test_it_trains_as_fedavg_and_adds_up_logits() -> None:
    """With a hidden layer; for a linear model, logits of the mean are the mean of the logits."""
    data, world = vectors(), steady((20, 20, 20), 3)
    common = {"local": LOCAL, "model": {"name": "mlp", "widths": [6]}}
    fed, plain = (federation(settings(algorithm=name, **common), world, data) for name in ("fedensemble", "fedavg"))
    seen = watch(fed)
    state, records = run_rounds(fed)
    other, rows = run_rounds(plain)
    assert torch.equal(state.w, other.w)
    network = fed.parts.task.network.double()
    for (r, _), record, row in zip(seen, records, rows, strict=True):
        assert record.row["test_accuracy"] == row.row["test_accuracy"]
        logits = torch.stack([functional_call(network, r.problem.layout.named(w), (data.test_inputs,)) for w in r.W])
        right = logits.sum(0).argmax(1) == data.test_labels
        assert record.row["test_accuracy_ensemble"] == float(right.double().mean())
    assert any(record.row["test_accuracy_ensemble"] != record.row["test_accuracy"] for record in records)


def test_it_can_be_what_is_reported() -> None:
    world = steady((20, 20, 20), 2)
    chosen = {"local": LOCAL, "algorithm": "fedensemble"}
    usual = run_rounds(federation(settings(**chosen), world, vectors()))[1]
    named = run_rounds(federation(settings(**chosen, evaluation={"model": "ensemble"}), world, vectors()))[1]
    for first, second in zip(usual, named, strict=True):
        assert second.row["test_accuracy"] == first.row["test_accuracy_ensemble"]
        assert second.row["test_accuracy_global"] == first.row["test_accuracy"]
