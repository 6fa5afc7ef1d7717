"""Asynchronous training: what it equals, what it costs, and what a change of the population does to it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from federation.jobs import EQUAL, LOCAL, SIZES, SLOT, UNEQUAL, events, line, made, models, present
from fedtide.core.errors import SettingsError
from fedtide.federation.clocks.presence import Presence
from fedtide.methods.costs.wireless import Wireless
from fedtide.settings.groups.evaluation import CostSettings
from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine.plan import BatchPlan, plan_batches, sample_count
from support import deal, federation, largest_gap, run_rounds, settings, steady, timeline, vectors


def in_rounds(cohorts: Sequence[Sequence[int]], server_lr: float = 1.0) -> list[Tensor]:
    """Global models of FedAvg on these cohorts."""
    chosen = settings(algorithm={"name": "fedavg", "weighting": "uniform", "server_lr": server_lr}, local=LOCAL)
    fed = federation(chosen, steady(SIZES, len(cohorts)), vectors(), cohorts=cohorts)
    return models(fed)[0]


@pytest.mark.parametrize("staleness", ["polynomial", "hinge", "constant"])
@pytest.mark.parametrize("normalize", ["count", "weights"])
def test_a_buffer_of_all_clients_of_equal_speed_is_fedavg(staleness: str, normalize: str) -> None:
    chosen = {"name": "fedbuff", "buffer": 5, "server_lr": 0.7, "staleness": staleness, "normalize": normalize}
    assert largest_gap(events(chosen, 5, EQUAL), in_rounds([range(5)] * 6, 0.7)) < 1e-13


def test_one_job_at_a_time_is_sequential_and_both_methods_are_one() -> None:
    fed, _ = made({"name": "fedasync", "alpha": 1.0, "mu": 0.0}, UNEQUAL, steady(SIZES, 6), 1)
    order = line(fed)
    assert largest_gap(models(fed)[0], in_rounds([[order[t % 5]] for t in range(6)])) < 1e-13
    one = events({"name": "fedasync", "alpha": 0.6, "mu": 0.1}, 1, UNEQUAL)
    other = events({"name": "fedbuff", "buffer": 1, "server_lr": 0.6, "mu": 0.1}, 1, UNEQUAL)
    assert largest_gap(one, other) < 1e-13


def batches(plan: BatchPlan, row: int) -> str:
    """Samples of a client's local steps."""
    return str([batch.tolist() for batch in torch.split(*plan.of(row))])


def test_batches_are_keyed_by_the_job() -> None:
    """So that a client does not see the same ones in each of its jobs, whatever else is trained with them."""
    local = {**LOCAL, "order": "shuffled"}
    fed, noted = made({"name": "fedbuff", "buffer": 3}, UNEQUAL, steady(SIZES, 5), 4, local=local)
    begin, plans = fed.parts.executor.begin, []
    fed.parts.executor.begin = lambda cohort: plans.append(cohort.plan) or begin(cohort)  # type: ignore
    run_rounds(fed)
    chosen = fed.parts.settings.local
    expected = set()
    for number, client in enumerate(noted.started):
        shard = fed.parts.timeline.shards[client]
        own = plan_batches([shard], [number], chosen, 1.0, 0, "jobs", (), torch.device("cpu"), np.zeros_like)
        expected.add(batches(own, 0))
    seen = [batches(plan, row) for plan in plans for row in range(len(plan.steps))]
    assert len(seen) == 15
    assert len(set(seen)) > len(SIZES)
    assert set(seen) <= expected


def test_old_results_are_thrown_away_and_paid_for() -> None:
    fed, noted = made({"name": "fedbuff", "buffer": 2}, UNEQUAL, steady(SIZES, 9), 5, mode={"max_staleness": 1})
    state, records = run_rounds(fed)
    refused = sum(int(record.row["refused"] or 0) for record in records)
    assert refused > 0
    assert max(max(record.clients["staleness"]) for record in records) <= 1
    arrived = sum(int(record.row["exchanges"] or 0) for record in records)
    assert arrived == 2 * 9 + refused
    assert state.totals["bytes_up"] == arrived * fed.parts.payload().up
    assert state.totals["bytes_down"] == len(noted.started) * fed.parts.payload().down
    assert len(noted.started) - arrived == len(state.events["running"])


def test_several_updates_in_one_instant_bring_all_their_departures_and_arrivals() -> None:
    """Who was away in between has lost its job and joins; who came and went again does not."""
    back, gone = (Presence(present(*who), 0) for who in ([[0, 1], [0], [0, 1, 2]], [[0, 1], [0, 1, 2], [0, 1]]))
    assert back.changes(0, 2, now=5) == ({1}, [1, 2])
    assert back.changes(1, 2, now=5) == (set(), [1, 2])
    assert back.changes(2, 2, now=5) == (set(), [])
    assert gone.changes(0, 2, now=5) == ({2}, [])
    assert sorted(back.first(2, 5)) == [0, 1, 2]


