"""Averages inside a round, driven by a schedule of the tests' own."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.federation.federation import Federation
from fedtide.methods.algorithms.base import Round
from fedtide.methods.communication.base import Communication, Schedule
from fedtide.training.engine.executors.executor import Advance, Executor
from fedtide.training.engine.local import Cohort
from golden.families.case import Outcome, difference
from golden.families.dynamicfl import without_exchange
from support import closest, federation, images, run_rounds, settings, steady, trajectory, vectors, watch

CONTENT = json.loads((Path(__file__).parents[1] / "golden" / "dynamicfl.json").read_text(encoding="utf-8"))
PLAIN = [number for number, run in enumerate(CONTENT["runs"]) if run["star_mode"] is None]
"""Runs in which all active clients train: all but the starred ones."""


def due(interval: int, steps: int) -> list[int]:
    """Upload steps of a client: every ``interval`` steps, and the last one."""
    return [step for step in range(1, steps + 1) if step % interval == 0 or step == steps]


class Scheduled(Communication):
    """Averages the clients that are due after each step: ``uploads(t, id)`` lists a client's upload steps."""

    def __init__(self, uploads: Callable[[int, int], list[int]]) -> None:
        super().__init__(PluginSettings(name="scheduled"))
        self.uploads = uploads

    def schedule(self, r: Round) -> Schedule:
        """See :meth:`Exchange.schedule`."""
        last = int(r.steps.max())
        members: dict[int, list[int]] = {step: [] for step in range(1, last)}
        for row, id_ in enumerate(r.ids):
            for step in self.uploads(r.t, id_):
                if step < last:
                    members[step].append(row)
        return Schedule([(step, rows) for step, rows in members.items() if rows])


class Recording(Executor):
    """Keeps the cohort's models and statistics before and after each segment of local steps."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.before: list[tuple[Tensor, Tensor]] = []
        self.after: list[tuple[Tensor, Tensor]] = []

    def begin(self, cohort: Cohort) -> Advance:
        """See :meth:`Executor.begin`."""
        advance = self.executor.begin(cohort)

        def recorded(last: int) -> None:
            self.before.append((cohort.W.clone(), cohort.buffers.clone()))
            advance(last)
            self.after.append((cohort.W.clone(), cohort.buffers.clone()))

        return recorded


def uploads_of(run: dict[str, Any]) -> Callable[[int, int], list[int]]:
    """The upload steps a golden run lists for its two groups."""
    return lambda t, id_: run["upload_steps"]["high" if id_ in run["high"][t] else "low"]


def golden(run: dict[str, Any], executor: str) -> tuple[Any, Federation, Recording]:
    """A golden run's federation."""
    case = without_exchange(run, CONTENT["problems"])
    start = torch.tensor(case.fields["w0"], dtype=torch.float64)
    chosen = settings(**case.settings, engine={"executor": executor, "workers": 1})
    fed = federation(chosen, case.world, case.data, cohorts=case.cohorts, start=start)
    fed.parts.communication, recording = Scheduled(uploads_of(run)), Recording(fed.parts.executor)
    fed.parts.executor = recording
    return case, fed, recording


@pytest.mark.parametrize(("number", "executor"), product(PLAIN, ["threads", "stacked"]))
def test_partial_averages_follow_the_golden_runs(number: int, executor: str) -> None:
    """Intervals, straddling batches, clip before decay, Nesterov, momentum kept by clients: all of it to 1e-9."""
    run = CONTENT["runs"][number]
    case, fed, recording = golden(run, executor)
    rounds = watch(fed)
    state, _ = run_rounds(fed)
    outcome = Outcome(fed, state, rounds, [], [], [], [], [])
    assert not [text for check in case.checks(case.fields, outcome) if (text := difference(check))]
    averages = run.get("aggregations_round_1", [])
    models = [W for W, _ in recording.before[1 : len(averages)]] + [rounds[0][1].expand(6, -1)]
    for average, W in zip(averages, models, strict=False):
        wanted = torch.tensor(average["model"], dtype=torch.float64)
        assert closest(W[average["members"]], wanted.expand(len(average["members"]), -1)) < 1e-9
    case.fields.pass_over("aggregations_round_1", "upload_steps", "high", "interval_high", "interval_low", "star_mode")
    case.fields.pass_over("schedule")
    assert not case.fields.unread()


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_averages_conserve_mass(executor: str) -> None:
    """sum_k n_k W_k does not change at any average, inside a round or at its end."""
    run = CONTENT["runs"][6]
    _, fed, recording = golden(run, executor)
    rounds = watch(fed)
    run_rounds(fed)
    n = rounds[0][0].n[:, 0]
    averages = [(after, before) for (after, _), (before, _) in zip(recording.after, recording.before[1:], strict=False)]
    for after, before in averages:
        assert closest(n @ after, n @ before) < 1e-12
        assert closest(after, before) > 1e-4  # somebody did average


