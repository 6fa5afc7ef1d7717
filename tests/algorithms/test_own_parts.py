"""FedPer, LG-FedAvg, FedBN, FedRep and FedBABU: clients keep a part of the model, or train one."""

from typing import Any

import pytest
import torch
from torch import Tensor

from federation.test_ranks import compare
from fedtide.core.errors import SettingsError
from fedtide.federation.federation import Federation
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.state import restored_state
from fedtide.federation.types import RunState
from support import assert_same, federation, largest_gap, run_rounds, settings, steady, trajectory, vectors, watch

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (5, 2, 7, 4)
COHORTS = [[0, 2], [1, 2], [2], [0, 1, 2]]  # client 3 never
MODEL = {"name": "mlp", "widths": [4]}
BODY, HEAD = 4 * 5 + 4, 3 * 4 + 3
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.5, "weight_decay": 0.01, "clip": 0.5}
NORMS = {"name": "fedper", "personal": "norms"}
EVERYTHING = {"name": "fedper", "personal": ["hidden", "head"]}


def made(algorithm: Any, cohorts: Any = COHORTS, **values: Any) -> Federation:
    chosen = settings(**{"algorithm": algorithm, "model": MODEL, "local": LOCAL, **values})
    return federation(chosen, steady(SIZES, len(cohorts)), vectors(), cohorts=cohorts)


def models(algorithm: Any, cohorts: Any = COHORTS, **values: Any) -> tuple[list[Tensor], RunState]:
    chosen = {"model": MODEL, "local": LOCAL, **values}
    return trajectory(algorithm, steady(SIZES, len(cohorts)), vectors(), cohorts=cohorts, **chosen)


def served(fed: Federation, state: RunState) -> tuple[Tensor, Tensor]:
    """Models [N, d] and floating buffers [N, q] of all clients at the end."""
    server: Any = ServedModels(fed.parts)
    rows: tuple[Tensor, Tensor] = server.rows(state, state.round - 1, slice(None))
    return rows


@pytest.mark.slow
def test_with_everything_as_the_part_it_is_local_training() -> None:
    trained, state = models(EVERYTHING)
    assert largest_gap(trained, [trained[0]] * len(COHORTS)) == 0
    assert torch.equal(state.memory["own"], models("local")[1].memory["own"])


@pytest.mark.slow
def test_a_client_alone_with_the_mean_is_fedavg() -> None:
    alone = [[2]] * 3
    assert largest_gap(models({"name": "fedper", "newcomers": "mean"}, alone)[0], models("fedavg", alone)[0]) == 0
    normed = {"model": "normed"}
    (ours, first), (theirs, second) = (
        models(name, alone, **normed) for name in ({**NORMS, "newcomers": "mean"}, "fedavg")
    )
    assert largest_gap(ours, theirs) == 0
    assert torch.equal(first.b, second.b)


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_fedrep_without_epochs_of_the_head_is_fedbabu_whose_head_never_moves(executor: str) -> None:
    engine = {"engine": {"executor": executor, "workers": 1}}
    ours, _ = models({"name": "fedrep", "head_epochs": 0}, **engine)
    theirs, _ = models("fedbabu", **engine)
    assert largest_gap(ours, theirs) == 0
    fed = made("fedbabu")
    head = fed.parts.layout.mask("head")
    assert all(torch.equal(w[head], fed.parts.w0[head]) for w in theirs)
    assert all((w != fed.parts.w0)[~head].any() for w in theirs)


# Normalization layers and their statistics.


def normed(algorithm: Any = NORMS, cohorts: Any = COHORTS, **values: Any) -> Federation:
    return made(algorithm, cohorts, model="normed", **values)


def test_norms_stay_with_their_clients_and_so_do_their_statistics() -> None:
    fed = normed()
    seen = watch(fed)
    state, _ = run_rounds(fed)
    own: Any = fed.parts.algorithm
    assert own.P.sum() == 8
    assert torch.equal(state.b, fed.parts.b0)
    assert torch.equal(state.w[own.P], fed.parts.w0[own.P])
    r, _ = seen[-1]
    assert torch.equal(state.memory["own"][:3], torch.cat([r.trained.W[:, own.P], r.trained.b], 1))
    models_, buffers = served(fed, state)
    assert torch.equal(torch.cat([models_[:3, own.P], buffers[:3]], 1), state.memory["own"][:3])
    assert torch.equal(models_[3], state.w)
    assert torch.equal(buffers[3], state.b)
    assert len({tuple(row) for row in buffers.tolist()}) == 4


