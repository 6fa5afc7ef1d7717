"""Continual methods: identities with FedAvg and FedProx, the collapse of the buffer, core sets and what they forget."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fedtide.core import plugins
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.traffic import payload
from fedtide.methods.algorithms.cfl_core_set import equal_shares, herd
from fedtide.methods.algorithms.cfl_regularization import present_weight
from fedtide.training.engine.flat import Layout
from support import (
    closest,
    deal,
    federation,
    largest_gap,
    problem,
    run_rounds,
    settings,
    smallest,
    stepped,
    timeline,
    trajectory,
    vectors,
    watch,
)

LOCAL = {"steps": 3, "batch_size": 4, "lr": 0.2}
SIZES = (6, 5, 7, 4, 8, 6)
VISITS = [{0: 0, 1: 3}, {0: 1, 1: 4}, {0: 0, 1: 5}, {0: 2, 1: 3}, {0: 1, 1: 4}]
"""Client 0 has subsets 0 to 2, client 1 subsets 3 to 5."""


def evolving(present: list[dict[int, int]] = VISITS) -> Any:
    return timeline(deal(SIZES), present)


def loss(record: RoundRecord) -> float:
    """The information loss of a round that measured it."""
    value = record.row["information_loss"]
    assert value is not None
    return value


def run(algorithm: Any, world: Any = None, **values: Any) -> list[torch.Tensor]:
    values = {"local": LOCAL, "engine": {"executor": "threads", "workers": 1}, **values}
    return trajectory(algorithm, world or evolving(), vectors(), **values)[0]


taylor = partial(dict, name="cfl_regularization", layers="full", curvature="fisher")
cores = partial(dict, name="cfl_core_set")


FEDAVG = {"name": "fedavg", "weighting": "uniform"}


# -- Taylor models ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("part", ["B_head", "B_below"])
def test_a_mean_of_three_is_a_sum_with_a_third_of_the_weight(part: str) -> None:
    """To double precision: 0.3 and a third of it are not numbers of single precision."""
    world = timeline(deal((6, 5, 7)), [{0: 0, 1: 1, 2: 2}] * 3)
    weights = {"B_head": 0.0, "B_below": 0.0}
    mean = run(taylor(window=3, reduce="mean", **(weights | {part: 0.3})), world, model="mlp")
    assert largest_gap(mean, run(taylor(window=3, reduce="sum", **(weights | {part: 0.1})), world, model="mlp")) < 1e-14
    assert largest_gap(mean, run(FEDAVG, world, model="mlp")) > 1e-3


@given(st.integers(1, 60), st.floats(0.01, 10), st.floats(0, 10))
def test_the_weights_of_the_lemma_minimize_its_bound(t: int, D2: float, R2: float) -> None:
    p = present_weight(t, D2, R2)
    past = 1 - p
    each = D2 / (t * D2 + (t - 1) * R2)
    assert past == pytest.approx((t - 1) * each, abs=1e-12)

    def bound(share: float) -> float:
        return R2 * share**2 + D2 * ((1 - share) ** 2 + (share**2 / (t - 1) if t > 1 else 0.0))

    assert bound(past) == pytest.approx(D2 * (D2 + (t - 1) * R2) / (t * D2 + (t - 1) * R2))
    if t > 1:
        assert bound(past) <= min(bound(past + 0.01), bound(past - 0.01))
    assert present_weight(t, D2, 0.0) == pytest.approx(1 / t)


@pytest.mark.parametrize(
    ("curvature", "window", "reduce"), [("fisher", 5, "sum"), ("hutchinson", 3, "mean"), ("exact", None, "mean")]
)
def test_two_vectors_are_the_whole_buffer(curvature: str, window: int | None, reduce: str) -> None:
    """A loop over the explicit triples, at the broadcast model and elsewhere, against what is sent."""
    chosen = taylor(curvature=curvature, window=window, reduce=reduce, probes=3)
    fed = federation(settings(algorithm=chosen, local=LOCAL), evolving(), vectors())
    seen, triples = watch(fed), []
    algorithm: Any = fed.parts.algorithm
    w = fed.parts.w0 + 0.1
    for t, (state, _) in enumerate(stepped(fed)):
        r = seen[t][0]
        g = r.services.full_gradient(r.W)
        probes = {"hutchinson": 3, "exact": None}
        h = r.services.fisher_diagonal(r.W) if curvature == "fisher" else r.services.taylor(r.W, probes[curvature])[1]
        triples += list(zip(g, h, r.W.clone(), strict=True))
        last = triples if window is None else triples[-window:]
        for center in (state.w, w):
            c, H = algorithm.combined(state.extra, center)
            for point in (center, center + 1.0):
                slopes = sum(gradient + curve * (point - own) for gradient, curve, own in last)
                explicit = slopes / len(last) if reduce == "mean" else slopes
                assert closest(c + H * (point - center), explicit) < 1e-12


@pytest.mark.slow
def test_quadratic_objectives_are_remembered_without_loss(quadratics: Any) -> None:
    data, chosen = quadratics([3, 2, 4], [0.5, 2.0, 1.0], [[1.0, -2.0, 0.0], [3.0, 4.0, 1.0], [0.0, 1.0, 2.0]])
    world = timeline(deal((3, 2, 4)), [{0: 0, 1: 2}, {0: 1, 1: 2}, {0: 0, 1: 2}], classes=3)
    algorithm = taylor(curvature="hutchinson", probes=1, measure_every=1)
    _, records = run_rounds(federation(settings(algorithm=algorithm, local=LOCAL, **chosen), world, data))
    assert max(loss(record) for record in records) < 1e-13


@pytest.mark.parametrize("model", ["softmax_regression", "mlp", "lenet", "embedding_bag"])
def test_the_regularized_parameters_are_the_last_ones(model: str) -> None:
    _, network = smallest(model)
    layout = Layout(network)
    plugin: Any = plugins.load("algorithms", "cfl_regularization")
    top, full = (plugin(plugin.Settings(layers=layers, B_below=0.5)) for layers in ("top", "full"))
    for algorithm in (top, full):
        algorithm.bind(problem(layout))
        head = {slot.name for slot in layout.parameters if slot.name.startswith("head.")}
        B = torch.zeros(layout.size)
        B[algorithm.first :] = algorithm.B
        values = {name: set(view.unique().tolist()) for name, view in layout.named(B).items()}
        assert {name for name, found in values.items() if found == {1.0}} == head
        assert set().union(*values.values()) <= {0.0, 0.5, 1.0}
    assert full.first == 0
    assert (top.first == 0) == (model in ("softmax_regression", "embedding_bag"))


def test_what_travels_is_the_model_and_two_vectors_of_the_regularized_size() -> None:
    plugin: Any = plugins.load("algorithms", "cfl_regularization")
    algorithm = plugin(plugin.Settings())
    fed = federation(settings(model={"name": "mlp", "widths": [8, 4]}), evolving(), vectors())
    algorithm.bind(problem(fed.parts.layout, classes=3))
    d, top = 5 * 8 + 8 + 8 * 4 + 4 + 4 * 3 + 3, 8 * 4 + 4 + 4 * 3 + 3
    sent = payload(algorithm, [], fed.parts.layout, {})
    assert (sent.down, sent.up) == (4 * (d + 2 * top), 4 * (d + 2 * top))


# -- core sets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["uniform", "herding"])
def test_a_core_set_of_everything_is_fedavg_on_the_growing_union(choice: str) -> None:
    """And nothing of the past is lost."""
    shards, present, held = [], [], {0: [], 1: []}
    for table in VISITS:
        for client, subset in table.items():
            held[client] = [other for other in held[client] if other != subset] + [subset]
            shards.append(np.sort(np.concatenate([deal(SIZES)[one] for one in held[client]])))
        present.append({0: len(shards) - 2, 1: len(shards) - 1})
    sorted_ = {**LOCAL, "order": "stored", "batch_size": 100}  # full batches: the order of the samples does not matter
    ours = run(cores(size=99, choice=choice), local=sorted_)
    assert largest_gap(ours, run(FEDAVG, timeline(shards, present), local=sorted_)) < 1e-14
    chosen = settings(algorithm=cores(size=99, choice=choice, measure_every=1), local=LOCAL)
    _, records = run_rounds(federation(chosen, evolving(), vectors()))
    assert max(loss(record) for record in records) < 1e-14


def test_the_current_subset_is_never_replayed_and_others_in_the_order_of_their_first_visit() -> None:
    plugin: Any = plugins.load("algorithms", "cfl_core_set")
    stored = torch.tensor([[0, 7, 40], [0, 7, 41], [1, 9, 50], [0, 5, 10], [0, 8, 41], [0, 8, 3]])
    own = [np.array([1, 2, 3]), np.array([50, 51]), np.array([60])]
    found = plugin(plugin.Settings()).training_samples([0, 1, 2], [5, 9, 9], own, {"stored": stored})
    assert [part.tolist() for part in found] == [[1, 2, 3, 40, 41], [50, 51], [60]]


def test_the_loss_is_recorded_when_it_is_due_and_falls_with_the_size() -> None:
    losses = []
    for size in (1, 2, 4, 8):
        chosen = settings(algorithm=cores(size=size, measure_every=3), local=LOCAL)
        _, records = run_rounds(federation(chosen, evolving(), vectors()))
        recorded = [record.row["information_loss"] for record in records]
        assert [value is not None for value in recorded] == [False, False, True, False, True]
        losses.append(loss(records[-1]))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 1e-14 < losses[-2]


def test_the_loss_of_two_visits_by_hand() -> None:
    chosen = settings(algorithm=cores(size=2, measure_every=1), local=LOCAL)
    fed = federation(chosen, evolving(VISITS[:2]), vectors())
    seen = watch(fed)
    state, records = run_rounds(fed)
    r, gaps = seen[1][0], []
    for subset in (0, 3, 1, 4):
        rows = state.extra["stored"][state.extra["stored"][:, 1] == subset]
        assert len(rows) == 2
        true, kept = r.services.full_gradient(r.w, [deal(SIZES)[subset], rows[:, 2].numpy()])
        gaps.append(float((true - kept).norm()))
    assert loss(records[1]) == pytest.approx(np.mean(gaps))


@given(st.integers(0, 5), st.integers(1, 9))
@examples(deadline=None)
def test_herding_picks_the_nearest_sample_first_and_all_in_the_end(seed: int, count: int) -> None:
    phi = torch.randn(9, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    picked = herd(phi, count)
    assert len(set(picked)) == count
    assert picked == herd(phi, 9)[:count]
    assert picked[0] == int((phi - phi.mean(0)).norm(dim=1).argmin())
    if count > 1:  # no other last pick would bring the mean nearer
        gaps = {
            row: float((phi.mean(0) - phi[[*picked[:-1], row]].mean(0)).norm())
            for row in range(9)
            if row not in picked[:-1]
        }
        assert gaps[picked[-1]] == pytest.approx(min(gaps.values()))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(0, 40))
def test_classes_have_equal_shares_as_far_as_they_go(sizes: list[int], total: int) -> None:
    shares = equal_shares(np.array(sizes), total)
    assert shares.sum() == min(total, sum(sizes))
    assert (shares <= sizes).all()
    short = shares < sizes
    if short.any():
        assert shares.max() - shares[short].min() <= 1


def test_herding_takes_all_classes_of_a_subset() -> None:
    fed = federation(settings(algorithm=cores(size=3, choice="herding"), local=LOCAL), evolving(), vectors())
    state, _ = run_rounds(fed)
    labels = vectors().train_labels
    for subset in (0, 1, 3, 4, 5):
        rows = state.extra["stored"][state.extra["stored"][:, 1] == subset][:, 2]
        present = set(labels[torch.from_numpy(deal(SIZES)[subset])].tolist())
        assert set(labels[rows].tolist()) == present


def test_what_is_stored_depends_on_client_and_subset_only() -> None:
    """Not on when they met."""
    kept = []
    for present in (VISITS, list(reversed(VISITS))):
        state, _ = run_rounds(federation(settings(algorithm=cores(size=2), local=LOCAL), evolving(present), vectors()))
        kept.append({tuple(row) for row in state.extra["stored"].tolist()})
    assert kept[0] == kept[1]
    other, _ = run_rounds(federation(settings(algorithm=cores(size=2), local=LOCAL, seed=1), evolving(), vectors()))
    assert {tuple(row) for row in other.extra["stored"].tolist()} != kept[0]


def test_a_new_session_forgets_and_one_that_keeps_does_not() -> None:
    world = replace(evolving(), session_of_round=np.array([0, 0, 0, 0, 1]))
    kept = {}
    for mode in ("reset", "keep"):
        fed = federation(
            settings(algorithm=cores(size=2), local=LOCAL, client_state={"on_session_start": mode}), world, vectors()
        )
        state, _ = run_rounds(fed)
        kept[mode] = {subset for _, subset, _ in state.extra["stored"].tolist()}
    assert kept == {"reset": {1, 4}, "keep": {0, 1, 2, 3, 4, 5}}
