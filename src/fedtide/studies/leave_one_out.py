"""Runs without one client, each from the first round that the client has a part in, and what the final model lacks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedtide.core.array_types import Floats, Ints
from fedtide.core.errors import Diverged
from fedtide.federation.features.twins import beside, copied
from fedtide.federation.features.worlds import touched
from fedtide.federation.federation import Federation
from fedtide.federation.scoring.client_samples import own_samples, samples_of
from fedtide.federation.scoring.client_scores import of_reported
from fedtide.federation.scoring.evaluator import Evaluator, ModelValues, part_of
from fedtide.federation.state import initial_state
from fedtide.federation.types import Parts, RunState
from fedtide.methods.accounting.cohorts import cohorts
from fedtide.settings.scores import RECORDED, Score, TaskName
from fedtide.training.engine.passes.evaluation import Scores
from fedtide.training.engine.passes.metrics import Fit
from fedtide.world.clients import ClientNames
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class Contribution:
    """The value of a client to the final global model.

    Attributes:
        client, name: its id, and its name in the data ("" if it has none).
        first_round: the first (from 1) that it has a part in, 0 for none. rounds: trained without it.
        values: by :func:`columns`: how much better the model with everybody is than the one without the client. NaN without
            samples, or if training diverges without the client.
    """

    client: int
    name: str
    first_round: int
    rounds: int
    values: tuple[float, ...]


def columns(task: TaskName) -> list[str]:
    """Names of values: the task's main score and its loss, on all test samples, the client's own and the other clients'."""
    return [f"{samples}{score}" for samples in ("", "own_", "others_") for score in (RECORDED[task][0], "loss")]


def everybody(world: Timeline) -> Ints:
    """Ids of all clients that are ever present, ascending."""
    return np.unique(
        np.concatenate([world.assignments[each].clients for each in set(world.assignment_of_round.tolist())])
    )


def leave_one_out(parts: Parts, clients: Sequence[int]) -> Iterator[Contribution]:
    """The contributions of clients, in the order of their first parts in the run."""
    rows, task = np.searchsorted(everybody(parts.timeline), clients), parts.data.task
    model, begins = whole_run(parts, clients)
    whole = scores(parts.evaluator, model, rows)
    sign = np.array([Score(name).sign for name in (RECORDED[task][0], "loss")])
    names, rounds = ClientNames.of(parts.timeline, parts.data), parts.timeline.rounds
    for client, without in runs_without(parts, begins, model):
        place, first = list(clients).index(client), begins[client]
        left = np.full((3, 2), np.nan) if without is None else scores(parts.evaluator, without, rows[[place]])[0]
        values = (sign * (whole[place] - left)).ravel().tolist()
        name = names[client] if names.own else ""
        yield Contribution(client, name, first + 1 if first < rounds else 0, rounds - first, tuple(values))


def whole_run(parts: Parts, clients: Sequence[int]) -> tuple[ModelValues, dict[int, int]]:
    """The final global model of the run as configured, and the first round that each client has a part in, T for none."""
    fed = beside(parts, parts.timeline)
    model, world = final(fed, initial_state(parts)), fed.parts.timeline  # with the sessions that alarms have begun
    who = cohorts(parts.participation, world, parts.settings.seed)
    rounds = {client: touched(parts, world, who.present[[client]], who.drawn[[client]]) for client in clients}
    return model, {client: int(found[0]) if len(found) else world.rounds for client, found in rounds.items()}


def runs_without(
    parts: Parts, begins: Mapping[int, int], whole: ModelValues
) -> Iterator[tuple[int, ModelValues | None]]:
    """The final global model of the run without each client: None if training diverges, the ``whole`` run's without a part.

    Each goes on from the run with everybody before the first round ``begins`` that the client has a part in. That run advances
    once more up to the last of these, so that no states are stored, whatever the number of clients.
    """
    world, fed, state = parts.timeline, beside(parts, parts.timeline), initial_state(parts)
    for client in sorted(begins, key=begins.__getitem__):
        if begins[client] == world.rounds:
            yield client, whole
            continue
        _advance(fed, state, begins[client])
        less = beside(parts, world.without(np.array([client]), np.ones(world.rounds, dtype=np.bool_)))
        try:
            yield client, final(less, copied(state))
        except Diverged:
            yield client, None


def final(fed: Federation, state: RunState) -> ModelValues:
    """Advance a state to the end of its run; the final global model."""
    _advance(fed, state, fed.parts.timeline.rounds)
    return state.w, state.b


def _advance(fed: Federation, state: RunState, round_: int) -> None:
    with torch.no_grad():
        while state.round < round_:
            fed.advance(state)


def scores(evaluator: Evaluator, model: ModelValues, rows: Ints) -> Floats:
    """Main score and loss of a model on all held-out samples, on a client's own and on the others', float64 [n, 3, 2].

    ``rows``: of the clients, int64 [n], among :func:`everybody`. NaN without samples.
    """
    timeline, split, task = evaluator.timeline, evaluator.settings.splits[0], evaluator.data.task
    t, clients = timeline.rounds - 1, everybody(timeline)
    found = np.full((len(rows), 3, 2), np.nan)
    together = evaluator.scores(model, split, None, timeline.evaluated_at(t), timeline.mixture_at(t))
    found[:, 0] = _pair(together.row(timeline.labels_at(t)), task)
    if isinstance(together, Scores):
        tested = samples_of(evaluator, t, clients)
        each = np.stack(of_reported(evaluator, model, together, tested), axis=1)
        sizes = np.where(np.isnan(each[:, 0]), 0, tested.sizes)
        for place, row in enumerate(rows):
            weights = np.where(np.arange(len(clients)) == row, 0, sizes)
            found[place, 1] = each[row]
            found[place, 2] = weights @ np.nan_to_num(each) / weights.sum() if weights.any() else np.nan
    elif (own := own_samples(evaluator, t, clients)) is not None:
        positions = evaluator.on_device(np.concatenate(own))
        all_ = evaluator.scores_on(model, *evaluator.data.read(part_of(split), positions))
        assert isinstance(all_, Fit)
        of = torch.from_numpy(np.repeat(np.arange(len(own)), [len(each) for each in own]))
        for place, row in enumerate(rows.tolist()):
            for group, chosen in enumerate((of == row, of != row), 1):
                part = replace(all_, outputs=all_.outputs[chosen], labels=all_.labels[chosen])
                found[place, group] = _pair(part.row(), task)
    return found


def _pair(row: dict[str, float | None], task: TaskName) -> list[float]:
    return [math.nan if (value := row[name]) is None else value for name in (RECORDED[task][0], "loss")]
