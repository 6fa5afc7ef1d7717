"""FedAWE: echoes, gossip, newcomers, sessions."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from algorithms.absent_worlds import COHORTS, DECAYING, LOCAL, SIZES, UNIFORM, models, start
from support import closest, deal, federation, run_rounds, settings, steady, timeline, trajectory, vectors, watch

awe = partial(dict, name="fedawe")


@pytest.mark.parametrize("cohort", [[1], [0, 3], [0, 1, 2]])
def test_the_first_round_is_that_of_fedavg(cohort: list[int]) -> None:
    for newcomers in ("initial", "current"):
        ours = models(awe(newcomers=newcomers, server_lr=0.6), [cohort])[0]
        assert closest(ours, models({**UNIFORM, "server_lr": 0.6}, [cohort])[0]) < 1e-15


def test_without_a_server_step_the_model_stays() -> None:
    for w in models(awe(server_lr=0.0), start=start()):
        assert closest(w, start()) < 1e-15


def test_every_missed_round_is_made_up_for() -> None:
    """The echoes of a client sum up to the number of rounds up to its last participation."""
    fed = federation(settings(algorithm=awe(), local=LOCAL), steady(SIZES, 5), vectors(), cohorts=COHORTS)
    state, records = run_rounds(fed)
    echoes, last = [0.0] * 4, [-1] * 4
    for t, record in enumerate(records):
        for client, echo in zip(record.clients["client"], record.clients["echo"], strict=True):
            echoes[client] += echo
            last[client] = t
    assert echoes == [t + 1 for t in last] == [4, 4, 3, 5]
    assert state.extra["last"].tolist() == last


def test_participants_start_from_the_model_they_received_last() -> None:
    """Clients 0 and 2 meet in the first round, 1 and 3 start from x0 in the second, or from the current model."""
    for newcomers in ("initial", "current"):
        fed = federation(
            settings(algorithm=awe(newcomers=newcomers), local={**LOCAL, "lr": 1e-300}),
            *(steady(SIZES, 3), vectors()),
            cohorts=[[0, 2], [1, 2, 3], [0, 1]],
        )
        fed.parts.w0 = start()
        moved: list[torch.Tensor] = []
        finish = fed.parts.algorithm.finish

        def nudge(r: Any, moved: list[torch.Tensor] = moved, finish: Any = finish) -> torch.Tensor:
            moved.append(r.W.clone())
            return finish(r) + 1.0  # a server model that is nobody's

        fed.parts.algorithm.finish = nudge  # type: ignore[method-assign]
        run_rounds(fed)
        first = start() if newcomers == "initial" else start() + 1
        assert closest(moved[1], torch.stack([first, start(), first])) < 1e-12


def test_clients_that_never_meet_never_exchange_anything() -> None:
    """Cohorts {0}, {1}, {0}, {1}: what client 1 arrives at does not depend on client 0's data."""
    data, cohorts = vectors(), [[0], [1], [0], [1]]
    other = replace(
        data, train_labels=torch.where(torch.arange(60) < 5, (data.train_labels + 1) % 3, data.train_labels)
    )
    ours = [
        trajectory(awe(), steady((5, 6), 4), d, cohorts=cohorts, start=start(), local=LOCAL)[0] for d in (data, other)
    ]
    for t in (1, 3):
        assert torch.equal(ours[0][t], ours[1][t])
    assert closest(ours[0][0], ours[1][0]) > 1e-3


def test_the_averaged_step_is_clipped_before_the_server_step() -> None:
    fed = federation(
        settings(algorithm=awe(delta_clip=0.02, server_lr=0.5), local=LOCAL),
        steady(SIZES, 5),
        vectors(),
        cohorts=COHORTS,
    )
    seen = watch(fed)
    run_rounds(fed)
    x, last = seen[0][0].w.expand(4, -1).clone(), torch.full((4,), -1)
    for r, w in seen:
        ids = torch.tensor(r.ids)
        step = ((r.t - last[ids]).unsqueeze(1) * (r.W - x[ids])).mean(0)
        clipped = step * min(1.0, 0.02 / float(step.norm()))
        assert closest(w, x[ids].mean(0) + 0.5 * clipped) < 1e-14
        assert float(step.norm()) > 0.02
        x[ids], last[ids] = w, r.t
    assert closest(models(awe(delta_clip=100.0))[-1], models(awe())[-1]) == 0


def two_sessions(on_session_start: str) -> list[Any]:
    """Rounds of two sessions of three rounds; client 2 has never taken part before the second one."""
    world = timeline(deal((5, 6, 7)), [{0: 0, 1: 1, 2: 2}] * 6, session_of_round=[0, 0, 0, 1, 1, 1])
    chosen = settings(
        algorithm=awe(), local=DECAYING, initializer="restart", client_state={"on_session_start": on_session_start}
    )
    fed = federation(chosen, world, vectors(), cohorts=[[0], [1], [0, 1], [1], [0, 2], [2]])
    seen = watch(fed)
    state, records = run_rounds(fed)
    return [seen, records, fed.parts.w0, state]


def test_a_session_starts_everybody_from_its_first_model() -> None:
    seen, records, w0, _ = two_sessions("reset")
    assert torch.equal(seen[3][0].w, w0)
    assert [record.clients["echo"] for record in records[3:]] == [[1.0], [2.0, 2.0], [1.0]]
    assert torch.equal(seen[3][0].server.x0, w0)


def test_a_kept_session_goes_on_from_the_clients_own_models() -> None:
    _, records, w0, state = two_sessions("keep")
    assert [record.clients["echo"] for record in records[3:]] == [[1.0], [2.0, 2.0], [1.0]]
    assert torch.equal(state.server["x0"], w0)


def test_a_device_that_left_within_a_session_returns_as_a_newcomer() -> None:
    present = [{0: 0, 1: 1}, {0: 0}, {0: 0, 1: 1}]
    fed = federation(
        settings(algorithm=awe(newcomers="current"), local=LOCAL), timeline(deal((5, 6)), present), vectors()
    )
    fed.parts.participation.settings = fed.parts.participation.settings.model_copy(update={"fraction": 1.0})
    _, records = run_rounds(fed)
    assert [record.clients["echo"] for record in records] == [[1.0, 1.0], [1.0], [1.0, 1.0]]
