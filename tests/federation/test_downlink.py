"""The model that clients receive, where the server compresses what it sends."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from federation.jobs import UNEQUAL
from federation.jobs import made as jobs
from federation.test_events_seconds import SECOND, visited
from federation.test_ranks import compare
from fedtide.authoring.rounds import assert_resumes
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.federation.features.downlink import Downlink
from fedtide.federation.federation import Federation
from fedtide.federation.gradient_rounds import GradientRounds
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.state import initial_state
from fedtide.federation.types import RunState
from fedtide.methods.costs.wireless import Segment
from fedtide.world.timeline import Timeline
from support import (
    assert_same,
    closest,
    deal,
    federation,
    light,
    needs,
    one,
    run_rounds,
    settings,
    steady,
    stepped,
    timeline,
    vectors,
    watch,
)

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (5, 2, 7, 4, 6)
Cohorts = Sequence[Sequence[int]]
PLAIN = {"epochs": 2, "batch_size": 3, "lr": 0.2}
WHOLE = {"name": "top_k", "fraction": 1.0}
TOP_K = {"name": "top_k", "fraction": 0.25}
QSGD = {"name": "qsgd", "levels": 7}
MODEL, FEW, ROUGH = 4 * 18, -(-(18 + 5 * 32) // 8), -(-(32 + 18 * 4) // 8)  # bytes: whole, top_k, qsgd


def made(downlink: Any, world: Timeline | None = None, cohorts: Cohorts | None = None, **values: Any) -> Federation:
    chosen = settings(**{"algorithm": "fedavg", "local": PLAIN, "downlink": downlink, **values})
    return federation(chosen, world or steady(SIZES, len(cohorts or range(4))), vectors(), cohorts=cohorts)


def steps(fed: Federation) -> list[tuple[Tensor, Tensor]]:
    """w and w~ before the first round and after every one."""
    after = [(state.w.clone(), state.features["downlink"]["w"].clone()) for state, _ in stepped(fed)]
    return [(fed.parts.w0, fed.parts.w0), *after]


def received(records: list[RoundRecord]) -> list[int]:
    """Bytes that all participants receive in each round."""
    totals = [0, *(int(record.row["bytes_down"] or 0) for record in records)]
    return np.diff(totals).tolist()


def rows(records: list[RoundRecord], *without: str) -> list[Any]:
    left_out = {"seconds", *without}
    return [
        ({k: v for k, v in record.row.items() if k not in left_out}, record.clients, record.session)
        for record in records
    ]


def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy of softmax regression."""
    z = x @ w[:15].reshape(3, 5).T + w[15:]
    p = np.exp(z - z.max(1, keepdims=True))
    p = p / p.sum(1, keepdims=True) - np.eye(3)[y]
    return np.concatenate([(p.T @ x / len(x)).ravel(), p.mean(0)])


def test_three_rounds_by_hand() -> None:
    """Two full gradient steps from w~, the mean of the steps moves w, and the four largest differences are sent."""
    local = {"steps": 2, "batch_size": 50, "lr": 0.2}
    found = steps(made({"name": "top_k", "fraction": 0.23}, steady(SIZES, 3), local=local))
    data, shards, n = vectors(), deal(SIZES), np.array(SIZES) / sum(SIZES)
    x, y = data.train_inputs.numpy(), data.train_labels.numpy()
    w, copy = (part.numpy().copy() for part in found[0])
    for other, sent in found[1:]:
        trained = []
        for shard in shards:
            local_w = copy.copy()
            for _ in range(2):
                local_w -= 0.2 * gradient(local_w, x[shard], y[shard])
            trained.append(local_w)
        w = w + n @ (np.array(trained) - copy)
        lacks = w - copy
        largest = np.argsort(-np.abs(lacks))[:4]
        copy[largest] += lacks[largest]
        np.testing.assert_allclose(other.numpy(), w, atol=1e-13)
        np.testing.assert_allclose(sent.numpy(), copy, atol=1e-13)
    assert np.abs(w - copy).max() > 1e-3