def test_training_goes_on_from_a_clients_own_statistics() -> None:
    """A round that trains nothing moves them as far as one batch does."""
    still = {"local": {"steps": 1, "batch_size": 20, "lr": 1e-300}}
    fed = normed(cohorts=[[2], [2], [2]], **still)
    seen = watch(fed)
    run_rounds(fed)
    first, second, third = (r.trained.b[0] for r, _ in seen)
    mean = [name.name for name in fed.parts.layout.buffers].index("body.1.running_mean")
    slot = fed.parts.layout.buffers[mean]
    a, b, c = (buffers[slot.start : slot.stop] for buffers in (first, second, third))
    assert torch.allclose(c - b, 0.9 * (b - a), rtol=1e-9, atol=0)
    assert torch.allclose(b - a, 0.9 * a, rtol=1e-9, atol=0)


def test_norms_are_the_same_with_more_workers_and_after_a_stop() -> None:
    whole, _ = run_rounds(normed())
    assert_same(whole, run_rounds(normed(engine={"workers": 3}))[0])
    half, _ = run_rounds(normed(), 2)
    fed = normed()
    rest, _ = run_rounds(fed, state=restored_state(fed.parts, half.tensors()))
    assert_same(whole, rest)


@pytest.mark.parametrize("algorithm", ["fedper", "fedbabu"])
def test_statistics_of_a_shared_body_are_shared(algorithm: str) -> None:
    fed = normed(algorithm)
    state, _ = run_rounds(fed)
    assert not torch.equal(state.b, fed.parts.b0)
    assert torch.equal(served(fed, state)[1], state.b.expand(4, -1))


# What it costs.


@pytest.mark.parametrize(
    ("algorithm", "model", "numbers"),
    [
        ("fedper", MODEL, BODY),
        ({"name": "fedper", "newcomers": "mean"}, MODEL, BODY + HEAD),
        ({"name": "fedper", "personal": ["head.bias"]}, MODEL, BODY + HEAD - 3),
        ("fedrep", MODEL, BODY),
        ("fedbabu", MODEL, BODY),
        ("ditto", MODEL, BODY + HEAD),
        ("fedper", "normed", BODY + 8 + 8),
        (NORMS, "normed", BODY + HEAD),
        ({**NORMS, "newcomers": "mean"}, "normed", BODY + 8 + HEAD + 8),
    ],
    ids=str,
)
def test_what_is_shared_is_sent(algorithm: Any, model: Any, numbers: int) -> None:
    payload = made(algorithm, model=model).parts.payload()
    assert (payload.down, payload.up) == (4 * numbers, 4 * numbers)


def test_the_head_of_fedbabu_is_sent_once() -> None:
    state, _ = run_rounds(made("fedbabu"))
    exchanges = sum(map(len, COHORTS))
    assert state.totals["bytes_down"] == 4 * (exchanges * BODY + 4 * HEAD)
    assert state.totals["bytes_up"] == 4 * exchanges * BODY


def test_links_see_what_is_sent_alone() -> None:
    """The part stays as it was trained, and what links keep and count is of the length of the rest."""
    fed = made("fedper", uplink=[{"name": "shrink", "share": 0.25, "remember": True}])
    seen = watch(fed)
    state, _ = run_rounds(fed)
    own: Any = fed.parts.algorithm
    assert fed.parts.payload().up == -(-(3 * BODY + 5) // 8)
    assert state.memory["uplink.shrink.lost"].shape == (4, BODY)
    assert state.features["uplink"]["shrink"]["passed"].shape == (BODY,)
    r, w = seen[0]
    assert torch.equal(state.memory["own"][[0, 1, 2]], seen[-1][0].trained.W[:, own.P])
    arrived = r.base + 0.25 * (r.trained.W - r.base)
    assert torch.allclose(w[~own.P], r.weighted_mean(arrived)[~own.P], rtol=0, atol=1e-14)
    assert torch.equal(w[own.P], fed.parts.w0[own.P])


@pytest.mark.parametrize("algorithm", ["fedper", "fedrep", "ditto"])
def test_processes_may_share_a_round(algorithm: str) -> None:
    compare(algorithm, "threads", 2, {"epochs": 2, "batch_size": 3, "lr": 0.2}, communication=False, model=MODEL)


# What is refused.


def test_a_rule_is_refused_where_it_would_see_what_is_not_sent() -> None:
    with pytest.raises(SettingsError, match="algorithm fedper adds up"):
        made("fedper", aggregation="middle")
    run_rounds(made({"name": "fedper", "newcomers": "mean"}, aggregation="middle"))
