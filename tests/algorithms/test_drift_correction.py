"""FedDyn, FedDC, FedSSG, FedVRA: what they have in common, exact identities between them, invariants of their memories."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.federation.assembly.footprint import advice
from fedtide.federation.scoring.scores import latest_mean
from fedtide.federation.state import initial_state
from fedtide.methods.algorithms.base import RunPreview
from fedtide.methods.algorithms.fedavg import FedAvg
from support import closest, federation, largest_gap, run_rounds, settings, steady, stepped, trajectory, vectors, watch

SIZES = (5, 2, 7, 4)
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.1, "weight_decay": 0.01}
COHORTS = [[0, 2], [1, 2, 3], [2], [0, 1, 3], [3]]
MAIN_TEXT = {"name": "fedssg", "variant": "main_text"}
UNIFORM = {"name": "fedavg", "weighting": "uniform"}
FAMILY = ["feddyn", "feddc", "fedssg", "fedvra"]


def models(algorithm: Any, sizes: tuple[int, ...] = SIZES, **values: Any) -> list[Tensor]:
    """Global models of five rounds with changing cohorts."""
    common: dict[str, Any] = {"local": LOCAL, "cohorts": COHORTS, **values}
    return trajectory(algorithm, steady(sizes, 5), vectors(), **common)[0]


def test_the_algorithm_sees_the_run_as_planned() -> None:
    """Sizes 5, 2, 7, 4 in batches of three: two batches a pass for a client of mean size, of which there are two passes."""
    given: list[RunPreview] = []
    schedule = {"schedule": "exponential", "decay": 0.5}
    chosen = settings(local={**LOCAL, **schedule}, participation={"name": "fixed", "fraction": 0.5})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FedAvg, "advice", lambda self, run: given.append(run) or [])
        advice(federation(chosen, steady(SIZES, 3), vectors()).parts)
    assert given == [
        RunPreview(lr=0.1, last_lr=0.025, steps=4, rounds=3, participation_fraction=0.5, smallest=2 / 4.5, size=18)
    ]


@pytest.mark.parametrize("algorithm", FAMILY)
def test_three_models_are_evaluated(algorithm: str) -> None:
    """sel: mean of the participants; all: of everybody's latest model, the first one if never drawn; cld: what is sent."""
    fed = federation(settings(algorithm=algorithm, local=LOCAL), steady(SIZES, 2), vectors(), cohorts=COHORTS)
    seen = watch(fed)
    latest = fed.parts.w0.expand(len(SIZES), -1).clone()
    for t, (state, record) in enumerate(stepped(fed)):
        r, w = seen[t]
        latest[COHORTS[t]] = r.W
        for suffix, model in (("", w), ("_participants", r.W.mean(0)), ("_all", latest.mean(0))):
            loss = fed.parts.evaluator.scores((model, state.b)).mean_loss(fed.parts.timeline.labels_at(t))
            assert record.row[f"test_loss{suffix}"] == pytest.approx(loss, abs=1e-12)
        assert closest(latest_mean(fed.parts, state, t), latest.mean(0)) < 1e-15


@pytest.mark.slow
def test_the_main_text_trains_as_fedprox_in_the_first_round_and_as_fedavg_without_a_gate() -> None:
    """Everybody takes part: the gate is 1 up to the 1e-6 of eq. 5."""
    sizes, everybody = (4, 4, 4, 4), [[0, 1, 2, 3]] * 5
    trained = []
    for algorithm in ({**MAIN_TEXT, "alpha": 0.7}, {"name": "fedprox", "mu": 0.7}):
        fed = federation(settings(algorithm=algorithm, local=LOCAL), steady(sizes, 1), vectors())
        seen = watch(fed)
        run_rounds(fed)
        trained.append(seen[0][0].W)
    assert closest(*trained) < 1e-6
    ungated = models({**MAIN_TEXT, "alpha": 0.7, "gate": False}, sizes, cohorts=everybody)
    assert largest_gap(ungated, models(UNIFORM, sizes, cohorts=everybody)) < 1e-14


@pytest.mark.slow
def test_fedvra_is_feddyn_or_fedprox() -> None:
    sizes = (4, 4, 4, 4)
    feddyn = models({"name": "feddyn", "alpha": 0.2}, sizes)
    assert largest_gap(models({"name": "fedvra", "gamma": 0.2}, sizes), feddyn) < 1e-14
    prox = models({"name": "fedprox", "mu": 0.2, "weighting": "uniform"})
    assert largest_gap(models({"name": "fedvra", "gamma": 0.2, "a": 0.0}), prox) < 1e-14
    doubled = models({"name": "fedvra", "gamma": 0.2, "a": 0.0, "d": 2.0})
    assert closest(doubled[0], 2 * prox[0]) < 1e-14


