"""The convergence bound of dynamic initialization: its terms, softmax regression in closed form, and real runs."""

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.world.building.build import build_timeline
from fedtide.world.storage.prepared import load_data

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "experiments/dynamic_init/bound.py"))
Constants, Problem, Work = (SCRIPT[name] for name in ("Constants", "Problem", "Work"))
drift, largest_rate, remarks, terms = (SCRIPT[name] for name in ("drift", "largest_rate", "remarks", "terms"))

WORK = Work(np.array([10.0, 30.0]), np.array([5.0, 10.0]), np.array([2.0, 3.0]))
CONSTANTS = Constants(beta=2.0, theta=3.0, zeta2=0.5, sigma2=np.array([4.0, 8.0]))
SIZES, FEATURES, CLASSES = (7, 3, 12), 5, 4
FULL_BATCH: dict[str, Any] = {
    "algorithm": "fedavg",
    "validation": 0.0,
    "scenario": {"name": "sessions", "num_devices": 4, "num_sessions": 4, "rounds_per_session": 6},
    "partition": "dirichlet_session",
    "model": "softmax_regression",
    "local": {"epochs": 1, "batch_size": 2000, "lr": 0.05},
    "engine": {"workers": 1},
    "tracking": {"mlflow": False},
}


def test_the_step_size_condition_cannot_be_met_from_four_steps_on() -> None:
    """The bracket 1/2 - (1/e - 1)^2 for e = 1..5, as listed in the discussion of the theorem."""
    brackets = [largest_rate(1.0, steps) for steps in (1, 2, 3, 4, 5)]
    assert brackets == pytest.approx([0.5, 0.25, 0.0556, -0.0625, -0.14], abs=5e-5)
    assert largest_rate(4.0, 1) == 0.125


def test_drift_solves_its_condition_with_equality() -> None:
    beta, lr, e = 2.0, 0.05, 3.0
    found = drift(beta, lr, e)
    assert found == pytest.approx(4 * beta**2 * lr**2 * e * (e - 1) * (1 + found))
    assert drift(beta, lr, 1.0) == 0
    assert math.isnan(drift(beta, 1.0, 3.0))
    assert math.isnan(drift(1.0, math.sqrt(0.5 / 8), 2.0))  # q = 1/2: Lambda would be 1


def test_every_term_in_the_open() -> None:
    found = terms(WORK, CONSTANTS, lr=0.01, descent=0.5)
    scale = 1 / (1 - drift(2.0, 0.01, 3.0))
    assert found == pytest.approx(
        {
            "a": 2 * 0.5 / 0.01 * scale,
            "b": 4 * 2 * 9 * 0.01 * scale * (4 * 2 * 5 / (5 * 100) + 8 * 3 * 20 / (10 * 900)),
            "b_tight": 4 * 2 * 9 * 0.01 * scale * (4 * 2 * 5 / (5 * 400) + 8 * 3 * 20 / (10 * 1200)),
            "c": 4 * 4 * 1e-4 / 40 * scale * (1 * 0.5 * 9 * 4 / 5 + 2 * (2 / 3) * 9 * 8 / 10),
            "d": 8 * 4 * 1e-4 * 3 * 2 * 0.5 * scale,
            "bound": sum(found[name] for name in "abcd"),
        }
    )
    printed = terms(WORK, CONSTANTS, 0.01, 0.5, theta_power=1)
    assert printed["c"] == pytest.approx(found["c"] / 3)
    assert [printed[name] for name in "abd"] == [found[name] for name in "abd"]


def problem(seed: int = 0, classes: int = CLASSES) -> tuple[Any, list[Tensor], list[Tensor]]:
    rng = np.random.default_rng(seed)
    inputs = [torch.from_numpy(rng.normal(size=(size, FEATURES))) for size in SIZES]
    labels = [torch.from_numpy(rng.integers(0, classes, size)) for size in SIZES]
    return Problem(inputs, labels, classes), inputs, labels


def point(seed: int = 1, classes: int = CLASSES) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(classes, FEATURES + 1)))


def loss(m: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(x, m[:, :-1], m[:, -1]), y)


def test_losses_and_gradients_are_those_of_autograd() -> None:
    made, inputs, labels = problem()
    m = point().requires_grad_()
    losses = [loss(m, x, y) for x, y in zip(inputs, labels, strict=True)]
    mean = sum(size * part for size, part in zip(SIZES, losses, strict=True)) / sum(SIZES)
    assert made.loss(m.detach()) == pytest.approx(float(mean.detach()), abs=1e-12)
    gradients = made.gradients(m.detach())
    for found, part in zip(gradients, losses, strict=True):
        torch.testing.assert_close(found, torch.autograd.grad(part, m, retain_graph=True)[0])
    torch.testing.assert_close(made.gradient(gradients), torch.autograd.grad(mean, m)[0])


def test_dissimilarity_is_the_weighted_variance_of_the_gradients() -> None:
    made, _, _ = problem()
    gradients = made.gradients(point())
    offsets = (gradients - made.gradient(gradients)).flatten(1)
    assert made.dissimilarity(gradients) == pytest.approx(float(made.weights @ offsets.square().sum(1)), abs=1e-12)
    assert made.dissimilarity(gradients[:1].repeat(len(SIZES), 1, 1)) == pytest.approx(0, abs=1e-12)


