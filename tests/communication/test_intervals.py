"""DynamicFL's intervals: upload steps, what is charged, special cases, theorems."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.core.randomness import Randomness
from fedtide.federation import federation as rounds
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.state import initial_state
from fedtide.federation.traffic import charge
from fedtide.methods.communication._budgets import DynamicBudget, FixBudget, GivenBudget
from fedtide.methods.communication.intervals import uploads
from fedtide.methods.costs.wireless import Segment
from fedtide.training.engine.executors.executor import Advance
from fedtide.training.engine.local import Cohort
from golden import families
from golden.families.case import Case
from support import Listed, closest, federation, images, largest_gap, run_rounds, settings, steady, trajectory, vectors

CONTENT = json.loads((Path(__file__).parents[1] / "golden" / "dynamicfl.json").read_text(encoding="utf-8"))
LOCAL = {"steps": 6, "batch_size": 3, "lr": 0.1}
EVERYBODY = {"name": "dynamic", "beta": 1.0}


def exchange(intervals: str, **values: Any) -> dict[str, Any]:
    """Settings in which everybody can afford everything."""
    return {"name": "intervals", "intervals": intervals, "budget": EVERYBODY, **values}


@pytest.mark.parametrize("case", CONTENT["upload_steps"])
def test_upload_steps(case: dict[str, Any]) -> None:
    assert uploads(case["L"], case["interval"], case["schedule"]) == case["steps"]


@given(length=st.integers(1, 400), interval=st.integers(1, 500))
def test_uploads_are_multiples_of_the_interval_and_the_last_step(length: int, interval: int) -> None:
    paper, legacy = uploads(length, interval), uploads(length, interval, "legacy")
    assert paper == [step for step in range(1, length + 1) if step % interval == 0 or step == length]
    missing = [length - 1] if interval < length and (length - 1) % interval == 0 else []
    assert legacy == [step for step in paper if step not in missing]


def played(run: dict[str, Any]) -> tuple[Case, Federation]:
    """The federation of a golden run."""
    case = families.read(CONTENT, run)
    start = torch.tensor(case.fields["w0"], dtype=torch.float64)
    fed = federation(settings(**case.settings), case.world, case.data, cohorts=case.cohorts, start=start)
    case.script(fed)
    return case, fed


@pytest.mark.parametrize("number", range(len(CONTENT["runs"])))
def test_every_client_is_charged_its_own_exchanges(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger and wireless model get them client by client; the history has their sum and kappa."""
    run = CONTENT["runs"][number]
    _, fed = played(run)
    charged: list[list[int]] = []

    def note(totals: dict[str, float], plan: RoundPlan, segments: Sequence[Segment], *costs: Any) -> int:
        charged.append([sum(row in segment.rows for segment in segments) for row in range(len(plan.ids))])
        return charge(totals, plan, segments, *costs)

    monkeypatch.setattr(rounds, "charge", note)
    state, records = run_rounds(fed)
    assert charged == run["exchanges"]
    assert [record.row["exchanges"] for record in records] == list(map(sum, run["exchanges"]))
    np.testing.assert_allclose([record.row["kappa"] for record in records], run["khat"], atol=1e-9)
    assert state.totals["kappa"] / len(records) == pytest.approx(run["khat_mean"], abs=1e-9)
    assert state.totals["bytes_down"] == fed.parts.payload().down * sum(map(sum, charged))


def test_partial_exchanges_cost_seconds_and_joules() -> None:
    def of(intervals: str) -> Any:
        chosen = settings(local=LOCAL, communication=exchange(intervals), costs={"wireless": True, "bandwidth": 1e4})
        return run_rounds(federation(chosen, steady((5, 7, 4), 2), vectors()))[0].totals

    once, often = of("6"), of("1")
    assert often["bytes_up"] == 6 * once["bytes_up"]
    assert often["latency"] > once["latency"]
    assert often["energy"] > once["energy"]


def test_the_cost_is_relative_to_clients_of_mean_size() -> None:
    """Sizes 6, 2 and 7 in batches of two: a client of mean size takes 3 steps a pass, whoever takes part."""
    chosen = settings(
        local=LOCAL | {"steps": None, "epochs": 2, "batch_size": 2}, participation={"name": "fixed", "fraction": 0.4}
    )
    fed = federation(chosen, steady((6, 2, 7), 6), vectors())
    assert {record.row["kappa"] for record in run_rounds(fed)[1]} == {round(1 / 6, 9)}


