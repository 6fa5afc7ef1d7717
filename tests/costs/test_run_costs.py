"""Seconds and joules in a run: what a round is charged, what the history holds, what stays as it is."""

from dataclasses import replace
from typing import Any

import pytest

from fedtide.federation import federation as rounds
from fedtide.federation.federation import Federation
from fedtide.federation.state import initial_state
from fedtide.federation.traffic import charge
from fedtide.methods.costs.wireless import Segment, Wireless
from fedtide.settings.groups.evaluation import CostSettings
from support import assert_same, federation, run_rounds, settings, steady, vectors

SIZES = (4, 9, 6)
COHORTS = ([0, 2], [1], [0, 1, 2])


def made(rounds: int = 3, **values: Any) -> Federation:
    local = {"epochs": 1, "batch_size": 4}
    chosen = settings(local=local, **{"costs": {"wireless": True}, **values})
    return federation(chosen, steady(SIZES, rounds), vectors(), cohorts=COHORTS)


@pytest.mark.slow
def test_costs_change_nothing_that_is_learned() -> None:
    (priced, rows), (free, bare) = (run_rounds(made(costs={"wireless": on})) for on in (True, False))
    assert_same(priced, free)
    assert free.totals["latency"] == free.totals["energy"] == 0
    assert not {"latency", "energy"} & bare[0].row.keys()
    assert all(record.row["latency"] > 0 and record.row["energy"] > 0 for record in rows)


def test_a_row_is_the_cost_of_its_cohort() -> None:
    """A pass over all samples each; payload d = 5 x 3 + 3 numbers both ways, or that of the algorithm."""
    for algorithm, vectors_sent in (("fedavg", 1), ("scaffold", 2)):
        state, records = run_rounds(made(algorithm=algorithm))
        model = Wireless(CostSettings(), 0, 18, 2 * 15 / 18)
        for t, (cohort, record) in enumerate(zip(COHORTS, records, strict=True)):
            whole = Segment(list(range(len(cohort))), [SIZES[client] for client in cohort])
            cost = model.round_cost([t], cohort, [whole], *[4 * 18 * vectors_sent] * 2)
            assert record.row["latency"] == pytest.approx(cost.latency_s, rel=1e-8)
            assert record.row["energy"] == pytest.approx(cost.energy_J, rel=1e-8)
        assert state.totals["latency"] == pytest.approx(sum(record.row["latency"] for record in records), rel=1e-8)


@pytest.mark.parametrize(
    ("algorithm", "passes"),
    [
        ("mimelite", 1.0),
        ({"name": "mime", "beta": 0.5}, 1.0 + 1.0),  # both gradients of a step
        ({"name": "scaffold", "option": "I"}, 1.0),
        ({"name": "ifca", "clusters": 2}, 2 / 3),
        ({"name": "feddrift", "delta": 100.0}, 1 / 3),  # of one model, and in the second round on the samples before
        ("cfl_regularization", 1.0 + 2 * 10),
        ("fedgrab", 1 / 3),
    ],
)
def test_passes_over_all_samples_are_computed(algorithm: Any, passes: float) -> None:
    """Of the first round and client 0 alone: its samples once in local steps, and ``passes`` times beside them."""
    costs = {"wireless": True, "capacitance": 1.0, "passes": 3.0}
    local = {"epochs": 1, "batch_size": 4, "momentum": 0.0}
    fed = federation(
        settings(local=local, costs=costs, algorithm=algorithm), steady(SIZES, 2), vectors(), cohorts=([0], [0])
    )
    _, records = run_rounds(fed)
    plain = federation(settings(local=local, costs=costs), steady(SIZES, 2), vectors(), cohorts=([0], [0]))
    usual = run_rounds(plain)[1][0].row["energy"]
    found = [record.row["energy"] / usual - 1 for record in records]
    again = 2 * passes if fed.parts.algorithm.settings.name == "feddrift" else passes
    assert found == pytest.approx([passes, again], rel=1e-6)


def test_a_client_that_stops_early_is_charged_for_the_losses_that_it_asks_for() -> None:
    """Three epochs, stopped after the second: two losses."""
    costs, local = {"wireless": True, "capacitance": 1.0, "passes": 4.0}, {"epochs": 3, "batch_size": 4, "lr": 1e-6}
    flash = {"name": "flash", "early_stop": 1.0}
    energies = []
    for algorithm, work in ((flash, local), ("fedavg", {**local, "epochs": 2})):
        fed = federation(
            settings(local=work, costs=costs, algorithm=algorithm), steady(SIZES, 1), vectors(), cohorts=([0],)
        )
        energies.append(run_rounds(fed)[1][0].row["energy"])
    assert energies[0] / energies[1] == pytest.approx((2 + 2 / 4) / 2, rel=1e-6)


def test_a_further_round_is_charged_to_the_round_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rounds that only measure a gradient are: the same totals, the next row."""
    fed, plain = made(rounds=1), made(rounds=1)
    state, begin_session = initial_state(fed.parts), rounds.begin_session

    def measured(*args: Any) -> None:
        begin_session(*args)
        plan = replace(fed.clock.plan(state, 0), purpose="gradient")
        charge(state.totals, plan, [Segment([0, 1], [4, 6])], fed.parts.payload(), fed.parts.wireless)

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "begin_session", measured)
        _, (record,) = run_rounds(fed, state=state)
    _, (alone,) = run_rounds(plain)
    assert record.row["bytes_up"] == 2 * alone.row["bytes_up"]
    once = Wireless(CostSettings(), 0, 18, 2 * 15 / 18)
    more = once.round_cost([0], [0, 2], [Segment([0, 1], [4, 6])], 4 * 18, 4 * 18, "gradient")
    assert record.row["energy"] == pytest.approx(alone.row["energy"] + more.energy_J, rel=1e-8)


def test_the_cost_model_is_part_of_what_a_run_is() -> None:
    first, second = settings(), settings(costs={"bandwidth": 5e7})
    assert first.canonical() != second.canonical()
    assert first.world() == second.world()


def test_phi_may_be_given() -> None:
    found = [made(costs={"wireless": True, **values}).parts.wireless for values in ({}, {"phi": 7.0})]
    assert [model and model.phi for model in found] == [pytest.approx(2 * 15 / 18), 7.0]
