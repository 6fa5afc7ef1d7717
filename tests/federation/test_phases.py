"""Several trainings in a round, each of a part of the model, in every executor."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from federation.test_ranks import SIZES, compare
from fedtide.core.discovery.faults import PluginError
from fedtide.core.errors import SettingsError
from fedtide.federation.federation import Federation
from fedtide.methods.algorithms.base import Phase
from support import closest, deal, federation, images, run_rounds, settings, steady, vectors, watch

pytestmark = pytest.mark.usefixtures("drop_in")

LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2}
RULES: dict[str, dict[str, Any]] = {
    "direct": {},
    "momentum": {"momentum": 0.9},
    "clip": {"clip": 0.05, "weight_decay": 0.1},
    "clip_inside": {"clip": 0.05, "weight_decay": 0.1, "clip_scope": "total_with_decay"},
    "decay": {"weight_decay": 0.1},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
}


def made(algorithm: Any, executor: str = "auto", rounds: int = 2, **values: Any) -> Federation:
    model = values.pop("model", {"name": "mlp", "widths": [6]})
    local = {**LOCAL, **values.pop("local", {})}
    chosen = settings(
        algorithm=algorithm, local=local, model=model, engine={"executor": executor, "workers": 1}, **values
    )
    return federation(chosen, steady(SIZES, rounds), vectors())


@pytest.mark.parametrize("executor", ["threads", "stacked", "resident"])
@pytest.mark.parametrize("rule", RULES)
def test_what_is_not_trained_stays_to_the_bit(rule: str, executor: str) -> None:
    resident = executor == "resident"
    model = {"model": "normed"} if resident else {}
    fed = made("in_parts", "auto" if resident else executor, local=RULES[rule], **model)
    head, seen = fed.parts.layout.mask("head"), watch(fed)
    run_rounds(fed)
    assert 0 < int(head.sum()) < len(head)
    for r, _ in seen:
        assert torch.equal(r.client.own[:, ~head], r.w[~head].expand(len(r.ids), -1))
        assert torch.equal(r.W[:, head], r.client.own[:, head])
        assert (r.client.own[:, head] != r.w[head]).all(1).any()
        assert closest(r.W[:, ~head], r.w[~head].expand(len(r.ids), -1)) > 1e-4


@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_matrix_products_write_the_same_as_a_step_that_collects_its_gradient(executor: str) -> None:
    """A clip that never acts takes the other path through the local step."""
    direct, collected = (run_rounds(made("in_parts", executor, local=local))[0] for local in ({}, {"clip": 1e9}))
    assert closest(direct.w, collected.w) < 1e-13


def alone(quadratics: Any, local: dict[str, Any], phases: Any) -> Tensor:
    """The model [2] after a round of one client with the loss |theta - (3, 4)|^2 / 2, from zero."""
    data, chosen = quadratics([4], [1.0], [[3.0, 4.0]])
    local = local if "epochs" in local else {"steps": 1, **local}
    fed = federation(settings(**chosen, algorithm="in_parts", local=local), steady([4], 1, classes=2), data)
    fed.parts.algorithm.phases = phases  # type: ignore[method-assign]
    return run_rounds(fed)[0].w


@pytest.mark.parametrize("scope", ["total", "total_with_decay", "loss"])
def test_the_norm_that_is_clipped_is_that_of_the_trained_part(quadratics: Any, scope: str) -> None:
    def phases(r: Any) -> Any:
        yield Phase(r.base, trains=torch.tensor([True, False]))

    w = alone(quadratics, {"lr": 1.0, "clip": 1.0, "clip_scope": scope}, phases)
    assert w.tolist() == pytest.approx([1.0, 0.0], abs=1e-5)  # a norm over both would give 0.6


def test_a_part_may_cut_a_tensor_in_two(quadratics: Any) -> None:
    def phases(r: Any) -> Any:
        yield Phase(r.base, trains=torch.tensor([False, True]))

    assert alone(quadratics, {"lr": 0.5}, phases).tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [({"momentum": 0.9}, [0.19 * 3.0, 0.19 * 4.0]), ({"optimizer": "adam"}, [0.2, 0.2])],
    ids=["momentum", "adam"],
)
def test_every_phase_starts_at_rest(quadratics: Any, rule: dict[str, Any], expected: list[float]) -> None:
    """Two phases of one step each take two first steps; one of Adam is as long as the rate."""

    def once(r: Any) -> Any:
        yield Phase(r.base)

    def twice(r: Any) -> Any:
        yield Phase((yield Phase(r.base)))

    local = {"lr": 0.1, **rule}
    assert alone(quadratics, local, twice).tolist() == pytest.approx(expected, abs=1e-7)
    assert alone(quadratics, {**local, "steps": 2}, once).tolist() != pytest.approx(expected, abs=1e-5)


def test_the_first_phase_has_the_batches_of_a_round_and_the_second_its_own() -> None:
    keys: list[Tensor] = []
    for algorithm in ("in_parts", "fedavg"):
        fed = made(algorithm, rounds=1)
        begin = fed.parts.executor.begin
        fed.parts.executor.begin = lambda cohort, begin=begin: keys.append(cohort.plan.keys) or begin(cohort)  # type: ignore
        run_rounds(fed)
    first, second, usual = keys
    assert torch.equal(first, usual)
    assert not (first == second).any()


def test_amount_rate_and_costs_of_a_phase() -> None:
    values = {"costs": {"wireless": True}, "model": {"name": "mlp", "widths": [400]}}
    fed = made({"name": "in_parts", "amount": 5, "lr": 0.0}, **values)
    seen, segments = watch(fed), list[Any]()
    charge = fed.clock.charge

    def noted(r: Any) -> int:
        segments.extend(r.segments)
        return charge(r)

    fed.clock.charge = noted  # type: ignore[method-assign]
    run_rounds(fed)
    for r, _ in seen:
        assert closest(r.client.own, r.base) == 0.0  # a rate of zero
        assert r.steps[:, 0].tolist() == [2 * -(-size // 3) for size in SIZES]  # of the phase that r.W is from
    assert segments[0].samples == [(5 + 2) * size for size in SIZES]  # of both


def test_any_number_of_processes_gives_the_same_run() -> None:
    compare("in_parts", "threads", 3, LOCAL, communication=False, model={"name": "mlp", "widths": [6]})


def _halved(r: Any) -> Any:
    r.W = (yield Phase(r.base)) / 2


def _first_of_two(r: Any) -> Any:
    r.W = yield Phase(r.base)
    r.W = (yield Phase(r.W)) + 0


def _none(r: Any) -> Any:
    yield from ()


def _twice(r: Any) -> Any:
    yield Phase(r.base, main=True)
    yield Phase(r.base, main=True)


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        (lambda r: iter([Phase(r.base)]), "phases of in_parts should return Generator"),
        (lambda r: (yield 3), "phases of in_parts should return Phase, got int"),
        (_halved, "main=True in the Phase that the round is about"),
        (_first_of_two, "main=True in the Phase that the round is about"),
        (_twice, "at most one of them with main=True"),
        (_none, "one Phase or more"),
        (lambda r: (yield Phase(r.base, trains=r.w)), "trains of type torch.bool and shape"),
        (lambda r: (yield Phase(r.w[:2])), "a tensor of shape"),
    ],
)
def test_what_is_no_phase_is_refused(phases: Any, message: str) -> None:
    fed = made("in_parts")
    fed.parts.algorithm.phases = phases  # type: ignore[method-assign]
    with pytest.raises(PluginError) as caught:
        run_rounds(fed)
    fed.parts.workers.close()
    assert message in str(caught.value)


def test_a_phase_of_nothing_trains_nothing() -> None:
    """As the body of a softmax regression."""
    fed = made("in_parts", rounds=1, model="softmax_regression", local={"weight_decay": 0.1, "momentum": 0.9})
    seen = watch(fed)
    run_rounds(fed)
    assert torch.equal(seen[0][0].W, seen[0][0].client.own)


def test_parts_of_a_network_by_name() -> None:
    layout = made("fedavg", model="normed", rounds=1).parts.layout
    sizes = {part: int(layout.mask(part).sum()) for part in ("head", "body", "norms")}
    assert sizes == {"head": 15, "body": 32, "norms": 8}
    assert torch.equal(layout.mask(["body.1"]), layout.mask("norms"))
    assert torch.equal(layout.mask(["head.weight", "body"]), ~layout.mask(["head.bias"]))
    with pytest.raises(SettingsError, match=r"no parameter 'body\.9'"):
        layout.mask(["body.9"])


@pytest.mark.slow
def test_images_in_channels_last_keep_a_frozen_body() -> None:
    chosen = settings(algorithm="in_parts", local=LOCAL, model={"name": "lenet"}, engine={"workers": 2})
    data = images(side=32)
    fed = federation(chosen, steady(SIZES, 1), data)
    head, seen = fed.parts.layout.mask("head"), watch(fed)
    run_rounds(fed)
    r = seen[0][0]
    assert torch.equal(r.client.own[:, ~head], r.w[~head].expand(len(r.ids), -1))
    assert np.concatenate(deal(SIZES)).max() < len(data.train_labels)