def test_a_segment_has_the_samples_of_its_own_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six samples in batches of two make three a pass: two steps of the segment 1-2, two of 3-4, the rest."""
    chosen = settings(local=LOCAL | {"batch_size": 2}, communication=exchange("2-4", selection={"name": "random"}))
    fed = federation(chosen, steady((6, 5, 6), 1), vectors())
    fed.parts.communication.selection = Listed([[1]])  # type: ignore[attr-defined]
    found: list[Segment] = []
    monkeypatch.setattr(rounds, "charge", lambda *args: (found.extend(args[2]), charge(*args))[1])
    run_rounds(fed)
    assert found == [Segment([1], [4]), Segment([0, 1, 2], [8, 3, 8]), Segment([0, 1, 2], [4, 3, 4])]


@pytest.mark.parametrize("intervals", ["6", "g", "7-g", "6-g"])
@pytest.mark.parametrize("algorithm", ["fedavg", {"name": "fedprox", "mu": 0.3}, "fedopt"])
def test_intervals_of_a_whole_round_are_one_average_per_round(algorithm: Any, intervals: str) -> None:
    world, data = steady((5, 2, 7), 3), vectors()
    plain, _ = trajectory(algorithm, world, data, local=LOCAL)
    found, state = trajectory(algorithm, world, data, local=LOCAL, communication=exchange(intervals))
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    assert state.totals["kappa"] / 3 == pytest.approx(1 / 6)


def grouped(intervals: str, groups: list[list[int]], **values: Any) -> list[Tensor]:
    """Models after each round with listed groups."""
    chosen = settings(local=LOCAL, communication=exchange(intervals, **values))
    fed = federation(chosen, steady((5, 2, 7), len(groups)), vectors())
    fed.parts.communication.selection = Listed(groups)  # type: ignore[attr-defined]
    states, state = [], initial_state(fed.parts)
    with torch.no_grad():
        for _ in groups:
            fed.run_round(state)
            states.append(state.w.clone())
    fed.parts.workers.close()
    return states


def test_groups_of_none_one_and_all() -> None:
    """Nobody and one client alone is the long interval for all, everybody the short one."""
    fedavg = grouped("6", [[], []])
    assert largest_gap(grouped("a-g", [[], []]), fedavg) == 0
    assert largest_gap(grouped("a-g", [[1], [0]]), fedavg) == 0
    assert largest_gap(grouped("2-g", [[0, 1, 2]] * 2), grouped("2", [[], []])) == 0
    assert largest_gap(grouped("2", [[], []]), fedavg) > 0


@pytest.mark.parametrize("intervals", ["a-5", "g", "a", "2-3", "b"])
def test_theorem_1_on_three_clients_of_equal_curvature(quadratics: Any, intervals: str) -> None:
    """theta_r = theta* + (1 - eta)^(k r) (theta_0 - theta*), whatever the schedule: averages conserve mass.

    Clients of 3, 5 and 9 samples with minima 1, -4 and 7, started at 2; the first two are the group.
    """
    sizes, rounds = [3, 5, 9], 3
    data, chosen = quadratics(sizes, [1.0] * 3, [[value] * 3 for value in (1.0, -4.0, 7.0)])
    local = {"steps": 5, "batch_size": 9, "lr": 0.2}
    fed = federation(settings(local=local, communication=exchange(intervals), **chosen), steady(sizes, rounds), data)
    fed.parts.communication.selection = Listed([[0, 1]] * rounds)  # type: ignore[attr-defined]
    fed.parts.w0 = torch.full_like(fed.parts.w0, 2.0)
    w = run_rounds(fed)[0].w
    optimum = (3 * 1.0 + 5 * -4.0 + 9 * 7.0) / 17
    assert closest(w, torch.full_like(w, optimum + 0.8**15 * (2.0 - optimum))) < 1e-13


def test_what_cannot_be_combined_is_refused_in_one_line() -> None:
    world, data = steady((5, 2, 7), 1), vectors()
    with pytest.raises(SettingsError, match="cannot be combined with algorithm 'scaffold'") as caught:
        federation(settings(algorithm="scaffold", local=LOCAL, communication="intervals"), world, data)
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"local\.epochs = 5: .*local\.steps or local\.mean_epochs"):
        federation(settings(local={"epochs": 5}, communication="intervals"), world, data)
    weighing = {"name": "fedavg", "weighting": "feddisco"}
    with pytest.raises(SettingsError, match=r"algorithm\.weighting 'feddisco', which depends on the whole cohort"):
        federation(settings(algorithm=weighing, local=LOCAL, communication="intervals"), world, data)
    with pytest.raises(SettingsError, match="'c-a': the group's interval comes first and is the shorter one"):
        settings(communication={"name": "intervals", "intervals": "c-a"})
    for wrong in ("h", "a-", "a-b-c", "0", "a**"):
        with pytest.raises(SettingsError, match="should be like a, a-g or a"):
            settings(communication={"name": "intervals", "intervals": wrong})


def test_budgets() -> None:
    fix = FixBudget(beta=0.29)
    tau = fix.of_clients(100, 250, 1, Randomness(0))
    assert sorted(tau) == [1.0] * 71 + [250.0] * 29
    assert not np.array_equal(tau, fix.of_clients(100, 250, 1, Randomness(1)))
    assert fix.of_server(10, 250) == 10 * 250
    for beta, clients in ((0.3, 3), (0.6, 6), (0.9, 9), (0.99, 9), (1.0, 10)):
        assert DynamicBudget(beta=beta).of_server(10, 250) == clients * 250
    given_ = GivenBudget(clients=(250.0, 100.0, 0.0), network=(250.0, 300.0, 600.0))
    assert given_.of_clients(3, 250, 1, Randomness(0)).tolist() == [250, 200, 300]
    with pytest.raises(SettingsError, match="3 clients and 3 networks listed; the run has 4 clients"):
        given_.of_clients(4, 250, 1, Randomness(0))


def test_only_clients_that_can_afford_it_are_in_the_group_and_no_more_than_the_server_can_serve() -> None:
    def totals(budget: dict[str, Any]) -> list[float]:
        chosen = {"name": "intervals", "intervals": "a-g", "selection": "random", "budget": budget}
        run = settings(local=LOCAL, communication=chosen)
        return [record.row["exchanges"] for record in run_rounds(federation(run, steady((4,) * 5, 3), vectors()))[1]]

    assert totals({"name": "given", "clients": [6, 6, 5, 0, 6]}) == [3 * 6 + 2] * 3
    assert totals({"name": "given", "clients": [6, 6, 5, 0, 6], "server": 17}) == [2 * 6 + 3] * 3
    assert totals({"name": "dynamic", "beta": 0.5}) == [2 * 6 + 3] * 3
    assert totals({"name": "fix", "beta": 0.2}) == [1 * 6 + 4] * 3
    assert totals({"name": "fix", "beta": 0.0}) == [5] * 3


def test_equation_4_sizes_the_round() -> None:
    """mean_epochs with batches that straddle passes: L = floor(E sum |D_m| / (M B)) steps for everybody."""
    local = {"mean_epochs": 5, "batch_size": 3, "lr": 0.1, "batches_span_epochs": True}
    fed = federation(settings(local=local, communication=exchange("a")), steady((5, 2, 7), 1), vectors())
    length = 5 * 14 // (3 * 3)
    assert run_rounds(fed)[1][0].row["exchanges"] == 3 * length


def test_idle_clients_do_not_complete_the_round() -> None:
    fed = federation(settings(communication=exchange("a*"), local=LOCAL), steady([5, 5, 5], 2), vectors())
    fed.parts.communication.selection = Listed([[1], [0, 2]])  # type: ignore[attr-defined]
    _, records = run_rounds(fed)
    assert [(record.row["selected"], record.row["completed"]) for record in records] == [(3, 1), (3, 2)]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_an_average_after_every_step_is_centralized_sgd(momentum: float, nesterov: bool) -> None:
    """Equal sizes, no clipping: one client with the batches of all, side by side, takes the same steps."""
    common = {"steps": 4, "lr": 0.2, "order": "stored", "momentum": momentum, "nesterov": nesterov}
    chosen = settings(local={**common, "batch_size": 2}, communication=exchange("1"))
    state, _ = run_rounds(federation(chosen, steady((8, 8, 8), 2), vectors()))
    woven = torch.arange(24).view(3, 4, 2).transpose(0, 1).reshape(-1)
    data = vectors()
    data = replace(data, train_inputs=data.train_inputs[woven], train_labels=data.train_labels[woven])
    central, _ = trajectory("fedavg", steady((24,), 2), data, local={**common, "batch_size": 6})
    assert closest(state.w, central[-1]) < 1e-13


def test_statistics_are_averaged_too() -> None:
    local = {"steps": 2, "batch_size": 4, "lr": 0.01, "order": "stored"}
    chosen = settings(model="cnn_svhn", local=local, communication=exchange("1"))
    fed, seen = federation(chosen, steady((4, 12), 1), images()), list[Tensor]()
    begin = fed.parts.executor.begin

    def noted(cohort: Cohort) -> Advance:
        advance = begin(cohort)

        def recorded(last: int) -> None:
            seen.append(cohort.buffers.clone())
            advance(last)
            seen.append(cohort.buffers.clone())

        return recorded

    fed.parts.executor.begin = noted  # type: ignore[method-assign]
    run_rounds(fed)
    _, after, before, _ = seen
    assert closest(after[0], after[1]) > 1e-6
    assert closest(before, (0.25 * after[0] + 0.75 * after[1]).expand(2, -1)) < 1e-14
