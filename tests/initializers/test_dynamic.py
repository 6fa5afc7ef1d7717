"""Dynamic initial model construction inside a run."""

import copy
import json
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from session_worlds import LOCAL, SIZES, A, B, alternating, made, populations, sessions_of

from fedtide.authoring.rounds import assert_resumes
from fedtide.core.errors import Diverged, SettingsError
from fedtide.core.storage.files import canonical_json
from fedtide.federation.federation import boundary_at
from fedtide.federation.types import RunState
from fedtide.methods.initializers import base as store
from fedtide.training.engine.passes.evaluation import full_gradient
from support import closest, federation, images, run_rounds, settings, tensors, vectors


def updates(state: RunState) -> dict[int, torch.Tensor]:
    """G by session."""
    return {z: store.recall(state.initializer, "update", z, "G") for z in store.sessions(state.initializer, "update")}


@pytest.mark.parametrize("scale", [0.0, 0.25, 10, math.inf, "inf"])
def test_the_scale_is_a_number_that_may_be_infinite_everywhere(scale: Any) -> None:
    chosen = settings(initializer={"name": "dynamic", "similarity_scale": scale})
    assert chosen.initializer.similarity_scale == float(scale)
    written = json.loads(canonical_json(chosen.canonical()))
    assert written["initializer"]["similarity_scale"] == ("inf" if scale in (math.inf, "inf") else scale)
    again = settings(initializer=written["initializer"])
    assert again == chosen
    assert again.canonical() == chosen.canonical()


@pytest.mark.parametrize("scale", [-1, math.nan, "many"])
def test_impossible_settings_are_one_line(scale: Any) -> None:
    with pytest.raises(SettingsError, match="similarity_scale") as caught:
        settings(initializer={"name": "dynamic", "similarity_scale": scale})
    assert "\n" not in str(caught.value)


def test_an_update_of_one_full_step_is_minus_the_gradient_at_the_pilot() -> None:
    """FedAvg, one full-batch step without momentum: G = -lr grad F(w_pilot)."""
    local = {"epochs": 3, "batch_size": 99, "lr": 0.3}
    fed = made({"name": "dynamic", "gradient_steps": 1, "gradient_lr": 0.07}, alternating(3), local=local)
    state, _ = run_rounds(fed)
    fed = made("previous", alternating(1), local=local)
    pilot, _ = run_rounds(fed)
    for session, members in ((1, B), (2, A)):
        fed = made("previous", alternating(1), local=local)
        shards = [fed.parts.timeline.shards[k] for k in members]
        counts = fed.parts.data.label_counts(shards)
        gradients = full_gradient(fed.parts.workers, pilot.w, pilot.b, shards, 99, counts)
        fed.parts.workers.close()
        n = torch.tensor([float(SIZES[k]) for k in members], dtype=torch.float64)
        assert closest(updates(state)[session], -0.07 * (n / n.sum()) @ gradients) < 1e-12


@pytest.mark.parametrize(
    "chosen", [{"algorithm": "fedwcm"}, {"objective": {"name": "balanced_softmax", "prior": "global"}}], ids=str
)
def test_an_update_of_the_second_group_is_a_round_among_that_group(chosen: Any) -> None:
    """Algorithm and objective see the population that is present, not that of the first session."""
    everything: Any = {"local": {"epochs": 1, "batch_size": 99, "lr": 0.14}, **chosen}
    state, _ = run_rounds(made("dynamic", alternating(2), **everything))
    alone = federation(settings(**everything), populations([B], pilot=0), vectors(), start=state.initializer["pilot_w"])
    once, _ = run_rounds(alone)
    assert closest(updates(state)[1], (once.w - alone.parts.w0) / 2) < 1e-12


def test_equal_sessions_are_at_distance_zero_and_share_the_weight() -> None:
    local = {**LOCAL, "order": "stored"}
    fed = made({"name": "dynamic", "similarity_scale": math.inf}, alternating(6), local=local)
    _, _, sessions = sessions_of(fed)
    for opening in sessions[3:]:
        mine = [z for z in opening["distances"] if (int(z) - opening["session"]) % 2 == 0]
        assert {opening["distances"][z] for z in mine} == {0.0}
        assert all(opening["distances"][z] > 0.1 for z in opening["distances"] if z not in mine)
        assert opening["weights"] == {z: 1 / len(mine) if z in mine else 0.0 for z in opening["weights"]}


@pytest.mark.slow
def test_without_a_scale_it_is_the_average_and_with_history_one_the_previous() -> None:
    model = {"model": "cnn_svhn", "local": {**LOCAL, "lr": 0.01}}
    average, mean = (
        sessions_of(made(init, alternating(4), images(), **model))
        for init in ("average", {"name": "dynamic", "similarity_scale": 0})
    )
    assert all(closest(a, b) < 1e-14 for a, b in zip(average[1], mean[1], strict=True))
    assert closest(average[0][0].b, mean[0][0].b) < 1e-12
    previous, last = (
        sessions_of(made(init, alternating(4), images(), **model))
        for init in ("previous", {"name": "dynamic", "history": 1})
    )
    assert all(torch.equal(a, b) for a, b in zip(previous[1], last[1], strict=True))
    assert torch.equal(previous[0][0].b, last[0][0].b)


