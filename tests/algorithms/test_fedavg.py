"""FedAvg: closed forms and weights."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from support import (
    closest,
    deal,
    federation,
    images,
    run_rounds,
    settings,
    steady,
    timeline,
    trajectory,
    vectors,
    watch,
)


def gradient_at(w: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gradient of softmax regression's mean cross-entropy by autograd."""
    data = vectors()
    leaf = w.clone().requires_grad_()
    logits = functional.linear(data.train_inputs[index], leaf[:15].view(3, 5), leaf[15:])
    functional.cross_entropy(logits, data.train_labels[index]).backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_single_client_is_sgd_on_its_data(momentum: float) -> None:
    local = {"epochs": 2, "batch_size": 4, "lr": 0.1, "order": "stored", "momentum": momentum, "weight_decay": 0.01}
    models, _ = trajectory("fedavg", steady((11,), 3), vectors(), local=local)
    fed = federation(settings(), steady((11,), 1), vectors())
    y = torch.nn.Parameter(fed.parts.w0.clone())
    for w in models:
        optimizer = torch.optim.SGD([y], lr=0.1, momentum=momentum, weight_decay=0.01)
        for _ in range(2):
            for start in (0, 4, 8):
                y.grad = gradient_at(y.detach(), torch.arange(start, min(start + 4, 11)))
                optimizer.step()
        assert closest(w, y.detach()) < 1e-13


AVERAGING = [
    *("balancefl", "cfl_core_set", "cfl_regularization", "fedavg", "fedensemble", "fedgrab", "fedlesam", "fedprox"),
    *("fedsam", "moon", "scaffold"),
]


@pytest.mark.parametrize("chosen", [*({"name": name} for name in AVERAGING), {"name": "fedlesam", "base": "scaffold"}])
def test_the_server_step_scales_the_mean_displacement(chosen: dict[str, Any]) -> None:
    fed = federation(settings(algorithm={**chosen, "server_lr": 0.6}), steady((4, 9), 2), vectors())
    seen = watch(fed)
    run_rounds(fed)
    for r, w in seen:
        assert closest(w, r.w + 0.6 * (r.average() - r.w)) < 1e-14


@pytest.mark.slow
def test_batchnorm_statistics_are_averaged_with_the_weights() -> None:
    chosen = settings(model="cnn_svhn", local={"epochs": 1, "batch_size": 8, "lr": 0.01, "order": "stored"})
    together = federation(chosen, steady((2, 6), 1), images())
    state, _ = run_rounds(together)
    alone = [run_rounds(federation(chosen, timeline([shard], [{0: 0}]), images()))[0] for shard in deal((2, 6))]
    assert state.b.numel() > 0
    assert closest(state.b, 0.25 * alone[0].b + 0.75 * alone[1].b) < 1e-14
    assert closest(state.b, together.parts.b0) > 1e-4


@pytest.mark.parametrize(
    "algorithm",
    [{"name": "fedsam", "rho": 0.0}, {"name": "per_fedavg", "inner_lr": 0.0}, {"name": "fedopt", "optimizer": "adam"}],
    ids=lambda algorithm: algorithm["name"],
)
def test_batchnorm_statistics_are_those_of_fedavg(algorithm: dict[str, Any]) -> None:
    """A batch that is passed twice, or a pair of batches, counts once each; the server does not optimize statistics."""
    values = {"model": "cnn_svhn", "local": {"epochs": 2, "batch_size": 4, "lr": 1e-30}}
    (_, ours), (_, plain) = (trajectory(name, steady((3, 5), 1), images(), **values) for name in (algorithm, "fedavg"))
    assert plain.b.numel()
    assert closest(ours.b, plain.b) < 1e-12


def test_the_record_says_what_happened() -> None:
    local = {"epochs": 2, "batch_size": 4, "lr": 0.1, "order": "stored"}
    fed = federation(settings(local=local), steady((4, 9, 2), 2), vectors(), cohorts=[[0, 2], [1]])
    seen = watch(fed)
    state, records = run_rounds(fed)
    r, w = seen[0]
    assert (r.ids, r.n[:, 0].tolist(), r.steps[:, 0].tolist()) == ([0, 2], [4.0, 2.0], [2.0, 2.0])
    assert r.omega[:, 0].tolist() == [4 / 5, 2 / 5]
    assert (r.population, r.problem.clients, r.mean_steps) == (3, 3, 4)
    assert r.weights[:, 0].tolist() == [4 / 6, 2 / 6]
    assert r.label_counts.sum(1).tolist() == [4.0, 2.0]
    assert state.counts.tolist() == [1, 1, 1]
    row = records[0].row
    assert (row["present"], row["selected"], row["lr"]) == (3, 2, 0.1)
    assert row["drift"] == pytest.approx(float((r.W - r.w).norm(dim=-1).mean()), rel=1e-12)
    assert torch.equal(w, seen[1][0].w)


def test_the_recorded_loss_weighs_clients_by_their_samples() -> None:
    fed = federation(settings(local={"epochs": 2, "batch_size": 9, "lr": 1e-13}), steady((3, 8), 1), vectors())
    _, records = run_rounds(fed)
    logits = functional.linear(fed.parts.data.train_inputs[:11], fed.parts.w0[:15].view(3, 5), fed.parts.w0[15:])
    wanted = functional.cross_entropy(logits, fed.parts.data.train_labels[:11]).item()
    assert records[0].row["train_loss"] == pytest.approx(wanted, abs=1e-9)
