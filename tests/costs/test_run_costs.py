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