def test_what_was_sent_and_what_is_left_is_what_the_model_has_moved() -> None:
    """Whatever Q is: sum_t Q_t + (w - w~) = sum_t U_t; the length of what is left is recorded."""
    for downlink in (TOP_K, QSGD, "sign", {"name": "random_k", "fraction": 0.3, "scaled": False}):
        fed = made(downlink)
        link, sent, seen = one(fed.parts, Downlink).link, list[Tensor](), watch(fed)
        compressed = link.compressed
        link.compressed = lambda v, draws: sent.append(compressed(v, draws)) or sent[-1]  # type: ignore[method-assign, func-returns-value] # noqa: B023
        state, records = run_rounds(fed)
        moves = torch.stack([w - r.w for r, w in seen]).sum(0)
        assert closest(torch.stack(sent).sum(0) + state.w - state.features["downlink"]["w"], moves) < 1e-14
        assert closest(state.w, fed.parts.w0 + moves) < 1e-14
        left = torch.linalg.vector_norm(state.w - state.features["downlink"]["w"])
        assert records[-1].row["downlink_error"] == pytest.approx(float(left), rel=1e-12)
        assert left > 1e-3


REFUSED = {
    **dict.fromkeys(
        ("apfl", "ditto", "fedccfa", "feddrift", "fedper", "fedrep", "ifca", "local", "local_finetuning", "pfedme"),
        "does not send the same model to all clients",
    ),
    **dict.fromkeys(("creff", "oracle_reset", "fedacg", "fedawe"), "another model than the one that is sent"),
    "fedbabu": "sends only a part of the model",
}
SHIPPED = [name for name in plugins.names("algorithms") if name not in ("ahead", "in_parts")]


@pytest.mark.parametrize("name", sorted(set(SHIPPED) - set(REFUSED)))
def test_an_algorithm_is_bit_equal_where_all_is_sent_and_uses_what_is_sent_where_not(name: str) -> None:
    def run(downlink: Any) -> tuple[RunState, list[RoundRecord]]:
        chosen = {"algorithm": light(name), "local": {**PLAIN, "momentum": 0.0}, **needs(name)}
        return run_rounds(made(downlink, steady((6, 3, 9), 3), **chosen))

    (plain, usual), (whole, records), (other, _) = run(None), run(WHOLE), run(TOP_K)
    assert_same(plain, whole)
    assert rows(records, "downlink_error") == rows(usual)
    assert plain.totals | {"seconds": 0} == whole.totals | {"seconds": 0}
    assert {record.row["downlink_error"] for record in records} == {0.0}
    if name != "frozen":
        assert closest(plain.w, other.w) > 1e-6


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_algorithms_that_send_no_single_model_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(SettingsError, match=f"^downlink top_k: algorithm {name} .*{REFUSED[name]}") as caught:
        made(TOP_K, algorithm=light(name), **needs(name))
    assert "\n" not in str(caught.value)


def test_clients_without_memory_cannot_keep_what_they_have_received() -> None:
    world = timeline(deal(SIZES), [{k: k for k in range(5)}] * 2, notes={"stateless": True})
    with pytest.raises(SettingsError, match="downlink requires stateful clients, but scenario static"):
        made(TOP_K, world)
    made(None, world)


def test_of_small_parts_scaled_places_are_a_contraction_where_more_than_half_is_sent() -> None:
    """E|v - Q(v)|^2 = (d/k - 1) |v|^2."""
    errors = [float(torch.linalg.vector_norm(w - s)) for w, s in steps(made({"name": "random_k", "fraction": 0.6}))]
    assert 0 < errors[-1] < 1


def test_bytes_of_rounds_missed_by_hand() -> None:
    """23 bytes for each update since the last one received, 72 for the whole model, which newcomers need."""
    everybody = {k: k for k in range(5)}
    without = {k: k for k in everybody if k != 1}
    present = [everybody] * 3 + [without] + [everybody] * 4
    cohorts = [[0, 1], [0, 1, 2], [0], [0, 2], [0, 1, 3], [1], [2], [2, 4]]
    wanted = [
        2 * MODEL,  # nobody has it
        2 * FEW + MODEL,
        FEW,
        FEW + 2 * FEW,
        FEW + 2 * MODEL,  # client 1 was away
        FEW,
        3 * FEW,
        FEW + MODEL,
    ]
    world = timeline(deal(SIZES), present)
    assert received(run_rounds(made(TOP_K, world, cohorts))[1]) == wanted
    assert (FEW, MODEL) == (23, 72)