def gates(p: float, cohorts: list[list[int]], **values: Any) -> list[Tensor]:
    """Gates of the participants in every round of five."""
    chosen = settings(algorithm={"name": "fedssg", **values}, local=LOCAL)
    fed = federation(chosen, steady(SIZES, 5), vectors(), cohorts=cohorts)
    fed.parts.participation.share = p  # type: ignore[attr-defined]
    _, records = run_rounds(fed)
    assert [record.clients["client"] for record in records] == cohorts
    return [torch.tensor(record.clients["gate"], dtype=torch.float64) for record in records]


def test_gates_count_participations_against_expectation() -> None:
    counts = [[1, 1], [1, 2, 1], [3], [2, 2, 2], [3]]
    expected = {
        "released": lambda t: 5 * 0.4,
        "algorithm_1": lambda t: 5 * len(COHORTS[t]) / 4,
        "main_text": lambda t: (t + 1) * 0.4 + 1e-6,
    }
    planned = torch.cat(gates(0.4, COHORTS)) / torch.cat(gates(0.4, COHORTS, horizon=10))
    assert closest(planned, torch.full_like(planned, 2.0)) < 1e-14
    for variant, divisor in expected.items():
        for t, found in enumerate(gates(0.4, COHORTS, variant=variant)):
            assert closest(found, torch.tensor(counts[t], dtype=torch.float64) / divisor(t)) < 1e-14
        assert not torch.cat(gates(0.4, COHORTS, variant=variant, gate=False)).any()


def test_a_gated_penalty_has_the_gate_as_its_weight() -> None:
    """A single client in a single round: the gate t p is 1 with p = 1 and 1/2 with p = 2."""
    world, local = steady((6,), 1), {"epochs": 3, "batch_size": 3, "lr": 0.1}
    found = []
    for alpha, p in ((0.4, 1.0), (0.8, 2.0), (0.4, 2.0)):
        chosen = settings(algorithm={**MAIN_TEXT, "alpha": alpha}, local=local)
        fed = federation(chosen, world, vectors(), cohorts=[[0]])
        fed.parts.participation.share = p  # type: ignore[attr-defined]
        state = initial_state(fed.parts)
        state.memory["h"].fill_(1.0)
        seen = watch(fed)
        run_rounds(fed, state=state)
        found.append(seen[0][0].W)
    assert closest(found[0], found[1]) < 1e-6
    assert closest(found[0], found[2]) > 1e-3


def test_feddcs_control_variates_use_the_first_or_the_current_learning_rate() -> None:
    """In round 2 the only difference is a factor decay^-1 on what Delta adds."""
    local = {**LOCAL, "schedule": "exponential", "decay": 0.5}
    change = {}
    for control_lr in ("initial", "current"):
        chosen = settings(algorithm={"name": "feddc", "control_lr": control_lr}, local=local)
        fed = federation(chosen, steady((4, 4), 2), vectors())
        state, _ = run_rounds(fed, 1)
        before = state.memory["c_k"] - state.server["c"]
        run_rounds(fed, state=state)
        change[control_lr] = state.memory["c_k"] - before
    assert closest(change["current"], 2 * change["initial"]) < 1e-13


A = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64)
Z = torch.tensor([[1.0, -2.0, 0.5], [-4.0, 1.0, 3.0], [7.0, 0.0, -1.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedvra", "gamma": 0.3, "a": 2.0},
        {"name": "feddc", "alpha": 0.3},
        {"name": "fedssg", "alpha": 0.3},
        {"name": "fedssg", "alpha": 0.3, "penalty": False},
    ],
    ids=str,
)
def test_a_stationary_state_is_left_unchanged(quadratics: Any, algorithm: dict[str, Any]) -> None:
    """Memories that cancel the clients' gradients at w*: alpha h - c_k + grad f = 0, mean h = 0, c = 0, whoever takes part."""
    data, chosen = quadratics([3, 3, 3], A[:, 0].tolist(), Z.tolist())
    local = {"steps": 4, "batch_size": 2, "lr": 0.2}
    cohorts = [[0, 1], [1, 2], [0, 2], [0, 1, 2], [1]]
    fed = federation(settings(algorithm=algorithm, local=local, **chosen), steady([3, 3, 3], 5), data, cohorts=cohorts)
    w = (A * Z).sum(0) / A.sum()
    gradient = A * (w - Z)
    h = torch.tensor([[1.0, 2.0, -3.0], [0.5, -1.0, 1.0], [-1.5, -1.0, 2.0]], dtype=torch.float64)  # any with mean 0
    weight = 0.3 if algorithm.get("penalty", True) else 0.0
    memories = {"h": h, "c_k": weight * h + gradient} if "alpha" in algorithm else {"h": -gradient / 0.3}
    fed.parts.w0 = w
    state = initial_state(fed.parts)
    for name, rows in memories.items():
        state.memory[name].copy_(rows)
    run_rounds(fed, state=state)
    assert closest(state.w, w) < 1e-12
    for name, rows in memories.items():
        assert closest(state.memory[name], rows) < 1e-12
    for name, vector in state.server.items():
        assert float(vector.abs().max()) < 1e-12, name
