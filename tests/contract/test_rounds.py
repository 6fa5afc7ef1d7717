"""What every plug-in promises: the same run whether it is resumed or computed by another engine."""

import functools
import json
import math
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
import torch

from fedtide.authoring.rounds import Run, assert_resumes, assert_same_on_any_engine, with_engine
from fedtide.authoring.trial import short
from fedtide.core import plugins
from fedtide.federation.traffic import Payload
from fedtide.methods.algorithms.base import Algorithm
from fedtide.training.objectives.base import Objective
from fedtide.world.dataset import Dataset
from support import (
    assert_same,
    clock,
    deal,
    federation,
    light,
    needs,
    network,
    planned,
    run_rounds,
    settings,
    smallest,
    steady,
    timeline,
    watch,
)

HEAVY = {"resnet18", "resnet34", "preact_resnet18", "torchvision"}
ALGORITHMS = plugins.names("algorithms")
LONG = {"balancefl", "fedgen", "fedgrab"}
"""They have networks of their own, or train much at the server."""
OF_ROUNDS = [name for name in ALGORITHMS if not clock(name)]
"""The others are in tests/federation/test_events.py, where they differ."""
OF_BOTH = [name for name in OF_ROUNDS if "async" in plugins.load(Algorithm, name).modes]
OF_OWN_DATA = ("calendar", "natural", "active")
"""They need data that know clients and times; see tests/runs/test_calendar_run.py."""
OF_CLASSES = [name for name in plugins.names("objectives") if plugins.load(Objective, name).task == "classification"]
"""The others are in tests/runs/test_session_scores.py, with data of their tasks."""
OTHERS = [
    (key, name)
    for key, kind in (
        ("scenario", "scenarios"),
        ("partition", "partitions"),
        ("participation", "participation"),
        ("initializer", "initializers"),
        ("objective", "objectives"),
        ("communication", "communication"),
    )
    for name in (plugins.names(kind) if key != "objective" else OF_CLASSES)
]


class Seen:
    """What a run used, noted while it runs: its initial model, its cohorts and their batches."""

    def __init__(self, run: Run) -> None:
        self.fed = federation(*run)
        self._watched, self._plans, begin = watch(self.fed), list[Any](), self.fed.parts.executor.begin

        def note(cohort: Any) -> Any:
            if len(self._plans) == len(self._watched):  # the first phase of a round
                self._plans.append((cohort.plan.samples.tolist(), cohort.plan.keys.tolist(), cohort.plan.steps))
            return begin(cohort)

        self.fed.parts.executor.begin = note  # type: ignore[method-assign]
        charge, self.payloads = self.fed.clock.charge, list[tuple[int, Payload]]()

        def charged(r: Any) -> int:
            exchanges = charge(r)
            self.payloads.append((exchanges, self.fed.parts.payload(r.state.extra)))
            return exchanges

        self.fed.clock.charge = charged  # type: ignore[method-assign]
        self.state, self.records = run_rounds(self.fed)

    @property
    def world(self) -> list[Any]:
        """Equal for all runs of one world."""
        return [self.fed.parts.w0.tolist(), [r.ids for r, _ in self._watched], self._plans]


def assert_resumes_on_any_engine(run: Run) -> Seen:
    """See :func:`assert_same_on_any_engine`; returns the run by threads."""
    threads = Seen(with_engine(run))
    assert_same_on_any_engine(run, (threads.state, threads.records))
    return threads


