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
from support import closest, federation, largest_gap, run_rounds, settings, steady, trajectory, vectors, watch

SIZES = (5, 2, 7, 4)
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.1, "weight_decay": 0.01}
ONE_STEP = {"steps": 1, "batch_size": 3, "lr": 0.1}
COHORTS = [[0, 2], [1, 2, 3], [2], [0, 1, 3], [3]]
MAIN_TEXT = {"name": "fedssg", "variant": "main_text"}
UNIFORM = {"name": "fedavg", "weighting": "uniform"}
FAMILY = ["feddyn", "feddc", "fedssg", "fedvra"]
EXECUTORS = pytest.mark.parametrize("executor", ["threads", "stacked"])


def models(algorithm: Any, sizes: tuple[int, ...] = SIZES, **values: Any) -> list[Tensor]:
    """Global models of five rounds with changing cohorts."""
    common: dict[str, Any] = {"local": LOCAL, "cohorts": COHORTS, **values}
    return trajectory(algorithm, steady(sizes, 5), vectors(), **common)[0]


def ssg(**values: Any) -> dict[str, Any]:
    """Settings of FedSSG without a gate: q = beta."""
    return {"name": "fedssg", "gate": False, **values}


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
def test_the_first_round_trains_as_fedavg(algorithm: str) -> None:
    """With h = c = 0 and one local step all start with the same gradient; the penalty on theta - w is zero there."""
    rows = []
    for name in (algorithm, "fedavg"):
        fed = federation(settings(algorithm=name, local=ONE_STEP), steady(SIZES, 1), vectors(), cohorts=COHORTS)
        seen = watch(fed)
        run_rounds(fed)
        rows.append(seen[0][0].W)
    assert closest(*rows) < 1e-15


@pytest.mark.parametrize("algorithm", FAMILY)
def test_server_means_are_those_of_the_clients(algorithm: str) -> None:
    chosen = settings(algorithm=algorithm, local=LOCAL)
    fed = federation(chosen, steady(SIZES, 5), vectors(), cohorts=COHORTS)
    fed.parts.participation.share = 0.5  # type: ignore[attr-defined]
    state, _ = run_rounds(fed)
    omega = torch.tensor(SIZES, dtype=torch.float64).unsqueeze(1) * len(SIZES) / sum(SIZES)
    assert closest(state.server["h_mean"], state.memory["h"].mean(0)) < 1e-14
    assert float(state.server["h_mean"].norm()) > 1e-3
    if "c" in state.server:
        assert closest(state.server["c"], (omega * state.memory["c_k"]).mean(0)) < 1e-14
        assert float(state.server["c"].norm()) > 1e-3


@pytest.mark.parametrize("algorithm", FAMILY)
def test_three_models_are_evaluated(algorithm: str) -> None:
    """sel: mean of the participants; all: of everybody's latest model, the first one if never drawn; cld: what is sent."""
    fed = federation(settings(algorithm=algorithm, local=LOCAL), steady(SIZES, 2), vectors(), cohorts=COHORTS)
    seen = watch(fed)
    state = initial_state(fed.parts)
    latest = fed.parts.w0.expand(len(SIZES), -1).clone()
    with torch.no_grad():
        for t in range(2):
            record = fed.run_round(state)
            r, w = seen[t]
            latest[COHORTS[t]] = r.W
            for suffix, model in (("", w), ("_participants", r.W.mean(0)), ("_all", latest.mean(0))):
                loss = fed.parts.evaluator.scores((model, state.b)).mean_loss(fed.parts.timeline.labels_at(t))
                assert record.row[f"test_loss{suffix}"] == pytest.approx(loss, abs=1e-12)
            assert closest(latest_mean(fed.parts, state, t), latest.mean(0)) < 1e-15
    fed.parts.workers.close()


@EXECUTORS
def test_one_step_without_a_gate_is_feddc_and_without_correction_feddyn(executor: str) -> None:
    """theta = w in the only step, where the gradients of all penalties agree."""
    common = {"local": ONE_STEP, "engine": {"executor": executor, "workers": 1}}
    ours, feddc = (models(name, **common) for name in (ssg(alpha=0.3), {"name": "feddc", "alpha": 0.3}))
    assert largest_gap(ours, feddc) < 1e-14
    off = {"alpha": 0.3, "correction": False}
    plain, feddyn = (models(name, **common) for name in (ssg(**off), {"name": "feddyn", "alpha": 0.3}))
    assert largest_gap(plain, feddyn) < 1e-14
    assert largest_gap(ours, plain) > 1e-3
    many, several = (models(name) for name in (ssg(alpha=0.3), {"name": "feddc", "alpha": 0.3}))
    assert largest_gap(many, several) > 1e-4


@pytest.mark.parametrize("correction", [True, False])
@pytest.mark.parametrize("penalty", [True, False])
def test_a_weight_of_zero_is_uniform_fedavg(correction: bool, penalty: bool) -> None:
    chosen = ssg(beta=0.0, alpha=0.7, correction=correction, penalty=penalty)
    ours, state = trajectory(chosen, steady(SIZES, 5), vectors(), local=LOCAL, cohorts=COHORTS)
    assert largest_gap(ours, models(UNIFORM)) < 1e-15
    assert not any(value.any() for value in (*state.server.values(), state.memory["h"], state.memory["c_k"]))


