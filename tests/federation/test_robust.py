"""Rounds in which a robust rule combines what arrives: what the server keeps, statistics of BatchNorm, several processes."""

from typing import Any

import pytest
import torch

from federation.test_ranks import SIZES, compare
from fedtide.authoring.rounds import assert_resumes
from fedtide.core.errors import Diverged
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.services import RoundServices
from matrix import matrix
from support import closest, deal, federation, run_rounds, settings, steady, timeline, vectors, watch

pytestmark = pytest.mark.usefixtures("drop_in")

PLAIN = {"epochs": 2, "batch_size": 3, "lr": 0.2}
CENTERED = {"name": "centered_clipping", "radius": 0.05}
BUCKETS = {"name": "median", "bucket": 2}


def made(aggregation: Any, algorithm: Any = "fedavg", rounds: int = 3, **values: Any) -> Federation:
    chosen = settings(algorithm=algorithm, local=PLAIN, aggregation=aggregation, **values)
    return federation(chosen, steady(SIZES, rounds), vectors())


@pytest.mark.parametrize(("algorithm", "rule"), matrix(["fedavg", "fedcm", "fedawe", "fednova"], [CENTERED, BUCKETS]))
def test_any_number_of_processes_gives_the_same_run(algorithm: str, rule: dict[str, Any]) -> None:
    compare(algorithm, "threads", 3, PLAIN, communication=False, aggregation=rule)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedcm"])
def test_a_resumed_run_goes_on_from_its_centers(algorithm: str) -> None:
    assert_resumes((made(CENTERED, algorithm).parts.settings, steady(SIZES, 3), vectors()))


def test_what_an_algorithm_combines_first_and_second_have_centers_of_their_own() -> None:
    """FedCM: gradients, then models, both combined from the same updates."""
    fed = made(CENTERED, "fedcm")
    state, _ = run_rounds(fed)
    first, second = (state.features["aggregation"][str(number)]["center"] for number in range(2))
    assert closest(first, state.server["Delta"]) < 1e-15
    assert closest(first, second) > 1e-3


def test_a_session_begins_with_the_center_zero() -> None:
    everybody = {client: client for client in range(5)}
    chosen = settings(local=PLAIN, aggregation=CENTERED)
    fed = federation(chosen, timeline(deal(SIZES), [everybody] * 2, session_of_round=[0, 1]), vectors())
    seen = watch(fed)
    run_rounds(fed)
    for r, w in seen:
        D = r.W - r.w
        factors = (0.05 / D.norm(dim=1, keepdim=True)).clamp(max=1)
        assert closest(w, r.w + (r.weights * factors * D).sum(0)) < 1e-15


def test_buckets_are_the_rounds_own() -> None:
    """Other permutations in other rounds, the same for another algorithm and for both combinations of a round."""
    fed = made({"name": "krum", "f": 0, "keep": 1, "bucket": 2}, rounds=4)
    _, records = run_rounds(fed)
    kept = [tuple(record.clients["kept"]) for record in records]
    assert all(sum(row) in (1.0, 2.0) for row in kept)
    assert len(set(kept)) > 1
    again = run_rounds(made({"name": "krum", "f": 0, "keep": 1, "bucket": 2}, rounds=4))[1]
    assert kept == [tuple(record.clients["kept"]) for record in again]


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "median"},
        {"name": "trimmed_mean", "trim": 0.2},
        {"name": "krum", "f": 1},
        {"name": "krum", "f": 1, "keep": None},
        {"name": "geometric_median"},
        CENTERED,
    ],
    ids=lambda rule: f"{rule['name']}-{rule.get('keep', 1)}",
)
def test_statistics_of_batchnorm_are_combined_like_updates_where_that_makes_sense(rule: dict[str, Any]) -> None:
    fed = made(rule, model="normed", rounds=1)
    seen = watch(fed)
    state, records = run_rounds(fed)
    r, services = seen[0][0], seen[0][0].services
    assert isinstance(services, RoundServices)
    p, rows = r.weights[:, 0], services.buffers
    if rule["name"] == "krum":
        p = p * torch.tensor(records[0].clients["kept"], dtype=torch.float64)
    wanted = (p / p.sum()) @ rows
    if rule["name"] == "median":
        wanted = rows.median(0).values  # of five
    if rule["name"] == "trimmed_mean":
        wanted = rows.sort(0).values[1:4].mean(0)
    assert closest(state.b, wanted) < 1e-14


def test_kept_shares_are_those_of_the_models() -> None:
    """Not of gradients, which FedCM combines first, nor of statistics of BatchNorm."""
    fed = made("median", "fedcm", model="normed", rounds=1)
    seen = watch(fed)
    _, records = run_rounds(fed)
    r, _ = seen[0]
    D = r.W - r.w
    middle = (D.median(0).values == D).double()
    places = middle / middle.sum(0)  # ties share one
    assert records[0].clients["kept"] == pytest.approx(places.mean(1).tolist())


def broken(rule: Any, client: int = 3, **values: Any) -> Federation:
    """Values of one of five clients are so large that its losses are not finite, nor its updates."""
    data = vectors()
    data.train_inputs[deal(SIZES)[client]] *= 1e200
    return federation(settings(local=PLAIN, aggregation=rule, **values), steady(SIZES, 3), data)


@pytest.mark.parametrize(
    "rule", ["median", "trimmed_mean", {"name": "krum", "f": 1}, "geometric_median", CENTERED, BUCKETS]
)
def test_a_rule_survives_a_broken_client(rule: Any) -> None:
    watching = {"name": "page_hinkley", "watch": "clients"}
    state, records = run_rounds(broken(rule, detector=watching))
    assert bool(state.w.isfinite().all())
    assert [record.clients["kept"][3] for record in records] == [0.0] * 3
    assert [record.events for record in records] == [
        [{"kind": "left_out", "round": t, "clients": [3]}] for t in (1, 2, 3)
    ]
    assert all(0 < record.row[name] < 10 for record in records for name in ("train_loss", "drift"))
    assert bool(state.features["detector"]["losses"].isfinite().all())


def test_the_mean_does_not_and_names_it() -> None:
    fault = "losses or updates of client 3 are not finite or too large; examine the data there, or try a robust rule"
    with pytest.raises(Diverged, match=f"diverged in round 1: training loss nan; {fault}"):
        run_rounds(broken("mean"))


def test_a_rule_diverges_where_most_do() -> None:
    values = {"local": PLAIN | {"lr": 1e300}, "aggregation": "median"}
    with pytest.raises(Diverged, match=r"diverged in round [12]: training loss .*; try a smaller local\.lr"):
        run_rounds(federation(settings(**values), steady(SIZES, 3), vectors()))
