"""What every plug-in promises: the same run whether it is repeated, resumed or computed by another engine."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedtide.algorithms.base import Algorithm
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.federation.saving.memory import MemoryStore
from fedtide.federation.state import RunState
from fedtide.objectives.base import Objective
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline
from support import (
    assert_close,
    assert_same,
    clock,
    deal,
    federation,
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
OF_ROUNDS = [name for name in ALGORITHMS if not clock(name)]
"""The others are in tests/federation/test_events.py, where they differ."""
OF_BOTH = [name for name in OF_ROUNDS if "events" in plugins.load(Algorithm, name).clocks]
OF_OWN_DATA = ("calendar", "natural", "active")
"""They need data that know clients and times; see tests/runs/test_calendar_run.py."""
OF_CLASSES = [name for name in plugins.names("objectives") if plugins.load(Objective, name).task == "classification"]
"""The others are in tests/runs/test_task_runs.py, with data of their tasks."""
OTHERS = [
    (key, name)
    for key, kind in (
        ("scenario", "scenarios"),
        ("partition", "partitions"),
        ("participation", "participation"),
        ("initialiser", "initialisation"),
        ("objective", "objectives"),
        ("exchange", "exchange"),
    )
    for name in (plugins.names(kind) if key != "objective" else OF_CLASSES)
]
Run = tuple[RunSettings, Timeline, Dataset]


def rows(records: list[Any]) -> list[Any]:
    """Records of rounds, wall-clock apart."""
    return [
        ({k: v for k, v in record.row.items() if k != "seconds"}, record.per_class, record.session)
        for record in records
    ]


def saved_and_restored(state: RunState) -> RunState:
    """A state that went through a file; loading refuses anything but tensors, numbers and plain containers."""
    stream = io.BytesIO()
    torch.save(state.tensors(), stream)
    stream.seek(0)
    return RunState.restore(torch.load(stream, weights_only=True), torch.device("cpu"), torch.device("cpu"))


def assert_repeatable(run: Run) -> None:
    """Twice the same bits; and the same bits after a stop, between sessions or inside one."""
    whole, records = run_rounds(federation(*run))
    again, repeated = run_rounds(federation(*run))
    assert_same(whole, again)
    assert rows(records) == rows(repeated)
    for stop in (run[1].rounds // 2, run[1].rounds - 1):
        half, first = run_rounds(federation(*run), stop)
        rest, second = run_rounds(federation(*run), state=saved_and_restored(half))
        assert_same(whole, rest)
        assert rows(first + second) == rows(records)
        assert {**rest.totals, "seconds": 0} == {**whole.totals, "seconds": 0}
        for name, value in whole.initialiser.items():
            assert torch.equal(value, rest.initialiser[name])


def plain(run: Run, **engine: Any) -> RunState:
    """The run with another engine."""
    chosen, world, data = run
    update = chosen.engine.model_copy(update={"executor": "threads", **engine})
    return run_rounds(federation(chosen.model_copy(update={"engine": update}), world, data))[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_are_repeatable_and_resume(world: Any, algorithm: str) -> None:
    assert_repeatable(world(algorithm=algorithm))
    assert_repeatable(
        world(algorithm=algorithm, federation={"at_session": "keep", "memory": "host"}, initialiser="average")
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_resume_after_gradient_rounds(world: Any, algorithm: str) -> None:
    run = world(algorithm=algorithm, initialiser={"name": "dynamic", "gradient_rounds": 2, "gradient_steps": 1})
    assert_repeatable(run)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_gradient_rounds_leave_no_trace_in_algorithms(world: Any, algorithm: str) -> None:
    """One stored model is the previous one, so a run with gradient rounds ends as one without them."""
    kept = {"algorithm": algorithm, "federation": {"at_session": "keep"}}
    initialisers = ({"name": "dynamic", "history": 1, "gradient_rounds": 2, "gradient_steps": 1}, "previous")
    assert_same(*(run_rounds(federation(*world(initialiser=initialiser, **kept)))[0] for initialiser in initialisers))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_do_not_see_the_engine(world: Any, algorithm: str) -> None:
    run = world(algorithm=algorithm)
    threads = plain(run)
    assert_same(threads, plain(run, workers=3))
    for chunk in (0, 1, 2):
        assert_close(threads, plain(run, executor="stacked", chunk=chunk), 1e-9)


@pytest.mark.parametrize("algorithm", OF_BOTH)
def test_algorithms_of_both_clocks_do_without_rounds(world: Any, algorithm: str) -> None:
    """The others that need no rounds are among all algorithms."""
    chosen = {"algorithm": {"name": algorithm, "buffer": 3}, "clock": "events", "participation": "all"}
    for scenario in ("sessions", "incremental_arrival"):
        run = world(scenario=scenario, **chosen)
        assert_repeatable(run)
        threads = plain(run)
        assert_same(threads, plain(run, workers=3))
        assert_close(threads, plain(run, executor="stacked", chunk=2), 1e-9)


@pytest.mark.parametrize("algorithm", ["fedbuff", "mifa"])
def test_runs_of_a_trace_in_seconds_are_repeatable(world: Any, algorithm: str) -> None:
    """Processors are so slow that clients come and go while others train."""
    chosen = {"algorithm": {"name": algorithm, "buffer": 3}, "clock": "events", "participation": "all"}
    run = world(scenario="fedscale_trace", costs={"clock": 2.0, "slot": 0.01}, **chosen)
    _, records = run_rounds(federation(*run))
    assert sum(int(record.row["cancelled"] or 0) for record in records) > 0
    assert len({record.row["present"] for record in records}) > 1
    assert_repeatable(run)


def session_starts(world: Timeline) -> list[int]:
    """First round of every session."""
    return [t for t in range(world.rounds) if world.session_span(t)[0] == t]


@pytest.mark.parametrize("algorithm", OF_ROUNDS)
def test_the_ledger_counts_what_is_declared(world: Any, algorithm: str) -> None:
    fed = federation(*world(algorithm=algorithm))
    algorithm, size = fed.parts.algorithm, fed.parts.layout.size
    vectors = {"w", "W", *(vector.name for vector in algorithm.server_vectors()), *algorithm.client}
    for names, counted in ((algorithm.down, fed.parts.payload.down), (algorithm.up, fed.parts.payload.up)):
        numbers = [size if name in vectors else algorithm.payload(name) for name in names]
        assert all(number >= 0 for number in numbers)
        assert counted == 4 * sum(numbers) > 0
    state, records = run_rounds(fed)
    exchanges = sum(int(record.row["selected"]) for record in records)
    starts = session_starts(fed.parts.timeline)
    sessions = [algorithm.session_traffic(fed.parts.timeline.at(first).clients.size) for first in starts]
    for direction, each, once in (("up", fed.parts.payload.up, 0), ("down", fed.parts.payload.down, 1)):
        counted = exchanges * each + sum(traffic[once] for traffic in sessions)
        assert state.totals[f"bytes_{direction}"] == counted == records[-1].row[f"bytes_{direction}"]


@pytest.mark.parametrize("executor", ["threads", "stacked"])
@pytest.mark.parametrize("algorithm", OF_ROUNDS)
def test_one_sample_is_enough_and_none_is_never_drawn(data: Dataset, algorithm: str, executor: str) -> None:
    local = {"amount": 2, "batch_size": 3, "lr": 0.05}
    chosen = settings(algorithm=algorithm, local=local, engine={"executor": executor, "workers": 1})
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


def seen_by(run: Run) -> list[Any]:
    """Initial model, cohorts and batches of a run."""
    fed = federation(*run)
    watched, plans, begin = watch(fed), [], fed.parts.executor.begin

    def note(cohort: Any) -> Any:
        plans.append((cohort.plan.indices.tolist(), cohort.plan.keys.tolist(), cohort.plan.steps))
        return begin(cohort)

    fed.parts.executor.begin = note  # type: ignore[method-assign]
    run_rounds(fed)
    return [fed.parts.w0.tolist(), [r.ids for r, _ in watched], plans]


@pytest.mark.parametrize("algorithm", OF_ROUNDS)
def test_all_algorithms_see_the_same_world(world: Any, algorithm: str) -> None:
    assert seen_by(world(algorithm=algorithm)) == seen_by(world(algorithm="fedavg"))


def test_another_seed_is_another_world(world: Any) -> None:
    first, second = (seen_by(world(seed=seed)) for seed in (0, 1))
    assert all(a != b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("key", "name"), [part for part in OTHERS if part[1] not in OF_OWN_DATA])
def test_every_other_part_is_repeatable_and_resumes(world: Any, key: str, name: str) -> None:
    scenario = {"scenario": name} if key == "scenario" else {"scenario": "static" if key == "partition" else "sessions"}
    choice = {} if key == "scenario" else {key: name}
    algorithm = "fedavg" if key == "exchange" else "scaffold"  # whose control variates forbid averages inside a round
    run = world(**scenario, **choice, algorithm=algorithm)
    assert_repeatable((run[0], short(run[1], 8), run[2]))
    planned(*run).refuse_excess(torch.device("cpu"), federation(*run).parts.memory)


def short(world: Timeline, rounds: int) -> Timeline:
    """The first rounds of a world."""
    names = ("assignment_of_round", "session_of_round", "view_of_round")
    return replace(world, **{name: getattr(world, name)[:rounds] for name in names})


@pytest.mark.parametrize("weighting", plugins.names("weighting"))
def test_weightings_are_weights(world: Any, weighting: str) -> None:
    run = world(algorithm={"name": "fedavg", "weighting": weighting})
    assert_repeatable(run)
    fed = federation(*run)
    watched = watch(fed)
    run_rounds(fed)
    for r, _ in watched:
        assert bool((r.weights >= 0).all())
        assert float(r.weights.sum()) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[pytest.mark.slow] * (name in HEAVY)) for name in plugins.names("models")]
)
def test_models_are_repeatable_and_resume(model: str) -> None:
    data, _ = smallest(model)
    world = timeline(deal((3, 2)), [{0: 0, 1: 1}, {0: 0, 1: 1}])
    local = {"amount": 1, "unit": "steps", "batch_size": 2, "lr": 0.05}
    assert_repeatable((settings(model=network(model), local=local), world, data))


def test_states_hold_nothing_but_tensors_and_numbers(world: Any) -> None:
    state, _ = run_rounds(
        federation(*world(algorithm="scaffold", initialiser="average", evaluation={"models": ["cloud", "all"]}))
    )

    def kinds(value: Any) -> set[type]:
        return set().union(*map(kinds, value.values())) if isinstance(value, dict) else {type(value)}

    assert kinds(state.tensors()) <= {torch.Tensor, int, float}


def test_a_memory_that_cannot_fit_is_refused_before_the_first_round(world: Any) -> None:
    chosen, timeline_, data = world(algorithm="scaffold")
    cpu = torch.device("cpu")
    wanted = planned(chosen, replace(timeline_, num_clients=10**12), data, torch.float64)
    with pytest.raises(SettingsError, match=r"federation\.memory: c_k of 1000000000000 clients") as caught:
        wanted.refuse_excess(cpu, MemoryStore("device", cpu, None))
    assert "\n" not in str(caught.value)
