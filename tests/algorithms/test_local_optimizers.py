"""Algorithms with other local optimizers than SGD: who refuses them, and what the others' formulas mean then."""

from typing import Any

import pytest
import torch

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from support import clock, closest, federation, images, largest_gap, light, run_rounds, settings, steady, trajectory
from support import vectors as vector_data

LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.02, "optimizer": "adam"}
REFUSED = {
    *("scaffold", "scaffold_released", "fednova", "feddc", "fedssg"),
    *("fedcm", "mofedsam", "fedwcm", "fedwcm_x", "mime", "mimelite"),
    *("apfl", "pfedme"),
}
"""With default settings: displacements stand for gradients, or the method takes local steps or is a local optimizer itself."""


@pytest.mark.parametrize("name", sorted(plugins.names("algorithms")))
def test_every_algorithm_trains_with_adam_or_refuses_it(name: str) -> None:
    chosen = settings(algorithm=light(name), model={"name": "mlp", "widths": [4]}, local=LOCAL, **clock(name))
    data, world = images() if name == "cfl_generative" else vector_data(), steady((6, 3, 9), 2)
    if name in REFUSED:
        with pytest.raises(
            SettingsError, match=rf"^local\.optimizer = adam: .* algorithm {name}, .* for sgd only"
        ) as caught:
            federation(chosen, world, data)
        assert "\n" not in str(caught.value)
        return
    state, _ = run_rounds(federation(chosen, world, data))
    assert bool(torch.isfinite(state.w).all())
    plain = chosen.model_copy(
        update={"local": chosen.local.model_copy(update={"optimizer": settings().local.optimizer})}
    )
    other, _ = run_rounds(federation(plain, world, data))
    pairs = [(other.w, state.w), *((other.memory[name], rows) for name, rows in state.memory.items())]
    assert max(closest(*pair) for pair in pairs) > 1e-4


@pytest.mark.parametrize(
    ("algorithm", "fits"),
    [
        ({"name": "scaffold", "option": "I"}, True),
        ({"name": "feddc", "correction": False}, True),
        ({"name": "fedssg", "correction": False}, True),
        ({"name": "fedssg", "variant": "main_text"}, True),
        ({"name": "fedlesam", "base": "feddyn"}, True),
        ({"name": "fedlesam", "base": "scaffold"}, False),
        ({"name": "fednova", "mu": 0.1}, False),
        ({"name": "fedssg", "variant": "algorithm_1"}, False),
    ],
    ids=str,
)
def test_what_is_refused_depends_on_the_formulas_in_use(algorithm: Any, fits: bool) -> None:
    chosen = settings(algorithm=algorithm, local={**LOCAL, "optimizer": "adagrad"})
    if fits:
        assert bool(torch.isfinite(run_rounds(federation(chosen, steady((5, 4), 2), vector_data()))[0].w).all())
    else:
        with pytest.raises(SettingsError, match=r"^local\.optimizer = adagrad"):
            federation(chosen, steady((5, 4), 2), vector_data())


CURVATURES = [0.5, 1.0, 2.0]
MINIMA = [[1.0, -2.0, 0.5], [-4.0, 1.0, 3.0], [7.0, 0.0, -1.0]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "unbiased"),
    [
        ({"name": "fedavg"}, False),
        ({"name": "feddyn", "alpha": 0.5}, True),
        ({"name": "fedvra", "gamma": 0.5}, True),
        ({"name": "fedspeed", "a": 0.5, "mix": 0.0}, True),
        ({"name": "feddc", "alpha": 0.5, "correction": False}, True),
        ({"name": "scaffold", "option": "I"}, True),
    ],
    ids=str,
)
def test_methods_that_correct_objectives_or_gradients_find_the_global_minimum(
    quadratics: Any, algorithm: Any, unbiased: bool
) -> None:
    """Their clients minimize a corrected objective, by any means; FedAvg's mean of local minima is somewhere else."""
    data, problem = quadratics([2, 2, 2], CURVATURES, MINIMA)
    local = {"steps": 15, "batch_size": 2, "lr": 1.0, "optimizer": "adagrad"}
    a, z = torch.tensor(CURVATURES, dtype=torch.float64).unsqueeze(1), torch.tensor(MINIMA, dtype=torch.float64)
    found, _ = trajectory(algorithm, steady([2, 2, 2], 40), data, local=local, **problem)
    assert (closest(found[-1], (a * z).sum(0) / a.sum()) < 1e-3) is unbiased


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "slowmo", "beta": 0.0},
        {"name": "mifa", "weighting": "samples"},
        {"name": "fedvarp", "weighting": "samples"},
    ],
    ids=str,
)
def test_units_of_a_learning_rate_cancel(algorithm: Any) -> None:
    """Updates over the round's rate are sums of the optimizer's directions; with everybody there, the method is FedAvg."""
    local = {**LOCAL, "schedule": "exponential", "decay": 0.7}
    runs = [trajectory(chosen, steady((5, 2, 7), 4), vector_data(), local=local)[0] for chosen in ("fedavg", algorithm)]
    assert largest_gap(*runs) < 1e-13


@pytest.mark.parametrize("scope", ["round", "client"])
def test_averages_inside_a_round_are_of_models_not_of_moments(scope: str) -> None:
    """Clients with the same data that average after every step are one client; with others the moments stay apart."""
    local = {"steps": 4, "batch_size": 6, "lr": 0.02, "optimizer": "adam", "momentum_scope": scope}
    communication = {"name": "intervals", "intervals": "a", "budget": {"name": "fix"}}
    data = vector_data(6)
    data.train_inputs[3:], data.train_labels[3:] = data.train_inputs[:3], data.train_labels[:3]
    together, _ = trajectory(
        "fedavg", steady((3, 3), 3), data, local={**local, "order": "stored"}, communication=communication
    )
    alone, _ = trajectory("fedavg", steady((3,), 3), data, local={**local, "order": "stored"})
    assert largest_gap(together, alone) < 1e-12
    other, state = trajectory("fedavg", steady((3, 3), 3), vector_data(6), local=local, communication=communication)
    if scope == "client":
        assert closest(*state.memory["optimizer.exp_avg"]) > 1e-3
    assert bool(torch.isfinite(other[-1]).all())


def test_a_weight_decay_that_is_the_optimizer_s_is_no_part_of_a_control_variate(quadratics: Any) -> None:
    data, problem = quadratics([2, 2], [1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]])
    for optimizer, decay in (("adamw", 0.0), ("adam", 0.1)):
        local = {**LOCAL, "optimizer": optimizer, "weight_decay": 0.1}
        start = torch.tensor([3.0, 4.0], dtype=torch.float64)
        _, state = trajectory(
            {"name": "scaffold", "option": "I"}, steady([2, 2], 1, classes=2), data, local=local, start=start, **problem
        )
        gradient = torch.tensor([[1.0], [2.0]]) * (start - torch.eye(2, dtype=torch.float64))
        assert closest(state.memory["c_k"], gradient + decay * start) < 1e-12