@pytest.fixture(scope="session")
def fedavg_world(world: Any) -> Callable[[str], list[Any]]:
    """Initial model, cohorts and batches of FedAvg with the model that an algorithm needs, as JSON."""
    return functools.cache(lambda model: Seen(world(algorithm="fedavg", **json.loads(model))).world)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_resume_on_every_engine_in_one_world(
    world: Any, fedavg_world: Callable[[str], list[Any]], algorithm: str
) -> None:
    seen = assert_resumes_on_any_engine(world(algorithm=algorithm))
    if algorithm in OF_ROUNDS:
        wanted = fedavg_world(json.dumps(needs(algorithm)))
        if algorithm == "frozen":  # nobody takes part once it has stopped
            wanted = [part[: len(own)] for own, part in zip(seen.world, wanted, strict=True)]
        assert seen.world == wanted
        assert_charged(seen)


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (place % 2 or name in LONG))
        for place, name in enumerate(ALGORITHMS)
    ],
)
def test_gradient_rounds_leave_no_trace(world: Any, algorithm: str) -> None:
    """One stored model is the previous one, so a run with gradient rounds ends as one without them; nor does it matter where
    memories are."""
    kept = {"algorithm": algorithm, "client_state": {"on_session_start": "keep", "storage": "host"}}
    dynamic = {"name": "dynamic", "history": 1, "gradient_rounds": 2, "gradient_steps": 1}
    elsewhere = {**kept, "client_state": {"on_session_start": "keep"}}
    runs = world(initializer=dynamic, **kept), world(initializer="previous", **elsewhere)
    # three sessions: the last one has the devices of the first
    first, second = (run_rounds(federation(run, short(made, 6), data))[0] for run, made, data in runs)
    assert_same(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", OF_BOTH)
def test_algorithms_of_both_clocks_do_without_rounds(world: Any, algorithm: str) -> None:
    """The others that need no rounds are among all algorithms."""
    chosen = {"algorithm": {"name": algorithm, "buffer": 3}, "mode": "async", "participation": "all"}
    for scenario in ("sessions", "incremental_arrival"):
        assert_resumes_on_any_engine(world(scenario=scenario, **chosen))


@pytest.mark.parametrize("algorithm", ["fedbuff", "mifa"])
def test_runs_of_a_trace_in_seconds_resume(world: Any, algorithm: str) -> None:
    """Processors are so slow that clients come and go while others train."""
    chosen = {"algorithm": {"name": algorithm, "buffer": 3}, "mode": "async", "participation": "all"}
    run = world(scenario="fedscale_trace", costs={"clock": 2.0, "slot": 0.01}, **chosen)
    _, records = run_rounds(federation(*run))
    assert sum(int(record.row["cancelled"] or 0) for record in records) > 0
    assert len({record.row["present"] for record in records}) > 1
    assert_resumes(run)


def assert_charged(seen: Seen) -> None:
    """Every exchange, and what a session's start takes, is in the totals once."""
    parts, state, records = seen.fed.parts, seen.state, seen.records
    selected = [int(record.row["selected"]) for record in records]
    assert [exchanges for exchanges, _ in seen.payloads] == [count for count in selected if count]
    starts = parts.timeline.session_starts
    sessions = [parts.algorithm.session_traffic(parts.timeline.at(first).clients.size) for first in starts]
    for direction, once in (("up", 0), ("down", 1)):
        sent = [exchanges * getattr(payload, direction) for exchanges, payload in seen.payloads]
        assert (min(sent) > 0) == bool(getattr(parts.algorithm, direction))
        counted = sum(sent) + sum(traffic[once] for traffic in sessions)
        assert state.totals[f"bytes_{direction}"] == counted == records[-1].row[f"bytes_{direction}"]


@pytest.mark.parametrize(("algorithm", "executor"), zip(OF_ROUNDS, cycle(("threads", "stacked")), strict=False))
def test_one_sample_is_enough_and_none_is_never_drawn(data: Dataset, algorithm: str, executor: str) -> None:
    local = {"epochs": 2, "batch_size": 3, "lr": 0.05}
    chosen = settings(
        **needs(algorithm), algorithm=light(algorithm), local=local, engine={"executor": executor, "workers": 1}
    )
    fed = federation(chosen, steady((5, 1, 0, 4), 3, classes=10), data)
    state, records = run_rounds(fed)
    assert state.counts.tolist() == [3, 3, 0, 3]
    assert {record.row["present"] for record in records} == {4}
    assert {record.row["selected"] for record in records} == {3}
    for value in (state.w, *state.server.values(), *state.memory.values()):
        assert bool(torch.isfinite(value).all())
    assert all(math.isfinite(float(record.row["train_loss"] or 0)) for record in records)
    for name in fed.parts.algorithm.client:
        assert not state.memory[name][2].any(), name


def test_another_seed_is_another_world(world: Any) -> None:
    first, second = (Seen(world(seed=seed)).world for seed in (0, 1))
    assert all(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("part", [part for part in OTHERS if part[1] not in OF_OWN_DATA])
def test_every_other_part_resumes(world: Any, part: tuple[str, str]) -> None:
    key, name = part
    scenario = {"scenario": name} if key == "scenario" else {"scenario": "static" if key == "partition" else "sessions"}
    choice = {} if key == "scenario" else {key: name}
    algorithm = (
        "fedavg" if key == "communication" else "scaffold"
    )  # whose control variates forbid averages inside a round
    run = world(**scenario, **choice, algorithm=algorithm)
    assert_resumes((run[0], short(run[1]), run[2]))
    planned(*run).refuse_excess(torch.device("cpu"), federation(*run).parts.memory)


@pytest.mark.parametrize("weighting", plugins.names("weighting"))
def test_weightings_are_weights(world: Any, weighting: str) -> None:
    run = world(algorithm={"name": "fedavg", "weighting": weighting})
    assert_resumes(run)
    fed = federation(*run)
    watched = watch(fed)
    run_rounds(fed)
    for r, _ in watched:
        assert bool((r.weights >= 0).all())
        assert float(r.weights.sum()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[pytest.mark.slow] * (name in HEAVY)) for name in plugins.names("models")]
)
def test_models_resume(model: str) -> None:
    data, _ = smallest(model)
    world = timeline(deal((3, 2)), [{0: 0, 1: 1}, {0: 0, 1: 1}])
    local = {"steps": 1, "batch_size": 2, "lr": 0.05}
    assert_resumes((settings(model=network(model), local=local), world, data))
