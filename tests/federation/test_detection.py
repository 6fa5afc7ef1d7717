"""Responses to alarms: what they equal, and that they survive interruptions, departures and clocks."""

from typing import Any

import pytest
import torch

from federation.jobs import UNEQUAL, made
from fedtide.authoring.rounds import assert_resumes
from fedtide.core import plugins
from fedtide.core.errors import Diverged
from fedtide.federation.features.detection import Detection
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.state import initial_state, restored_state
from fedtide.federation.types import RunState
from fedtide.world.building.drifting import with_drift
from fedtide.world.drift.base import Drift
from fedtide.world.timeline import Timeline
from matrix import matrix
from support import (
    assert_same,
    deal,
    federation,
    light,
    one,
    run_rounds,
    settings,
    steady,
    stepped,
    timeline,
    trajectory,
    vectors,
)

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (12, 8, 20)
LOCAL = {"epochs": 2, "batch_size": 4, "lr": 0.1}
RESPONSES = [{"response": name} for name in ("none", "reset_memories", "reset_model", "start_session")]
RESPONSES.append({"response": "raise_rate", "factor": 2.0, "rounds": 2})


def after(losses: int, **chosen: Any) -> dict[str, Any]:
    return {"name": "after", "losses": losses, **chosen}


def prepared(world: Timeline, **values: Any) -> Federation:
    return federation(settings(**{"local": LOCAL, **values}), world, vectors(40))


def halves(rounds: int, first: int) -> Timeline:
    """Everybody is present in two sessions."""
    everybody = dict(enumerate(range(len(SIZES))))
    return timeline(deal(SIZES), [everybody] * rounds, session_of_round=[int(t >= first) for t in range(rounds)])


def rows(records: list[RoundRecord], *without: str) -> list[dict[str, Any]]:
    left_out = {"seconds", "alarm", "alarmed_clients", *without}
    return [{name: value for name, value in record.row.items() if name not in left_out} for record in records]


@pytest.mark.parametrize(("response", "watch"), matrix(RESPONSES, ["server", "clients"]))
def test_without_alarms_every_bit_is_that_of_the_run_without_a_detector(watch: str, response: Any) -> None:
    plain, expected = run_rounds(prepared(halves(5, 3), algorithm="scaffold"))
    found, records = run_rounds(
        prepared(halves(5, 3), algorithm="scaffold", detector=after(9, watch=watch, **response))
    )
    assert_same(plain, found)
    assert rows(records) == rows(expected)
    assert [record.row["alarm"] for record in records] == [0] * 5
    assert "alarm" not in expected[0].row


def test_the_first_model_comes_back_as_that_of_the_control_that_is_told() -> None:
    """A scripted detector that alarms in the round before a drift, against ``oracle_reset``."""
    drift = plugins.create(Drift, settings(drift={"name": "sudden", "start": 3, "clients": [[0, 2]]}).drift)
    world = with_drift(steady(SIZES, 6), drift, vectors(40), seed=0)
    told, _ = trajectory("oracle_reset", world, vectors(40), local=LOCAL)
    found, _ = trajectory("fedavg", world, vectors(40), local=LOCAL, detector=after(3, response="reset_model"))
    plain, _ = trajectory("fedavg", world, vectors(40), local=LOCAL)
    assert all(torch.equal(a, b) for a, b in zip(told, found, strict=True))
    assert not torch.equal(plain[3], found[3])


@pytest.mark.parametrize("algorithm", ["creff", "fedawe", "fedcm", "feddrift", "fedwcm", "mifa", "scaffold"])
def test_reset_memories_are_those_at_the_start_of_a_session(algorithm: str) -> None:
    """With the model carried on, a session's first round differs in nothing else, traffic included."""
    values: Any = {"algorithm": light(algorithm), "evaluation": {"models": ["global"]}}
    expected, session = run_rounds(prepared(halves(5, 3), **values))
    found, records = run_rounds(prepared(steady(SIZES, 5), **values, detector=after(3, response="reset_memories")))
    assert_same(expected, found)
    assert rows(records, "session") == rows(session, "session")
    assert [record.row["session"] for record in records] == [1] * 5