@pytest.mark.parametrize("retention", ["recent", "diverse"])
def test_a_history_that_is_long_enough_is_unlimited(retention: str) -> None:
    ends = [run_rounds(made({"name": "dynamic", "history": h, "retention": retention}))[0].w for h in (None, 5)]
    assert torch.equal(*ends)


def test_no_history_is_the_previous_model() -> None:
    assert torch.equal(run_rounds(made({"name": "dynamic", "history": 0}))[0].w, run_rounds(made("previous"))[0].w)


@pytest.mark.slow
def test_the_statistics_of_the_pilot_are_averaged_like_its_parameters() -> None:
    model: Any = {"model": "cnn_svhn", "local": {**LOCAL, "lr": 0.01}}
    ends = [run_rounds(made("previous", alternating(pilot, pilot=pilot), images(), **model))[0].b for pilot in (1, 2)]
    moving = {"name": "dynamic", "pilot_mode": "ema", "pilot_decay": 0.2}
    state, _ = run_rounds(made(moving, alternating(3, pilot=2), images(), **model))
    assert closest(state.initializer["pilot_b"], 0.2 * ends[0] + 0.8 * ends[1]) < 1e-12
    assert closest(*ends) > 1e-3


def test_gradient_rounds_leave_no_trace_but_their_bytes() -> None:
    """The run's state is the same before and after, but for the update and the totals."""
    fed = made(
        {"name": "dynamic", "gradient_rounds": 2},
        alternating(3, 2),
        algorithm="scaffold",
        evaluation={"models": ["global", "all"]},
        client_state={"on_session_start": "keep"},
        local={**LOCAL, "momentum": 0.5, "momentum_scope": "client"},
    )
    state, _ = run_rounds(fed, 4)
    before, totals, kept = copy.deepcopy(tensors(state)), dict(state.totals), dict(state.initializer)
    with torch.no_grad():
        fed.parts.initializer.prepare(boundary_at(fed.parts, state, 4))
    after = tensors(state)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert state.initializer.keys() - kept.keys() == {"update.2.G"}
    assert all(state.initializer[name] is value for name, value in kept.items())
    assert state.totals["bytes_up"] - totals["bytes_up"] == 2 * 2 * fed.parts.payload().up
    assert state.totals["bytes_down"] - totals["bytes_down"] == 2 * 2 * fed.parts.payload().down
    assert state.totals["gradient_rounds"] - totals["gradient_rounds"] == 2
    fed.parts.workers.close()


def test_rounds_see_the_same_batches_with_and_without_gradient_rounds() -> None:
    plans: list[list[Any]] = []
    for initializer in ("previous", {"name": "dynamic", "history": 1, "gradient_rounds": 2}):
        fed, seen = made(initializer), []
        begin = fed.parts.executor.begin
        fed.parts.executor.begin = lambda cohort, seen=seen, begin=begin: (  # type: ignore[method-assign]
            seen.append(cohort.plan.samples.tolist()) or begin(cohort)
        )
        run_rounds(fed)
        plans.append(seen)
    plain, more = plans
    assert more[0] == plain[0]
    assert more[3::3] == plain[1:]  # two gradient rounds before each session after the pilot
    probes = [plan for place, plan in enumerate(more[1:]) if place % 3 < 2]
    assert all(a != b for a, b in pairwise(probes))


def test_the_history_counts_gradient_rounds_and_what_they_cost() -> None:
    chosen = {"name": "dynamic", "gradient_rounds": 3}
    rows = [record.row for record in run_rounds(made(chosen, alternating(4, 2)))[1]]
    plain = [record.row for record in run_rounds(made("previous", alternating(4, 2)))[1]]
    assert [row["gradient_rounds"] for row in rows] == [0, 0, 3, 3, 6, 6, 9, 9]
    assert [row["gradient_rounds"] for row in plain] == [0] * 8
    for row, other in zip(rows, plain, strict=True):
        for column in ("bytes_up", "bytes_down"):
            per_round = plain[0][column]
            assert row[column] == other[column] + row["gradient_rounds"] * per_round
    for row, other in zip(rows, plain, strict=True):
        assert (row["kappa"], row["exchanges"]) == (other["kappa"], other["exchanges"])  # of the round itself


def test_an_update_that_is_not_finite_ends_the_run_and_names_the_sessions() -> None:
    fed = made({"name": "dynamic", "gradient_lr": 1e308, "gradient_rounds": 3}, alternating(5))
    with pytest.raises(Diverged, match=r"session 3: .* sessions 2 are not finite; lower initializer") as caught:
        run_rounds(fed)
    fed.parts.workers.close()
    assert "\n" not in str(caught.value)
    assert caught.value.record is None


def test_without_a_pilot_the_initial_model_takes_its_place() -> None:
    (state,), _, sessions = sessions_of(made("dynamic", alternating(4, pilot=0)))
    assert torch.equal(state.initializer["pilot_w"], made("previous").parts.w0)
    assert sorted(updates(state)) == [0, 1, 2, 3]
    assert list(sessions[2]["weights"]) == ["1", "2"]


@pytest.mark.slow
def test_a_diverse_history_resumes_before_and_within_a_session() -> None:
    initializer = {"name": "dynamic", "history": 2, "retention": "diverse", "gradient_steps": 1}
    world = populations([A, B, (0, 3), (1, 2), B], rounds=3)
    assert_resumes((settings(initializer=initializer, local=LOCAL, algorithm="moon"), world, vectors()))