def test_beta_bounds_every_secant_and_is_attained_by_two_even_classes() -> None:
    made, _, _ = problem()
    for seed in range(20):
        a, b = point(seed), point(seed + 100)
        ratio = (made.gradients(a) - made.gradients(b)).flatten(1).norm(dim=1) / (a - b).norm()
        assert float(ratio.max()) <= made.smoothness()
    made, inputs, labels = problem(classes=2)
    origin = torch.zeros(2 * (FEATURES + 1), dtype=torch.float64)
    hessians = [
        torch.autograd.functional.hessian(lambda flat, x=x, y=y: loss(flat.view(2, -1), x, y), origin)
        for x, y in zip(inputs, labels, strict=True)
    ]
    largest = max(float(torch.linalg.eigvalsh(hessian)[-1]) for hessian in hessians)
    assert made.smoothness() == pytest.approx(largest, rel=1e-10)


def test_theta_is_the_largest_ratio_of_pairs_of_one_label() -> None:
    made, _, labels = problem()
    m, found = point(), []
    for x, y in zip(made.features, labels, strict=True):
        each = [
            torch.outer(functional.softmax(m @ row, 0) - functional.one_hot(label, CLASSES), row)
            for row, label in zip(x, y, strict=True)
        ]
        pairs = [(i, j) for i in range(len(y)) for j in range(i) if y[i] == y[j]]
        found += [float((each[i] - each[j]).norm() / (x[i] - x[j]).norm()) for i, j in pairs]
    assert made.lipschitz(m, 5000, seed=0) == pytest.approx(max(found), rel=1e-9)
    assert made.lipschitz(m, 1, seed=0) <= max(found)
    twins = Problem([torch.ones(4, 2, dtype=torch.float64)], [torch.tensor([0, 1, 0, 1])], 2)
    assert twins.lipschitz(torch.zeros(2, 3, dtype=torch.float64), 50, seed=0) == 0


def test_scatter_is_the_sum_of_squared_distances_to_the_mean() -> None:
    made, inputs, _ = problem()
    expected = [float(x.var(0, correction=1).sum() * (len(x) - 1)) for x in inputs]
    assert made.scatter().tolist() == pytest.approx(expected)


def measured(shared_data: Path, spread: str = "scatter", **changes: Any) -> pd.DataFrame:
    settings = Params({**FULL_BATCH, "data": {"name": "digits", "root": str(shared_data)}, **changes}).run()
    data = load_data(settings)
    return SCRIPT["measured"](settings, data, build_timeline(settings, data), spread=spread, pairs=20)


@pytest.mark.slow
def test_losses_at_the_start_of_a_session(shared_data: Path) -> None:
    previous, restart, average = (
        measured(shared_data, initializer=name) for name in ("previous", "restart", "average")
    )
    assert (previous["F_init"] == previous["F_previous"]).all()
    assert (restart["F_init"] == restart["F_first"])[2:].all()
    assert average["F_init"][2:].tolist() == pytest.approx(average["F_average"][2:].tolist(), abs=1e-12)
    assert previous["F_average"].isna().tolist() == [True, True, False, False]


@pytest.mark.slow
def test_several_steps_on_small_batches_have_all_terms(shared_data: Path) -> None:
    local = {"steps": 2, "batch_size": 16, "lr": 0.005}
    rows = measured(shared_data, local=local)
    for row in rows.itertuples():
        assert 0 < row.drift < 1
        assert min(row.b, row.b_tight, row.c, row.d) > 0
        assert row.b == pytest.approx(4 * row.b_tight, rel=0.05)  # four clients of nearly one size
        assert row.gradient <= row.a + row.b_tight + row.c + row.d
    assert (measured(shared_data, "variance", local=local)["sigma"] < rows["sigma"] / 10).all()


def test_remarks_name_what_the_analysis_leaves_out() -> None:
    assert remarks(Params(FULL_BATCH).run()) == []
    loose = Params({**FULL_BATCH, "algorithm": "fedprox", "local": {"momentum": 0.9}, "participation": "bernoulli"})
    assert len(remarks(loose.run())) == 3
    other = {"epochs": 6, "clip": 0.1, "flip": 0.5, "lr": 0.05}
    algorithm = {"name": "fedavg", "weighting": "uniform"}
    found = remarks(Params({**FULL_BATCH, "algorithm": algorithm, "local": other, "communication": "intervals"}).run())
    keys = [line.split()[0].rstrip(":,") for line in found]
    assert keys == ["algorithm.weighting", "communication", "local.clip", "local.flip"]


def test_what_the_analysis_does_not_cover_is_refused(shared_data: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="known only for model softmax_regression with objective cross_entropy"):
        measured(shared_data, model="mlp")
    file = tmp_path / "trace.csv"
    file.write_text("client,join,leave\n0,0,4\n1,2,4\n")
    with pytest.raises(
        SettingsError, match=r"^scenario trace: in round 3 clients or their data change inside a session"
    ):
        measured(shared_data, scenario={"name": "trace", "file": str(file)}, partition="iid")
    scenario = {"name": "trace", "file": str(file), "session_at_change": True}
    assert measured(shared_data, scenario=scenario, partition="iid")["rounds"].tolist() == [2, 2]
