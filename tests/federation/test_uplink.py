"""Links on the way of an update, and the rule that combines what arrives."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from federation.jobs import EQUAL, events
from federation.jobs import made as jobs
from federation.test_ranks import SIZES, compare
from fedtide.core import plugins
from fedtide.federation.features.rule import AggregationRule
from fedtide.federation.federation import Federation
from fedtide.federation.gradient_rounds import GradientRounds
from fedtide.federation.rounds.services import RoundServices
from fedtide.methods.algorithms.base import Algorithm
from matrix import matrix
from support import closest, federation, largest_gap, needs, one, run_rounds, settings, steady, vectors, watch

pytestmark = pytest.mark.usefixtures("drop_in")

NOISY = {"name": "shrink", "noise": 0.01, "remember": True}
PLAIN = {"epochs": 2, "batch_size": 3, "lr": 0.2}


def _plain(name: str) -> Algorithm:
    plugin: Any = plugins.load("algorithms", name)
    made: Algorithm = plugin(plugin.Settings(name=name))
    return made


def made(algorithm: Any = "fedavg", rounds: int = 3, **values: Any) -> Federation:
    return federation(settings(algorithm=algorithm, local=PLAIN, **values), steady(SIZES, rounds), vectors())


def models(fed: Federation) -> list[Tensor]:
    seen = watch(fed)
    run_rounds(fed)
    return [w for _, w in seen]


def test_without_links_what_arrives_is_what_was_trained() -> None:
    fed = made()
    seen = watch(fed)
    run_rounds(fed)
    assert all(r.W is r.trained.W for r, _ in seen)
    assert all(r.means.rule is None for r, _ in seen)


def test_half_of_every_update_is_half_a_step_of_the_server() -> None:
    half = models(made({"name": "fedavg", "server_lr": 0.5}))
    assert largest_gap(models(made(uplink=["shrink"])), half) < 1e-15


def test_the_order_of_links_is_theirs_not_that_of_the_settings() -> None:
    """Twice the half, one added between: w+ = mean W + 1."""
    one, other = (models(made(uplink=links)) for links in (["shrink", "double"], ["double", "shrink"]))
    assert largest_gap(one, other) == 0.0
    assert closest(one[0], models(made(rounds=1))[0] + 1.0) < 1e-14


def test_updates_are_from_where_training_started() -> None:
    """FedACG starts at w + lambda m, so that half of the way from there arrives."""
    fed = made({"name": "fedacg", "lambda_": 0.7, "beta": 0.0}, uplink=["shrink"])
    seen = watch(fed)
    run_rounds(fed)
    for r, _ in seen[1:]:
        start = r.trained.W - 2 * (r.trained.W - r.W)
        assert closest(start, start[:1].expand_as(start)) < 1e-14
        assert closest(start[0], r.w) > 1e-3


def test_noise_is_the_clients_own_whoever_takes_part() -> None:
    def arrived(cohorts: list[list[int]]) -> Tensor:
        chosen = settings(local=PLAIN, uplink=[{"name": "shrink", "noise": 0.01, "share": 1.0}])
        fed = federation(chosen, steady(SIZES, 1), vectors(), cohorts=cohorts)
        seen = watch(fed)
        run_rounds(fed)
        r = seen[0][0]
        return (r.W - r.trained.W)[r.ids.index(3)]

    assert torch.equal(arrived([[3]]), arrived([[0, 1, 3]]))
    assert float(arrived([[3]]).std()) == pytest.approx(0.01, rel=0.7)


@pytest.mark.parametrize(
    ("links", "algorithm"), matrix([["shrink"], [NOISY], ["double", NOISY]], ["fedavg", "scaffold"])
)
def test_any_number_of_processes_gives_the_same_run(algorithm: str, links: list[Any]) -> None:
    for size in (2, 7):
        compare(algorithm, "threads", size, PLAIN, communication=False, uplink=links)


def test_a_result_of_a_job_passes_the_links_from_its_own_start() -> None:
    """With mode: async, half of every update is half a step of FedBuff's server."""
    lengths = [[2], [3, 7], [11], [4, 5, 6], [20]]
    halved = events({"name": "fedbuff", "buffer": 2}, 5, lengths, uplink=["shrink"])
    assert largest_gap(halved, events({"name": "fedbuff", "buffer": 2, "server_lr": 0.5}, 5, lengths)) < 1e-14
    middle = events({"name": "fedbuff", "buffer": 5}, 5, EQUAL, aggregation="middle")
    assert largest_gap(middle, events({"name": "fedbuff", "buffer": 5}, 5, EQUAL)) > 1e-6


def test_every_job_has_noise_of_its_own() -> None:
    """Two results of a client, also in one update."""
    noisy = [{"name": "shrink", "share": 1.0, "noise": 0.01}]
    fed, _ = jobs({"name": "fedbuff", "buffer": 3}, [[2], [3], [5], [5], [5]], steady(SIZES, 4), uplink=noisy)
    seen = watch(fed)
    run_rounds(fed)
    noise = torch.cat([r.W - r.trained.W for r, _ in seen])
    ids = [k for r, _ in seen for k in r.ids]
    assert len(set(ids)) < len(ids) == len(noise)
    assert len(noise.round(decimals=9).unique(dim=0)) == len(noise)