def test_after_the_first_round_the_mean_of_the_gated_displacements_is_added() -> None:
    """w_1 = mean_S theta + (1/N) sum_S q_i Delta_i with q_i = 1 / (T p) + beta, T as planned."""
    for horizon, T in ((None, 2), (10, 10)):
        algorithm = {"name": "fedssg", "alpha": 0.3, "beta": 0.5, "horizon": horizon}
        chosen = settings(algorithm=algorithm, local=LOCAL, participation={"name": "fixed", "fraction": 0.5})
        fed = federation(chosen, steady(SIZES, 2), vectors())
        seen, state = watch(fed), initial_state(fed.parts)
        with torch.no_grad():
            fed.run_round(state)
        fed.parts.workers.close()
        ((r, w),) = seen
        q = 1 / (T * 0.5) + 0.5
        assert closest(w, r.W.mean(0) + q * (r.W - r.w).sum(0) / 4) < 1e-14


@pytest.mark.parametrize(
    "algorithm", ["fedavg", "fedprox", "scaffold", "feddyn", "feddc", "fedssg", "fedvra", "fednova"]
)
def test_the_order_of_full_batches_does_not_matter(algorithm: str) -> None:
    full = {"epochs": 2, "batch_size": 50, "lr": 0.1}
    shuffled, stored = (models(algorithm, local={**full, "order": order}) for order in ("shuffled", "stored"))
    assert largest_gap(shuffled, stored) < 1e-14


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


def test_without_penalty_and_memory_it_is_scaffold() -> None:
    """h kept at zero, K steps for everybody, equal sizes: FedSSG with q = 1 and FedDC with alpha = 0 are SCAFFOLD."""
    local = {**LOCAL, "schedule": "exponential", "decay": 0.8}
    sizes = (4, 4, 4, 4)
    reference = {"name": "scaffold", "variant": "fedssg", "weighting": "uniform"}
    scaffold = models(reference, sizes, local=local)
    for algorithm in (ssg(penalty=False), {"name": "feddc", "alpha": 0.0}):
        fed = federation(settings(algorithm=algorithm, local=local), steady(sizes, 5), vectors(), cohorts=COHORTS)
        seen, state, ours = watch(fed), initial_state(fed.parts), []
        with torch.no_grad():
            for t in range(5):
                fed.run_round(state)
                state.w = seen[t][0].average()
                state.memory["h"].zero_()
                state.server["h_mean"].zero_()
                ours.append(state.w)
        fed.parts.workers.close()
        assert largest_gap(ours, scaffold) < 1e-13


def test_feddc_without_correction_is_feddyn() -> None:
    ours, feddyn = (
        models({"name": name, "alpha": 0.2, **more})
        for name, more in (("feddc", {"correction": False}), ("feddyn", {}))
    )
    assert largest_gap(ours, feddyn) < 1e-13
    clipped = {"local": {**LOCAL, "clip": 0.1}}  # what is clipped differs
    first, second = (
        models(name, **clipped)
        for name in ({"name": "feddc", "alpha": 0.2, "correction": False}, {"name": "feddyn", "alpha": 0.2})
    )
    assert largest_gap(first, second) > 1e-6


def test_feddyn_needs_both_switches_to_be_fedavg() -> None:
    assert largest_gap(models({"name": "feddyn", "alpha": 0.0}), models(UNIFORM)) > 1e-2


def test_fedvra_is_feddyn_or_fedprox() -> None:
    sizes = (4, 4, 4, 4)
    feddyn = models({"name": "feddyn", "alpha": 0.2}, sizes)
    assert largest_gap(models({"name": "fedvra", "gamma": 0.2}, sizes), feddyn) < 1e-14
    prox = models({"name": "fedprox", "mu": 0.2, "weighting": "uniform"})
    assert largest_gap(models({"name": "fedvra", "gamma": 0.2, "a": 0.0}), prox) < 1e-14
    doubled = models({"name": "fedvra", "gamma": 0.2, "a": 0.0, "d": 2.0})
    assert closest(doubled[0], 2 * prox[0]) < 1e-14


def test_servers_agree_where_everybody_takes_part() -> None:
    """With one beta, gates k / (T p) and k N / (T |S|) agree where everybody is there, and so do the means."""

    def both(cohorts: list[list[int]]) -> list[list[Tensor]]:
        return [
            models({"name": "fedssg", "variant": v, "beta": 1.0}, cohorts=cohorts) for v in ("released", "algorithm_1")
        ]

    assert largest_gap(*both([[0, 1, 2, 3]] * 5)) < 1e-14
    assert largest_gap(*both(COHORTS)) > 1e-3


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


def test_the_scale_of_the_correction() -> None:
    """c_i+ = c_i - c - q Delta_i / (K eta_0): K = 2 epochs of 3 batches for the mean client, eta_0 undecayed."""
    local = {**LOCAL, "schedule": "exponential", "decay": 0.5, "weight_decay": 0.0}
    fed = federation(settings(algorithm=ssg(beta=0.5), local=local), steady((7, 7), 2), vectors())
    seen, state = watch(fed), initial_state(fed.parts)
    with torch.no_grad():
        for t in range(2):
            before = state.memory["c_k"] - state.server["c"]
            fed.run_round(state)
            r, _ = seen[t]
            assert closest(state.memory["c_k"], before - 0.5 * (r.W - r.w) / (6 * 0.1)) < 1e-13
    fed.parts.workers.close()


def test_feddcs_control_variates_use_the_first_or_the_current_learning_rate() -> None:
    """In round 2 the only difference is a factor decay^-1 on what Delta adds."""
    local = {**LOCAL, "schedule": "exponential", "decay": 0.5}
    change = {}
    for control_lr in ("initial", "current"):
        chosen = settings(algorithm={"name": "feddc", "control_lr": control_lr}, local=local)
        fed = federation(chosen, steady((4, 4), 2), vectors())
        state = initial_state(fed.parts)
        with torch.no_grad():
            fed.run_round(state)
            before = state.memory["c_k"] - state.server["c"]
            fed.run_round(state)
        fed.parts.workers.close()
        change[control_lr] = state.memory["c_k"] - before
    assert closest(change["current"], 2 * change["initial"]) < 1e-13
