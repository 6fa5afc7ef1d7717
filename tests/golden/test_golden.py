"""Trajectories computed by independent programs: the formulas, in float64, to 1e-9."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtide.federation import gradient_rounds
from fedtide.federation.rounds.plan import RoundPlan, plan_gradient_round
from fedtide.federation.scoring.scores import latest_mean
from fedtide.federation.state import initial_state
from fedtide.world.timeline import Timeline
from golden import families
from golden.families.case import TOLERANCE, Case, Outcome, difference
from support import federation, settings, watch

FILES = sorted(Path(__file__).parent.glob("*.json"))

EXECUTORS: dict[str, dict[str, Any]] = {"threads": {}, "stacked": {"chunk": 2}}
"""Pairs, so that cohorts of all sizes share their programs."""


def runs() -> Iterator[Any]:
    """Every run of every file; the executors, whose equivalence is tested elsewhere, take turns among those of an algorithm.

    Quick are the first run of each file and of each algorithm.
    """
    seen = Counter[str]()
    for file in FILES:
        content = json.loads(file.read_text(encoding="utf-8"))
        for number, run in enumerate(content["runs"]):
            executor = list(EXECUTORS)[seen[run["algorithm"]] % 2]
            marks = () if number == 0 or run["algorithm"] not in seen else pytest.mark.slow
            seen[run["algorithm"]] += 1
            name = f"{file.stem}-{number}-{run['algorithm']}-{executor}"
            yield pytest.param(content, run, executor, id=name, marks=marks)


def run_case(case: Case, executor: str, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """Run a case, watching the rounds and the mean of all clients' models."""
    start = torch.tensor(case.fields["w0"], dtype=torch.float64)
    chosen = settings(**case.settings, engine={"executor": executor, "workers": 1, **EXECUTORS[executor]})
    fed = federation(chosen, case.world, case.data, cohorts=case.cohorts, start=start)
    fed.parts.participation.share = case.share  # type: ignore[attr-defined]
    case.script(fed)

    def probed(timeline: Timeline, t: int, *values: Any) -> RoundPlan:
        plan = plan_gradient_round(timeline, t, *values)
        rows = [row for row, client in enumerate(plan.ids) if client in case.probed.get(t, plan.ids)]
        kept = {name: [getattr(plan, name)[row] for row in rows] for name in ("ids", "shard_ids", "shards")}
        return replace(plan, **kept)

    monkeypatch.setattr(gradient_rounds, "plan_gradient_round", probed)
    state, rounds, everybody = initial_state(fed.parts), watch(fed), []
    sessions, stores, rows = [], [], []
    for t in range(fed.parts.timeline.rounds):
        with torch.no_grad():
            record = fed.run_round(state)
        sessions.append(record.session)
        rows.append(record.row)
        stores.append(dict(state.initializer))
        if fed.parts.evaluates("all"):
            everybody.append(latest_mean(fed.parts, state, t))
    return Outcome(fed, state, rounds, everybody, sessions, stores, rows)


@pytest.mark.parametrize(("content", "run", "executor"), runs())
def test_the_run_follows_the_file(
    content: dict[str, Any], run: dict[str, Any], executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = families.read(content, run)
    outcome = run_case(case, executor, monkeypatch)
    problems = [text for check in case.checks(case.fields, outcome) if (text := difference(check))]
    outcome.federation.parts.workers.close()
    assert not problems
    assert not case.fields.unread(), "fields of the file that nobody reads"
    assert content.get("tolerance", TOLERANCE) == TOLERANCE