def test_a_session_begins_with_nothing_under_way_and_the_clock_goes_on() -> None:
    who, sessions = [[0, 1, 2]] * 3 + [[3, 4]] * 3, [0, 0, 0, 1, 1, 1]
    world = present(*who, session_of_round=sessions)
    fed, noted = made({"name": "fedbuff", "buffer": 2}, UNEQUAL, world, 3, initializer="restart")
    state, records = run_rounds(fed)
    for record, here in zip(records, who, strict=True):
        assert set(record.clients["client"]) <= set(here)
    assert records[3].row["staleness_max"] == 0
    assert records[3].row["cancelled"] == 2  # all but the job whose arrival was the last of the session
    seconds = [float(record.row["seconds_simulated"] or 0) for record in records]
    assert seconds == sorted(seconds)
    assert sum(float(record.row["latency"] or 0) for record in records) == pytest.approx(seconds[-1], rel=1e-8)
    assert state.events["started"] == len(noted.started)  # numbers of jobs go on, and so do the draws


def test_gradient_rounds_of_an_initializer_take_time() -> None:
    world = present(*[[0, 1, 2]] * 2, *[[3, 4]] * 2, *[[0, 1, 2]] * 2, session_of_round=[0, 0, 1, 1, 2, 2])
    seconds, found = [], []
    for gradient_rounds in (1, 3):
        initializer = {"name": "dynamic", "history": 1, "gradient_rounds": gradient_rounds, "gradient_steps": 1}
        fed, _ = made({"name": "fedbuff", "buffer": 2}, UNEQUAL, world, 3, initializer=initializer)
        trajectory, state, records = models(fed)
        found.append(trajectory)
        seconds.append(records[-1].row["seconds_simulated"])
        slots = state.totals["latency"] / SLOT
        assert slots == pytest.approx(round(slots), abs=1e-6)
    assert seconds[1] > seconds[0]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))  # one stored model: whatever its weight


def test_without_anybody_to_wait_for_the_run_ends_in_one_line() -> None:
    sizes = (5, 0)
    world = timeline(deal(sizes), [{0: 0}, {1: 1}], clients=2)
    fed, _ = made({"name": "fedasync"}, [[4], [4]], world)
    with pytest.raises(
        SettingsError, match=r"no available client after 0\.002 simulated seconds, so server update 2 cannot be reached"
    ):
        run_rounds(fed)
    fed.parts.workers.close()


def test_seconds_and_joules_are_those_of_the_cell() -> None:
    """One job at a time has the whole band; two of them half of it each, so that transfers take twice as long."""
    chosen = settings(algorithm="fedasync", mode={"name": "async", "concurrency": 1}, local=LOCAL)
    fed = federation(chosen, steady(SIZES, 5), vectors())
    order = line(fed)
    state, _ = run_rounds(fed)
    model = Wireless(CostSettings(), 0, 18, 2 * 15 / 18)
    samples = [2 * SIZES[client] for client in order]
    cost = model.job_costs(range(5), order, samples, 72, 72, 1)
    assert state.totals["latency"] == pytest.approx(cost.slots.sum() * SLOT)
    assert state.totals["energy"] == pytest.approx(cost.device_J.sum())
    large = Wireless(CostSettings(long_transfer=0, shadowing=0.0), 0, 10**6, 1.0)
    whole, half = (large.job_costs([0], [3], [0], 4 * 10**6, 0, places) for places in (1, 2))
    assert half.slots[0] == pytest.approx(2 * whole.slots[0], abs=2)
    computing = large.job_costs([0], [3], [40], 0, 0, 1)  # 40 samples x 10^6 parameters / 8 FLOPs per cycle at 1 GHz
    assert (computing.slots.tolist(), computing.device_J.tolist()) == ([10], pytest.approx([5e6 * 1e-28 * 1e18]))


@pytest.mark.parametrize("batches_span_epochs", [False, True])
@pytest.mark.parametrize(("amount", "unit"), [(3, "epochs"), (7, "steps"), (2, "steps"), (2, "capped_steps")])
def test_the_samples_of_a_job_are_those_of_its_batches(amount: int, unit: Any, batches_span_epochs: bool) -> None:
    if batches_span_epochs and unit == "capped_steps":
        return
    local = LocalSettings(**{unit: amount}, batch_size=4, batches_span_epochs=batches_span_epochs)
    for size in (0, 1, 4, 9, 12):
        batches = plan_batches([np.arange(size)], [0], local, 5.0, 0, "jobs", (), torch.device("cpu"), np.zeros_like)
        assert sample_count(size, 5.0, local) == len(batches.samples)


def test_runs_in_rounds_are_what_they_were() -> None:
    assert "mode" not in settings().canonical()
    assert settings(mode="sync").canonical() == settings().canonical()
    assert settings(mode="async").canonical()["mode"]["concurrency"] == 10