def test_bytes_seconds_and_joules_follow_the_links() -> None:
    def totals(**values: Any) -> tuple[Federation, dict[str, float]]:
        fed = made(
            values.pop("algorithm", "fedavg"),
            model={"name": "mlp", "widths": [400]},
            costs={"wireless": True},
            **values,
        )
        return fed, run_rounds(fed)[0].totals

    (fed, small), (_, whole) = totals(uplink=["shrink"]), totals()
    d = fed.parts.layout.size
    assert small["bytes_up"] == 3 * len(SIZES) * -(-(3 * d + 5) // 8)
    assert small["bytes_down"] == whole["bytes_down"] == 3 * len(SIZES) * 4 * d
    assert small["latency"] < whole["latency"]
    assert small["energy"] < whole["energy"]
    scaffold, _ = totals(algorithm="scaffold", uplink=["shrink"])
    assert scaffold.parts.payload().up == 2 * -(-(3 * d + 5) // 8)  # c_k follows from what arrives
    gradients, _ = totals(algorithm={"name": "scaffold", "option": "I"}, uplink=["shrink"])
    assert gradients.parts.payload().up == -(-(3 * d + 5) // 8) + 4 * d  # c_k is a gradient of its own
    normed = made(model="normed", uplink=["shrink"]).parts
    d, q = normed.layout.size, normed.layout.buffer_size
    assert normed.payload().up == -(-(3 * d + 5) // 8) + 4 * q  # statistics of BatchNorm pass no link
    assert q > 0


def test_a_rule_stands_behind_the_mean() -> None:
    fed = made(aggregation="middle")
    seen = watch(fed)
    _, records = run_rounds(fed)
    for r, w in seen:
        assert closest(w, r.w + (r.W - r.w).median(0).values) < 1e-15
    kept = [record.clients["kept"] for record in records]
    assert all(sum(column) == pytest.approx(1.0) for column in kept)
    assert {record.clients["client"][0] for record in records} == {0}


def test_a_rule_decides_once_about_the_models_of_a_round() -> None:
    fed = made(aggregation="middle", evaluation={"models": ["global", "participants"]})
    rule, calls = one(fed.parts, AggregationRule).rule, []
    combine = rule.combine
    rule.combine = lambda D, p, extra: calls.append(1) or combine(D, p, extra)  # type: ignore[method-assign, func-returns-value]
    run_rounds(fed)
    assert len(calls) == 3


def test_a_rule_sees_scaled_updates_and_memories_too() -> None:
    """FedCM averages the same updates twice: as models, and as gradients for its momentum."""
    fed = made("fedcm", aggregation="middle")
    seen = watch(fed)
    run_rounds(fed)
    for r, _ in seen:
        gradients = (r.w - r.W) / (r.lr * fed.parts.algorithm.step_count(r))
        assert closest(r.server.Delta, gradients.median(0).values) < 1e-13


@pytest.mark.parametrize("spare", [0, 39])
def test_a_rule_combines_other_rows_as_they_are_and_no_statistics_of_batchnorm(spare: int) -> None:
    """Nor where a network has as many floating buffers as parameters, so that their rows look like models."""
    fed = made(aggregation="middle", model={"name": "normed", "spare": spare}, rounds=1)
    layout = fed.parts.layout
    assert (layout.size == layout.buffer_size) is (spare > 0)
    seen = watch(fed)
    state, _ = run_rounds(fed)
    r, services = seen[0][0], seen[0][0].services
    assert isinstance(services, RoundServices)
    assert closest(state.b, (r.weights * services.buffers).sum(0)) < 1e-14
    scale = torch.arange(len(SIZES), dtype=torch.float64).unsqueeze(1)
    assert closest(r.mean_update(scale), (scale * (r.W - r.base)).median(0).values) < 1e-14


ROBUST = [name for name in plugins.names("algorithms") if name != "creff" and "rules" in _plain(name).admits]


@pytest.mark.parametrize("name", ROBUST)
def test_an_algorithm_that_permits_rules_moves_by_them_alone(name: str) -> None:
    """If no update counts, the model does not depend on what clients have trained on. (CReFF's head follows gradients of
    features, which are no updates.)"""

    def last(seed: int) -> Tensor:
        values = (
            {"mode": "async", "algorithm": {"name": name, "buffer": 3}} if name == "fedbuff" else {"algorithm": name}
        )
        chosen = settings(local={**PLAIN, "momentum": 0.0}, aggregation="nobody", **needs(name) | values)
        data = vectors(seed=seed)
        labels = vectors().train_labels
        data = replace(data, train_labels=labels, test_labels=labels)
        return run_rounds(federation(chosen, steady((6, 3, 9), 2), data))[0].w

    assert torch.equal(last(0), last(1))


def test_without_an_update_that_counts_a_model_stays_where_training_started() -> None:
    fed = made(aggregation="nobody")
    assert closest(run_rounds(fed)[0].w, fed.parts.w0) < 1e-15


def test_gradient_rounds_pass_the_links_with_draws_and_memories_of_their_own() -> None:
    fed = made(uplink=[NOISY])
    state, _ = run_rounds(made(uplink=[NOISY]), 1)
    lost, link, seen = state.memory["uplink.shrink.lost"].clone(), fed.parts.links[0], list[tuple[str, float]]()
    apply = link.apply
    link.apply = lambda D, s: seen.append((s.purpose, float(s.memory.lost.abs().max()))) or apply(D, s)  # type: ignore
    with torch.no_grad():
        GradientRounds(fed.parts, state, 0).train(state.w, state.b, 2, 0.1, None, None)
    fed.parts.workers.close()
    assert [purpose for purpose, _ in seen] == ["uplink.shrink.gradient"] * 2
    assert seen[0][1] == 0.0 < seen[1][1]
    assert torch.equal(state.memory["uplink.shrink.lost"], lost)
    assert float(state.features["uplink"]["shrink"]["passed"][0]) == 1.0