def test_no_client_pays_more_than_for_the_whole_model() -> None:
    """Six updates of 13 bytes would cost more than the model's 72."""
    for missed in range(1, 8):
        cohorts = [[0], *([[1]] * (missed - 1)), [0]]
        found = received(run_rounds(made(QSGD, cohorts=cohorts))[1])
        assert found[-1] == min(MODEL, missed * ROUGH)


def test_a_session_begins_with_the_whole_model_for_all() -> None:
    here = {k: k for k in range(5)}
    world = timeline(deal(SIZES), [here] * 5, session_of_round=[0, 0, 1, 1, 1])
    for on_session_start in ("reset", "keep"):
        fed = made(TOP_K, world, initializer="average", client_state={"on_session_start": on_session_start})
        _, records = run_rounds(fed)
        assert received(records) == [5 * MODEL, 5 * FEW, 5 * MODEL, 5 * FEW, 5 * FEW]
    fed = made(TOP_K, world, initializer="restart")
    seen = watch(fed)
    run_rounds(fed)
    assert torch.equal(seen[2][0].w, fed.parts.w0)


@pytest.mark.parametrize("response", ["reset_model", "start_session", "reset_memories"])
def test_a_response_that_replaces_the_model_sends_it_whole(response: str) -> None:
    detector = {"name": "after", "losses": 2, "response": response}
    fed = made(TOP_K, detector=detector)
    seen = watch(fed)
    _, records = run_rounds(fed)
    assert [record.row["alarm"] for record in records] == [0, 1, 0, 1]
    whole = response != "reset_memories"
    assert received(records) == [5 * MODEL, 5 * FEW, 5 * (MODEL if whole else FEW), 5 * FEW]
    if response == "reset_model":
        assert torch.equal(seen[2][0].w, fed.parts.w0)