def quadratic_round(
    quadratics: Any, curvatures: list[float], intervals: list[int], rounds: int, eta: float, steps: int
) -> Tensor:
    """Three clients of 3, 5 and 9 samples with minima 1, -4 and 7, started at 2."""
    sizes, minima = [3, 5, 9], [[value] * 3 for value in (1.0, -4.0, 7.0)]
    data, chosen = quadratics(sizes, curvatures, minima)
    local = {"steps": steps, "batch_size": 9, "lr": eta}
    fed = federation(settings(local=local, **chosen), steady(sizes, rounds), data)
    fed.parts.w0 = torch.full_like(fed.parts.w0, 2.0)
    fed.parts.communication = Scheduled(lambda t, id_: due(intervals[id_], steps))
    return run_rounds(fed)[0].w


@pytest.mark.parametrize(
    ("intervals", "value"),
    [([1, 1, 7], 3.617222674381039), ([7, 7, 7], 3.7088266726489643), ([1, 1, 1], 4.3687408116146464)],
)
def test_different_curvatures_tell_schedules_apart(quadratics: Any, intervals: list[int], value: float) -> None:
    w = quadratic_round(quadratics, [0.5, 1.0, 2.0], intervals, rounds=4, eta=0.11, steps=7)
    assert closest(w, torch.full_like(w, value)) < 1e-12


@pytest.mark.parametrize("intervals", [[1, 1, 5], [5, 5, 5], [2, 3, 5]])
def test_equal_curvatures_contract_alike_under_every_schedule(quadratics: Any, intervals: list[int]) -> None:
    """theta_r = theta* + (1 - eta)^(k r) (theta_0 - theta*) with the weighted mean of the minima."""
    eta, steps, rounds = 0.2, 5, 3
    optimum = (3 * 1.0 + 5 * -4.0 + 9 * 7.0) / 17
    w = quadratic_round(quadratics, [1.0, 1.0, 1.0], intervals, rounds, eta, steps)
    assert closest(w, torch.full_like(w, optimum + (1 - eta) ** (steps * rounds) * (2.0 - optimum))) < 1e-13


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_an_average_after_every_step_is_centralised_sgd(momentum: float, nesterov: bool) -> None:
    """Equal sizes, no clipping: one client with the batches of all, side by side, takes the same steps."""
    common = {"steps": 4, "lr": 0.2, "order": "stored", "momentum": momentum, "nesterov": nesterov}
    fed = federation(settings(local={**common, "batch_size": 2}), steady((8, 8, 8), 2), vectors())
    fed.parts.communication = Scheduled(lambda t, id_: due(1, 4))
    state, _ = run_rounds(fed)
    woven = torch.arange(24).view(3, 4, 2).transpose(0, 1).reshape(-1)
    data = vectors()
    data = replace(data, train_inputs=data.train_inputs[woven], train_labels=data.train_labels[woven])
    central, _ = trajectory("fedavg", steady((24,), 2), data, local={**common, "batch_size": 6})
    assert closest(state.w, central[-1]) < 1e-13


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_nobody_or_one_client_alone_at_a_time_is_fedavg(executor: str) -> None:
    common = {"local": {"epochs": 2, "batch_size": 3}, "engine": {"executor": executor, "workers": 1}}
    plain, before = trajectory("fedavg", steady((5, 2, 7), 3), vectors(), **common)
    for uploads in (lambda t, id_: [99], lambda t, id_: [1, 2, 3] if id_ == 1 else [99]):
        fed = federation(settings(**common), steady((5, 2, 7), 3), vectors())
        fed.parts.communication = Scheduled(uploads)
        seen = watch(fed)
        state, _ = run_rounds(fed)
        assert all(torch.equal(w, wanted) for (_, w), wanted in zip(seen, plain, strict=True))
    assert state.totals["bytes_up"] - before.totals["bytes_up"] == 3 * 3 * fed.parts.payload().up


def test_statistics_are_averaged_too() -> None:
    local = {"steps": 2, "batch_size": 4, "lr": 0.01, "order": "stored"}
    fed = federation(settings(model="cnn_svhn", local=local), steady((4, 12), 1), images())
    fed.parts.communication, recording = Scheduled(lambda t, id_: [1]), Recording(fed.parts.executor)
    fed.parts.executor = recording
    run_rounds(fed)
    (_, after), (_, before) = recording.after[0], recording.before[1]
    assert closest(after[0], after[1]) > 1e-6
    assert closest(before, (0.25 * after[0] + 0.75 * after[1]).expand(2, -1)) < 1e-14