@pytest.mark.parametrize("initializer", plugins.names("initializers"))
def test_a_session_that_an_alarm_begins_is_one_of_the_timeline(initializer: str) -> None:
    values: Any = {"algorithm": "scaffold", "initializer": initializer}
    expected, session = run_rounds(prepared(halves(5, 3), **values))
    found, records = run_rounds(prepared(steady(SIZES, 5), **values, detector=after(3, response="start_session")))
    assert_same(expected, found)
    assert rows(records) == rows(session)
    assert [record.session for record in records] == [record.session for record in session]
    assert records[3].session is not None
    assert records[3].row["session"] == 2
    for name, value in expected.initializer.items():
        assert torch.equal(value, found.initializer[name]), name


def test_no_session_begins_twice_nor_in_a_pilot() -> None:
    world = halves(6, 3)
    assert world.with_session(3) is world
    assert world.with_session(6) is world
    assert world.with_session(4).session_of_round.tolist() == [0, 0, 0, 1, 2, 2]
    world.notes["pilot_sessions"] = 1
    assert world.with_session(2) is world
    assert world.with_session(5).session_starts.tolist() == [0, 3, 5]


def test_the_rate_is_raised_for_some_rounds_after_each_alarm() -> None:
    chosen = after(3, response="raise_rate", factor=3.0, rounds=2)
    local = {**LOCAL, "schedule": "exponential", "decay": 0.5}
    _, records = run_rounds(prepared(steady(SIZES, 8), local=local, detector=chosen))
    factors = [1, 1, 1, 3, 3, 1, 3, 3]
    assert [record.row["lr"] for record in records] == [0.1 * 0.5**t * f for t, f in enumerate(factors)]
    assert [record.row["alarm"] for record in records] == [0, 0, 1, 0, 0, 1, 0, 0]


WHO = [(0, 1, 2), (0, 1), (0, 1, 2), (0, 1, 2), (0, 1, 2)]


def test_a_client_that_leaves_loses_its_detector() -> None:
    world = timeline(deal(SIZES), [{k: k for k in here} for here in WHO])
    fed = prepared(world, detector=after(3, watch="clients"))
    kept, alarmed = [], []
    for state, record in stepped(fed):
        kept.append(sorted(state.features["detector"]["streams"].tolist()))
        alarmed.append(record.row["alarmed_clients"])
    assert kept == [[0, 1, 2], [0, 0, 1, 1], [2], [0, 1, 2, 2], [0, 0, 1, 1]]
    assert alarmed == [0, 0, 2, 0, 1]


def test_sessions_without_a_client_take_its_detector() -> None:
    world = timeline(deal(SIZES), [{k: k for k in here} for here in WHO], session_of_round=[0, 1, 1, 1, 1])
    state, _ = run_rounds(prepared(world, detector=after(9, watch="clients")))
    assert [state.features["detector"]["streams"].tolist().count(k) for k in range(3)] == [5, 5, 3]
    assert state.features["detector"]["periods"].tolist() == [0] * 2 + [1] * 11


