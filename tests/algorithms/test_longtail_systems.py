"""BalanceFL, FedGraB and CReFF: reductions to FedAvg, losses and gradients worked out by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedtide.methods.algorithms import balancefl, creff, fedgrab
from fedtide.methods.algorithms.base import ForwardPass
from fedtide.methods.algorithms.creff import slope
from fedtide.training.engine.local import TermBatch
from fedtide.training.models.base import Outputs
from support import dataset, federation, largest_gap, run_rounds, settings, steady, trajectory, vectors, watch

THREADS = {"executor": "threads", "workers": 1}
SIZES = (20, 12, 8)
FULL = {"epochs": 3, "batch_size": 20, "lr": 0.2}


def random(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labeled() -> Any:
    """40 samples of 3 classes; every client has all of them."""
    return dataset(random(40, 4), torch.arange(40) % 3, 3)


def one_batch(head: torch.nn.Linear, features: Tensor, labels: list[int], **more: Any) -> TermBatch:
    """A batch as a term sees it, the teacher being a head of its own."""
    logits = head(features)
    teacher = Outputs(logits.flip(-1), features)
    return TermBatch(
        Outputs(logits, features), torch.tensor(labels), {"teacher": teacher}, head, torch.tensor(7), **more
    )


@pytest.mark.slow
def test_balancefl_without_its_parts_is_fedavg() -> None:
    plain, _ = trajectory("fedavg", steady((20, 12), 2), labeled(), local=FULL, engine=THREADS)
    for strength in (0.0, 1.0):  # a batch of all classes has nothing to distil
        own = {"name": "balancefl", "spread": 0.0, "entropy": 0.0, "strength": strength}
        models, _ = trajectory(own, steady((20, 12), 2), labeled(), local=FULL, engine=THREADS)
        assert largest_gap(plain, models) < 1e-12


def test_balancefls_loss_by_hand() -> None:
    """Classes 0 and 2 occur, 1 and 3 do not; the fourth sample is padding."""
    head = torch.nn.Linear(5, 4).double()
    constants = {"root": torch.zeros(5, 5, dtype=torch.float64), "chance": torch.ones(4, dtype=torch.float64)}
    real = torch.tensor([True, True, True, False])
    batch = one_batch(head, random(4, 5), [0, 2, 2, 1], constants=constants, real=real)
    chosen = balancefl.BalanceFl.Settings(strength=0.7, temperature=3.0, entropy=0.1)
    z, teacher = batch.outputs.logits[:3], batch.references["teacher"].logits[:3]
    present, absent = [0, 2], [1, 3]
    cross = functional.cross_entropy(z[:, present], torch.tensor([0, 1, 1]), reduction="none")
    p = z[:, present].softmax(1)
    entropy = -(p * p.log()).sum(1)
    kd = -((teacher[:, absent] / 3).softmax(1) * (z[:, absent] / 3).log_softmax(1)).sum(1)
    found = balancefl.BalanceFl(chosen)._loss(batch)[:3]
    torch.testing.assert_close(found, cross + 0.7 * kd - 0.1 * 3 * entropy, rtol=1e-12, atol=1e-12)


def test_balancefls_perturbations_have_the_covariance_of_the_classes() -> None:
    features, labels = random(60, 3, seed=1), torch.arange(60) % 2
    root = balancefl._root(balancefl._within_class_covariance(ForwardPass(features, random(60, 2), labels)))
    expected = sum(0.5 * torch.cov(features[labels == c].T) for c in (0, 1))
    torch.testing.assert_close(root.T @ root, expected, rtol=1e-9, atol=1e-9)
    alone = balancefl._within_class_covariance(ForwardPass(features[:2], random(2, 2), labels[:2]))
    assert balancefl._root(alone).abs().max() < 1e-12

    head = torch.nn.Linear(3, 3, bias=True).double()
    with torch.no_grad():
        head.weight.copy_(torch.eye(3))
    constants = {"root": root, "chance": torch.tensor([1.0, 0.25], dtype=torch.float64)}
    batch = one_batch(head, random(20000, 3), [0, 1] * 10000, constants=constants)
    with torch.no_grad():
        shift = balancefl.BalanceFl(balancefl.BalanceFl.Settings())._shift(batch)
    assert (torch.cov(shift[0::2].T) - expected).abs().max() < 0.06
    assert float((shift[1::2].abs().sum(1) > 0).double().mean()) == pytest.approx(0.25, abs=0.02)


def test_fedgrab_without_gains_is_fedavg_with_binary_cross_entropies() -> None:
    data = vectors(20)
    own = {"name": "fedgrab", "Kp": 0.0, "Ki": 0.0, "Kd": 0.0}
    fed = federation(
        settings(algorithm=own, local={"epochs": 1, "batch_size": 20, "lr": 0.5}, engine=THREADS),
        steady((20,), 1),
        data,
    )
    w0 = fed.parts.w0.clone().requires_grad_()
    named = fed.parts.layout.named(w0)
    z = functional.linear(data.train_inputs, named["head.weight"], named["head.bias"])
    target = functional.one_hot(data.train_labels, 3).double()
    loss = functional.binary_cross_entropy_with_logits(z, target, reduction="none").sum(1).mean()
    (gradient,) = torch.autograd.grad(loss, w0)
    state, _ = run_rounds(fed)
    torch.testing.assert_close(state.w, w0.detach() - 0.5 * gradient, rtol=1e-12, atol=1e-12)


def test_fedgrabs_weight() -> None:
    x = torch.tensor([-200.0, 0.0, 200.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(
        fedgrab.f(x), torch.tensor([0.0, 1.0, 10.0, (10 / 9) / (1 / 9 + 0.1353352832)], dtype=torch.float64)
    )


def test_fedgrabs_controllers_after_one_and_two_rounds() -> None:
    """Of the first round by hand: e = mean |gradient| on other samples minus own ones, u = (Kp + Ki + Kd) e."""
    data = vectors(20)
    own = {"name": "fedgrab", "Kp": 2.0, "Ki": 0.5, "Kd": 0.25, "bypass": False}
    fed = federation(settings(algorithm=own, local={"epochs": 1, "lr": 1e-9}, engine=THREADS), steady((20,), 2), data)
    named = fed.parts.layout.named(fed.parts.w0)
    p = functional.linear(data.train_inputs, named["head.weight"], named["head.bias"]).sigmoid()
    target = functional.one_hot(data.train_labels, 3).double()
    positive, negative = (target * (1 - p)).mean(0), ((1 - target) * p).mean(0)
    seen = watch(fed)
    run_rounds(fed)
    torch.testing.assert_close(seen[1][0].extra["balancer"][0, 4], negative - positive, rtol=1e-6, atol=1e-9)
    u1 = 2.75 * (negative - positive)
    e2 = negative + fedgrab.f(-u1) * negative - positive - fedgrab.f(u1) * positive
    e1 = negative - positive
    u2 = u1 + 2.0 * (e2 - e1) + 0.5 * e2 + 0.25 * (e2 - 2 * e1)
    torch.testing.assert_close(seen[1][0].extra["balancer"][0, 2], u2, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_fedgrab_leaves_out_the_first_open_class_always_and_others_ever_less() -> None:
    active = torch.tensor([False, True, True, True])
    hits = torch.stack([fedgrab._bypassed(torch.tensor(key), active) for key in range(3000)]).double().mean(0)
    second = 0.1**0.5
    assert hits[0] == 0
    assert hits[1] == 1
    assert float(hits[2]) == pytest.approx(second, abs=0.03)
    assert float(hits[3]) == pytest.approx(second * 0.1 + (1 - second) * second, abs=0.03)


def test_fedgrabs_tail_is_what_is_rarer_than_the_mean() -> None:
    data = dataset(random(20, 4), torch.tensor([0] * 12 + [1] * 6 + [2] * 2), 3)
    for prior, count in (("oracle", 2), ("weight_norm", None)):
        own = {"name": "fedgrab", "open": "tail", "prior": prior}
        fed = federation(settings(algorithm=own, engine=THREADS), steady((12, 8), 1), data)
        seen = watch(fed)
        run_rounds(fed)
        found = fed.parts.algorithm._open(seen[0][0])  # type: ignore[attr-defined]
        assert 0 < int(found.sum()) < 3
        assert count is None or found.tolist() == [False, True, True]


@pytest.mark.slow
def test_creffs_backbone_is_fedavgs_to_the_bit() -> None:
    chosen = {
        "local": {"epochs": 2, "batch_size": 4, "lr": 0.1},
        "model": {"name": "mlp", "widths": [6]},
        "engine": THREADS,
    }
    plain, _ = trajectory("fedavg", steady(SIZES, 3), labeled(), **chosen)
    own = {"name": "creff", "per_class": 4, "match_steps": 3, "head_epochs": 2}
    models, state = trajectory(own, steady(SIZES, 3), labeled(), **chosen)
    head = 6 * 3 + 3
    for a, b in zip(plain, models, strict=True):
        assert torch.equal(a[:-head], b[:-head])
        assert not torch.equal(a[-head:], b[-head:])
    assert torch.equal(state.server["average"], plain[-1])


def test_creffs_gradients_of_a_head() -> None:
    features, labels = random(9, 5), torch.tensor([0, 0, 0, 2, 2, 2, 2, 3, 3])
    weight, bias = random(4, 5, seed=1), random(4, seed=2)
    found = creff._gradients(ForwardPass(features, random(9, 4), labels), weight, bias)
    for c in (0, 2, 3):
        head = torch.cat([weight, bias.unsqueeze(1)], 1).requires_grad_()
        z = functional.linear(features[labels == c], head[:, :-1], head[:, -1])
        (expected,) = torch.autograd.grad(functional.cross_entropy(z, labels[labels == c]), head)
        torch.testing.assert_close(found[c], expected, rtol=1e-12, atol=1e-12)
    assert not found[1].any()
    shared = creff._mean_over_clients([found, 3 * found], torch.tensor([[3, 0, 4, 2], [1, 0, 1, 0]]))
    torch.testing.assert_close(shared[0], 2 * found[0])
    torch.testing.assert_close(shared[3], 4 * found[3])


def test_creff_leaves_features_that_already_agree_and_approaches_others() -> None:
    features, labels = random(12, 5), torch.arange(3).repeat_interleave(4)
    weight, bias = random(3, 5, seed=1), random(3, seed=2)
    real = creff._gradients(ForwardPass(features, random(12, 3), labels), weight, bias)
    assert slope(features.view(3, 4, 5), weight, bias, real).abs().max() < 1e-9

    def distance(F: Tensor) -> float:
        own = creff._gradients(ForwardPass(F.flatten(0, 1), random(12, 3), labels), weight, bias)
        rows = 1 - functional.cosine_similarity(own[..., :-1], real[..., :-1], dim=-1)
        return float(rows.sum() + (1 - functional.cosine_similarity(own[..., -1], real[..., -1], dim=-1)).sum())

    F = random(3, 4, 5, seed=5)
    start = distance(F)
    for _ in range(60):
        F = F - 0.1 * slope(F, weight, bias, real)
    assert distance(F) < 0.7 * start


def test_creffs_traffic() -> None:
    fed = federation(settings(algorithm="creff", model={"name": "mlp", "widths": [6]}), steady((20, 20), 1), labeled())
    head, size = 6 * 3 + 3, fed.parts.layout.size
    assert (fed.parts.payload().down, fed.parts.payload().up) == (4 * (size + head), 4 * (size + 3 * head))
