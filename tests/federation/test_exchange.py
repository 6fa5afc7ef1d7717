"""Averages inside a round, driven by a schedule of the tests' own."""

import json
from collections.abc import Callable
from dataclasses import replace
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
from golden.families.dynamicfl import without_exchange
from support import closest, federation, images, run_rounds, settings, steady, trajectory, vectors

CONTENT = json.loads((Path(__file__).parents[1] / "golden" / "dynamicfl.json").read_text(encoding="utf-8"))


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


def test_statistics_are_averaged_too() -> None:
    local = {"steps": 2, "batch_size": 4, "lr": 0.01, "order": "stored"}
    fed = federation(settings(model="cnn_svhn", local=local), steady((4, 12), 1), images())
    fed.parts.communication, recording = Scheduled(lambda t, id_: [1]), Recording(fed.parts.executor)
    fed.parts.executor = recording
    run_rounds(fed)
    (_, after), (_, before) = recording.after[0], recording.before[1]
    assert closest(after[0], after[1]) > 1e-6
    assert closest(before, (0.25 * after[0] + 0.75 * after[1]).expand(2, -1)) < 1e-14