def test_other_vectors_are_sent_and_paid_in_full() -> None:
    _, records = run_rounds(made(TOP_K, algorithm="scaffold"))
    assert received(records) == [5 * 2 * MODEL, *[5 * (MODEL + FEW)] * 3]
    fed = made(TOP_K, model="normed")
    d, q = fed.parts.layout.size, fed.parts.layout.buffer_size
    update = -(-(d + 32 * math.floor(0.25 * d + 0.5)) // 8)
    assert received(run_rounds(fed)[1]) == [5 * 4 * (d + q), *[5 * (update + 4 * q)] * 3]
    assert q > 0


@pytest.mark.slow
def test_seconds_joules_and_kappa_follow_the_bytes_of_each_client() -> None:
    wide: dict[str, Any] = {"model": {"name": "mlp", "widths": [400]}, "costs": {"bandwidth": 1e5}}
    fed, plain = (made(downlink, cohorts=[[0, 1], [0, 1], [0, 2]], **wide) for downlink in (TOP_K, None))
    _, records = run_rounds(fed)
    _, usual = run_rounds(plain)
    model, d = fed.parts.wireless, fed.parts.layout.size
    assert model is not None
    few = -(-(one(fed.parts, Downlink).link.bits(d) or 0) // 8)
    for t, (record, before) in enumerate(zip(records, usual, strict=True)):
        down = [[4 * d, 4 * d], [few, few], [few, 4 * d]][t]
        plan = fed.clock.plan(initial_state(fed.parts), t)
        samples = [2 * len(shard) for shard in plan.shards]  # two epochs
        cost = model.round_cost([t], plan.ids, [Segment([0, 1], samples)], np.array(down), 4 * d)
        assert record.row["latency"] == pytest.approx(cost.latency_s, rel=1e-8)
        assert record.row["energy"] == pytest.approx(cost.energy_J, rel=1e-8)
        assert record.row["kappa"] == pytest.approx(
            before.row["kappa"] * (sum(down) + 2 * 4 * d) / (4 * 4 * d),
            rel=1e-8,  # type: ignore[operator]
        )
    assert records[1].row["latency"] < usual[1].row["latency"]  # type: ignore[operator]


@pytest.mark.parametrize(
    "values",
    [{"downlink": TOP_K}, {"downlink": QSGD}, {"downlink": TOP_K, "mode": "async", "algorithm": "fedbuff"}],
    ids=["top_k", "qsgd", "jobs"],
)
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(values: dict[str, Any]) -> None:
    """In rounds that leave somebody out, so that later updates cost it more bytes; and with jobs under way."""
    participation = "all" if "mode" in values else {"name": "fixed", "count": 2}
    chosen = settings(local=PLAIN, participation=participation, **values)
    assert_resumes((chosen, steady(SIZES, 6), vectors()))


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_any_number_of_processes_gives_the_same_run(executor: str) -> None:
    for size in (2, 7):
        compare("fedavg", executor, size, PLAIN, communication=False, downlink=QSGD, uplink=["double"])


def test_gradient_rounds_send_updates_of_a_copy_of_their_own() -> None:
    fed = made(TOP_K)
    state, _ = run_rounds(made(TOP_K), 2)
    before, paid = (
        {name: value.clone() for name, value in state.features["downlink"].items()},
        state.totals["bytes_down"],
    )
    seen = watch(fed)
    with torch.no_grad():
        last = GradientRounds(fed.parts, state, 0).train(state.w, state.b, 3, 0.1, None, None)
    fed.parts.workers.close()
    assert state.totals["bytes_down"] - paid == 5 * (MODEL + 2 * FEW)
    assert all(torch.equal(before[name], value) for name, value in state.features["downlink"].items())
    assert torch.equal(seen[0][0].w, state.w)
    changed = [int((later[0].w != earlier[0].w).sum()) for earlier, later in pairwise(seen)]
    assert changed == [5, 5]  # a quarter of 18 numbers, rounded up
    assert closest(last, seen[2][0].w) > 1e-3


def test_jobs_start_from_what_their_clients_have_received() -> None:
    """With mode: async; what a client receives depends on the updates since its last job's."""
    buffered = {"name": "fedbuff", "buffer": 2}
    fed, noted = jobs(buffered, UNEQUAL, steady(SIZES, 6), 3, downlink=TOP_K)
    seen, versions, bases = watch(fed), [fed.parts.w0], list[Any]()
    for state, _ in stepped(fed):
        r = seen[-1][0]
        behind = r.job.staleness[:, 0].tolist()
        bases += [(base, versions[r.t - int(rounds)]) for base, rounds in zip(r.base, behind, strict=True)]
        versions.append(state.features["downlink"]["w"].clone())
    assert all(torch.equal(base, version) for base, version in bases)
    assert len({id(version) for _, version in bases}) > 3
    starts = state.totals["bytes_down"]
    versions_had: dict[int, int] = {}
    expected = 0
    for client, version in zip(noted.started, job_versions(buffered), strict=True):
        had = versions_had.get(client)
        expected += MODEL if had is None else min(MODEL, max(1, version - had) * FEW)
        versions_had[client] = version
    assert starts == expected
    assert len(noted.started) > len(set(noted.started))


def job_versions(algorithm: dict[str, Any]) -> list[int]:
    """The version that each job of the same run, whose times do not depend on bytes, starts from."""
    fed, noted = jobs(algorithm, UNEQUAL, steady(SIZES, 6), 3)
    found = list[int]()
    for t, _ in enumerate(stepped(fed)):
        found += [t] * (len(noted.started) - len(found))
    return found


def test_all_of_the_model_sent_to_jobs_is_bit_equal_to_none() -> None:
    for algorithm in ({"name": "fedasync"}, {"name": "fedbuff", "buffer": 3}):
        runs = [run_rounds(jobs(algorithm, UNEQUAL, steady(SIZES, 6), 3, downlink=d)[0]) for d in (None, WHOLE)]
        assert_same(runs[0][0], runs[1][0])
        assert rows(runs[0][1]) == rows(runs[1][1], "downlink_error")


def test_a_client_that_leaves_and_returns_while_the_server_waits_is_a_new_one() -> None:
    """Client 0 ends its first job in second 4, leaves in 5, is back in 6 and ends a job in 10; client 1 works on."""
    world = visited({0: [(0, 5), (6, 40)], 1: [(0, 40)]}, 3)
    fed, noted = jobs({"name": "fedbuff", "buffer": 1}, [[4], [30]], world, 2, downlink=TOP_K, **SECOND)
    _, records = run_rounds(fed)
    assert noted.started[2:] == [0, 0, 0]
    assert received(records) == [2 * MODEL, FEW + MODEL, FEW]
    kappa = [
        0.5 * (1 + down / MODEL) / 4 for down in (MODEL, MODEL, FEW)
    ]  # of the jobs that ended, with four steps each
    assert [record.row["kappa"] for record in records] == pytest.approx(kappa, rel=1e-8)
