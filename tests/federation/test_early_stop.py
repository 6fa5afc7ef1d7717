"""Local training that a client ends by its own loss, in every executor."""

from typing import Any

import pytest
import torch

from federation.test_ranks import SIZES, compare
from fedtide.core.errors import SettingsError
from fedtide.federation.assembly.choose import refuse_early_stop
from fedtide.federation.federation import Federation
from fedtide.federation.gradient_rounds import GradientRounds
from fedtide.federation.state import initial_state
from fedtide.federation.types import RunState
from fedtide.methods.algorithms.base import Round
from fedtide.settings.reading.overrides import deep_merge
from fedtide.training.engine.plan import step_count
from support import assert_same, closest, federation, run_rounds, settings, steady, vectors, watch

pytestmark = pytest.mark.usefixtures("drop_in")

LOCAL = {"epochs": 5, "batch_size": 3, "lr": 0.2, "momentum": 0.5, "momentum_scope": "client"}
EXECUTORS = ("threads", "stacked", "resident")
SOME = 0.35  # a gamma at which some clients stop after two epochs and others never


def made(
    gamma: float | None = None, executor: str = "threads", rounds: int = 2, algorithm: str = "flash", **values: Any
) -> Federation:
    model = values.pop("model", "normed" if executor == "resident" else {"name": "mlp", "widths": [6]})
    local = deep_merge({"local": LOCAL}, {"local": values.pop("local", {})})["local"]
    engine = {"executor": "auto" if executor == "resident" else executor, "workers": 2}
    chosen = {"name": algorithm, "early_stop": gamma} if algorithm == "flash" else algorithm
    chosen = settings(algorithm=chosen, local=local, model=model, engine=engine, **values)
    return federation(chosen, steady(SIZES, rounds), vectors())


def run(fed: Federation) -> tuple[RunState, list[Any], list[Round]]:
    seen = watch(fed)
    state, records = run_rounds(fed)
    return state, [record.row for record in records], [r for r, _ in seen]


def epochs(r: Round) -> list[int]:
    """Local epochs that each client of the first round has taken."""
    return [int(steps) // -(-size // 3) for steps, size in zip(r.steps[:, 0], SIZES, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS)
def test_where_nobody_stops_no_bit_changes(executor: str) -> None:
    usual, rows, _ = run(made(None, executor))
    fed = made(1e9, executor)
    fed.parts.algorithm.early_stop = lambda epoch, before, now: False
    state, others, _ = run(fed)
    assert_same(usual, state)
    for row, other in zip(rows, others, strict=True):
        other.pop("gradients")
        assert {**row, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_who_stops_after_two_epochs_has_trained_and_paid_for_two(executor: str) -> None:
    costs = {"costs": {"wireless": True}}
    (short, rows, rounds), (state, others, stopped) = (
        run(made(None, executor, local={"epochs": 2}, **costs)),
        run(made(1e9, executor, **costs)),
    )
    assert_same(short, state)
    for r, other in zip(rounds, stopped, strict=True):
        assert torch.equal(r.steps, other.steps)
        assert torch.equal(r.effective_steps, other.effective_steps)
    for row, other in zip(rows, others, strict=True):
        assert other.pop("gradients") == pytest.approx(float(rounds[0].steps.mean()))
        assert other["energy"] > row["energy"]  # of the passes for the losses
        aside = dict.fromkeys(("seconds", "latency", "energy", "kappa"), 0)  # kappa is in units of the planned steps
        assert row | aside == other | aside
    assert others[-1]["latency"] < run(made(None, executor, **costs))[1][-1]["latency"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_client_that_stops_is_as_if_it_had_planned_so(executor: str) -> None:
    """And the others go on as they would have."""
    _, (row, *_), (r, *_) = run(made(SOME, executor))
    taken = epochs(r)
    assert {2, 5} <= set(taken)
    lengths = {amount: run(made(None, executor, 1, local={"epochs": amount}))[2][0].W for amount in set(taken)}
    for client, amount in enumerate(taken):
        assert closest(r.W[client], lengths[amount][client]) <= (1e-14 if executor == "stacked" else 0)
    assert row["gradients"] == pytest.approx(float(r.steps.mean()))


@pytest.mark.parametrize("batches_span_epochs", [False, True])
def test_epochs_of_every_unit_end_where_as_much_work_would(batches_span_epochs: bool) -> None:
    for unit in ("epochs", "mean_epochs"):
        local = {unit: 4, "batches_span_epochs": batches_span_epochs}
        fed = made(1e9, rounds=1, local=local)
        r = run(fed)[2][0]
        two = fed.parts.settings.local.with_work(2)
        mean = sum(SIZES) / len(SIZES)
        assert r.steps[:, 0].tolist() == [step_count(size, mean, two) for size in SIZES]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_any_number_of_processes_stops_the_same_clients(executor: str) -> None:
    local = {"epochs": 5, "batch_size": 3, "lr": 0.2}
    for values in ({}, {"momentum": 0.5, "momentum_scope": "client"}):  # sums of models alone, and all rows
        compare({"name": "flash", "early_stop": SOME}, executor, 3, local | values, communication=False)


def test_work_in_steps_has_no_epochs_to_stop_after() -> None:
    """As in an initializer's gradient rounds with steps of their own."""
    fed, usual = made(1e9), made(None)
    for parts in (fed.parts, usual.parts):
        state = initial_state(parts)
        parts.trained = GradientRounds(parts, state, 0).train(state.w, state.b, 1, 0.1, 9, None)  # type: ignore[attr-defined]
    assert torch.equal(fed.parts.trained, usual.parts.trained)  # type: ignore[attr-defined]


def test_a_clock_that_plans_when_work_is_done_refuses_it() -> None:
    chosen = settings(algorithm="fedbuff", local={"epochs": 2}, mode="async")
    fed = made(SOME)
    with pytest.raises(SettingsError, match=r"^mode: async plans when a client is done"):
        refuse_early_stop(chosen, fed.parts.algorithm)