@pytest.mark.parametrize(("share", "alarms"), [(None, 1), (0.6, 1), (2 / 3, 1), (0.7, 0)])
def test_a_share_of_the_participants_has_to_alarm(share: float | None, alarms: int) -> None:
    """Client 2 takes no part in the first round, so the detectors of two of three alarm in the third."""
    fed = prepared(steady(SIZES, 4), detector=after(3, watch="clients", share=share, response="reset_memories"))
    cohorts = [[0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
    fed = federation(fed.parts.settings, fed.parts.timeline, vectors(40), cohorts=cohorts)
    state, records = run_rounds(fed, 3)
    assert [record.row["alarm"] for record in records] == [0, 0, alarms]
    assert [record.row["alarmed_clients"] for record in records] == [0, 0, 2]
    assert state.features["detector"]["responses"].tolist() == [3] * alarms
    assert state.features["detector"]["streams"].tolist() == ([] if alarms else [2, 2])


@pytest.mark.parametrize(("response", "watch"), matrix(RESPONSES, ["server", "clients"]))
def test_a_resumed_run_is_the_uninterrupted_one(watch: str, response: Any) -> None:
    """It stops between the first alarm, after round 3, and the response to it; and before the last round."""
    detector = after(3, watch=watch, **response)
    chosen = settings(local=LOCAL, algorithm="scaffold", initializer="average", detector=detector)
    run = chosen, steady(SIZES, 6), vectors(40)
    _, records = run_rounds(federation(*run))
    assert [record.row["alarm"] for record in records] == [0, 0, 1, 0, 0, 1]
    assert_resumes(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adwin", "ddm", "kswin", "page_hinkley"])
def test_detectors_of_the_library_are_shown_their_losses_again(name: str) -> None:
    """In a run that stops right before a drift of two thirds of the clients, and once more."""
    pytest.importorskip("river")
    sensitive: dict[str, Any] = {
        "adwin": {"min_window_length": 5},
        "ddm": {"limit": 1.5, "warm_start": 10},
        "kswin": {"alpha": 0.05, "window_size": 30, "stat_size": 10},
        "page_hinkley": {"min_instances": 10, "delta": 0.005, "threshold": 0.2},
    }
    detector = {"name": name, "watch": "clients", "reference": None, **sensitive[name]}
    chosen = settings(detector=detector, local=LOCAL)
    drift = plugins.create(Drift, settings(drift={"name": "sudden", "start": 40, "clients": [[0, 2]]}).drift)
    run = chosen, with_drift(steady(SIZES, 80), drift, vectors(40), seed=0), vectors(40)
    _, records = run_rounds(federation(*run))
    assert any(record.row["alarmed_clients"] for record in records[40:])
    assert_resumes(run)


@pytest.mark.parametrize("response", RESPONSES[1:], ids=lambda chosen: chosen["response"])
def test_alarms_among_events(response: Any) -> None:
    """An interrupted run is the uninterrupted one, and what a client sends that has left is not watched."""
    chosen = {"name": "fedbuff", "buffer": 2}
    detector = after(2, watch="clients", **response)
    whole, expected = run_rounds(made(chosen, UNEQUAL, steady((5, 2, 7, 4, 6), 8), 4, detector=detector)[0])
    fed, noted = made(chosen, UNEQUAL, steady((5, 2, 7, 4, 6), 8), 4, detector=detector)
    half, _ = run_rounds(fed, 4)
    again, lengths = made(chosen, UNEQUAL, steady((5, 2, 7, 4, 6), 8), 4, detector=detector)
    lengths.started = noted.started
    state, records = run_rounds(again, None, restored_state(again.parts, half.tensors()))
    assert_same(whole, state)
    assert rows(records) == rows(expected[4:])
    assert sum(record.row["alarm"] or 0 for record in expected) > 1


def test_jobs_under_way_keep_the_rate_that_they_started_with() -> None:
    """Alarm after the first update: results of models from then on were trained at the raised rate."""
    detector = after(1, response="raise_rate", factor=2.0, rounds=99)
    fed, _ = made({"name": "fedbuff", "buffer": 1}, UNEQUAL, steady((5, 2, 7, 4, 6), 8), 5, detector=detector)
    state, rates = initial_state(fed.parts), list[tuple[int, float]]()
    plan = fed.clock.plan

    def noted(state: RunState, t: int) -> Any:
        found = plan(state, t)
        changed = one(fed.parts, Detection).plan(fed.parts, state, found)
        assert found.starts is not None
        assert changed.starts is not None
        staleness = found.starts.staleness[0]
        rates.append((t - staleness, changed.starts.lr[0] / found.starts.lr[0]))
        return found

    fed.clock.plan = noted  # type: ignore[method-assign]
    run_rounds(fed, None, state)
    assert {version: factor for version, factor in rates if version == 0} == {0: 1.0}
    assert {factor for version, factor in rates if version > 0} == {2.0}
    assert len([version for version, _ in rates if version == 0]) > 1


def test_a_diverged_round_is_not_watched() -> None:
    fed = prepared(steady(SIZES, 3), detector=after(1), divergence_threshold=1e-9)
    with pytest.raises(Diverged) as error, torch.no_grad():
        fed.run_round(initial_state(fed.parts))
    assert error.value.record.row["alarm"] is None
