"""What each eraser has to be equal to where that is known exactly."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from erasers.erased_runs import SIZES, WHOLE, asked, linear, made, request, run, same, world
from fedtide.core import plugins
from fedtide.methods.erasers.base import Eraser
from fedtide.training.engine.flat import Layout
from support import closest, steady, vectors

LAST = [[0, 2], [2, 3], [0, 2], [0, 1, 3], [1, 2], [0, 3]]
"""Client 1 takes part in round 3 for the first time."""
FIRST = [[0, 1, 2], [2, 3], [0, 1, 3], [0, 1, 3], [1, 2], [0, 3]]


def after(name: str, cohorts: Any, **values: Any) -> Tensor:
    """The model right after a request."""
    keys = {"algorithm", "local", "model", "start"}
    settings = {key: value for key, value in values.items() if key in keys}
    asks = request(name, **{key: value for key, value in values.items() if key not in keys})
    return asked(asks, world(), cohorts, **settings)[1].w


@pytest.mark.parametrize("ratio", [0.3, 1.0])
def test_fed_eraser_is_retraining_if_the_client_came_last(ratio: float) -> None:
    assert closest(after("fed_eraser", LAST, interval=1, ratio=ratio), after("retrain", LAST)) < 1e-15


@pytest.mark.usefixtures("drop_in")
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("retrain", {}),
        ("fed_eraser", {"interval": 1, "ratio": 1.0}),
        ("fed_eraser", {"interval": 1, "ratio": 1.0, "direction": "stored"}),
        ("puf", {"form": "special", "eta": 4 * SIZES[1] / sum(SIZES)}),
    ],
    ids=str,
)
def test_linear_losses(name: str, values: dict[str, Any]) -> None:
    """All lead to w_0 + T sum p_k D_k / (1 - p_u); PUF at the rate T p_u leaves 1 - p_u of that way."""
    settings, D = linear("samples")
    p = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    fed = made((), **settings)
    _, state, _ = asked(request(name, **values), **settings)
    way = 4 * (p[[0, 2, 3]] @ D[[0, 2, 3]])
    way = way if name == "puf" else way / (1 - p[1])
    assert closest(state.w, fed.parts.w0 + way) < 1e-14


def test_a_rollback_is_exact_where_the_client_was_alone_since() -> None:
    alone = [[0, 2], [0, 3], [1], [1], [2, 3], [0, 2]]
    assert torch.equal(after("rollback", alone, every=1), after("retrain", alone))


def test_a_rollback_and_as_many_rounds_more_are_retraining() -> None:
    """With equal cohorts, rates and batches."""
    cohorts = [[0], [0], [0, 1], [0, 1], [0, 1], [0, 1]]
    rolled = run([request("rollback", every=1)], world(), cohorts, local=WHOLE)
    assert torch.equal(rolled.models[5], run((), world(without=[1]), cohorts, local=WHOLE).models[3])


def test_an_ascent_in_a_ball_of_no_size_is_retraining_if_the_client_came_last() -> None:
    assert closest(after("pga", LAST, radius=0, epochs=2), after("retrain", LAST)) < 1e-15


def test_an_ascent_without_ball_and_momentum_is_training_at_a_negative_rate() -> None:
    free = {"radius": 1e9, "momentum": 0, "ascent_clip": 1e9, "batch_size": None, "lr": 0.3, "epochs": 3}
    reference = after("pga", LAST, local=WHOLE, radius=0)
    assert closest(after("pga", LAST, local=WHOLE, **free), ascended(reference)) < 1e-14


def ascended(w: Tensor) -> Tensor:
    """Softmax regression after three full steps of 0.3 up the loss of client 1, by the formula of its gradient."""
    data = vectors()
    x, y = data.train_inputs[6:10], functional.one_hot(data.train_labels[6:10], 3).double()
    for _ in range(3):
        error = ((x @ w[:15].view(3, 5).T + w[15:]).softmax(1) - y) / 4
        w = w + 0.3 * torch.cat([(error.T @ x).flatten(), error.sum(0)])
    return w


@pytest.mark.parametrize("form", ["regular", "special"])
def test_negated_updates_that_count_nothing_are_none(form: str) -> None:
    left = run([request("continue_training")], world(), FIRST)
    assert same(run([request("puf", form=form, eta=0)], world(), FIRST).models, left.models)


def test_a_special_round_at_rate_minus_one_is_training_of_the_client() -> None:
    trained = run((), world(), [*FIRST[:4], [1], [0, 3]], local=WHOLE).models[4]
    assert closest(after("puf", FIRST, form="special", eta=-1, local=WHOLE), trained) < 1e-14


@pytest.mark.parametrize("cohort", [[1, 2], [1], [0, 1, 2, 3]])
def test_a_regular_round_at_rate_minus_one_is_the_round_as_planned(cohort: list[int]) -> None:
    cohorts = [*FIRST[:4], cohort, [0, 3]]
    erased, planned = run([request("puf", eta=-1)], world(), cohorts), run((), world(), cohorts)
    assert closest(erased.models[4], planned.models[4]) < 1e-14
    assert erased.rows[4]["selected"] == len(cohort)
    assert erased.state.counts[1] == 0


def test_a_negated_client_trains_on_what_it_held_last() -> None:
    """It leaves where it asks, and takes part in the next round all the same."""
    present = [[0, 1, 2]] * 4 + [[0, 2]] * 2
    asks = {"name": "puf", "leavers": True, "at": 4, "eta": -1}
    erased = run([asks], world(present), [[0, 1, 2]] * 6)
    assert closest(erased.models[4], run((), world(), [[0, 1, 2]] * 6).models[4]) < 1e-14
    assert [row["selected"] for row in erased.rows] == [3] * 5 + [2]


@pytest.mark.parametrize("layers", ["first", "all"])
def test_two_negations_are_none(layers: str) -> None:
    fed = made((), model={"name": "mlp", "widths": [4]})
    layout, w = fed.parts.layout, fed.parts.w0
    plugin: Any = plugins.load("erasers", "weight_negation")
    eraser = plugins.create(Eraser, plugin.Settings(clients=(1,), at=4, layers=layers))
    once, twice = eraser.erase(seen_by(layout, w)), eraser.erase(seen_by(layout, eraser.erase(seen_by(layout, w))))
    assert torch.equal(twice, w)
    negated = {
        slot.name
        for slot in layout.parameters
        if not torch.equal(once[slot.start : slot.stop], w[slot.start : slot.stop])
    }
    weights = [slot.name for slot in layout.parameters if "bias" not in slot.name]
    assert negated == set(weights if layers == "all" else weights[:1])


def seen_by(layout: Layout, w: Tensor) -> Any:
    """A request, as far as a negation looks at it."""
    return SimpleNamespace(layout=layout, w=w)


def test_negated_logits() -> None:
    """Softmax regression with its bias."""
    before, state, _ = asked(request("weight_negation", bias=True), world(), FIRST)
    assert torch.equal(state.w, -before)


def test_dampening_below_no_ratio_changes_nothing() -> None:
    assert same(
        run([request("conda", cutoff=0)], world(), FIRST).models,
        run([request("continue_training")], world(), FIRST).models,
    )


def test_a_factor_of_at_most_one_lets_no_entry_grow() -> None:
    before, state, _ = asked(request("conda", cutoff=5.0, dampening=3.0, upper=1.0), world(), FIRST)
    assert (state.w.abs() <= before.abs()).all()
    assert not torch.equal(state.w, before)


@pytest.mark.parametrize("base", ["broadcast", "initial"])
def test_released_dampening_of_one_of_two_clients_is_that_of_the_other(base: str) -> None:
    cohorts = [[0], [1], [0, 1], [0, 1], [0]]
    released, printed = (
        asked(request("conda", [client], base=base, variant=variant), world([[0, 1]] * 5), cohorts)[1].w
        for client, variant in ((0, "release"), (1, "text"))
    )
    assert torch.equal(released, printed)


def test_on_quadratics_the_gap_shrinks_by_the_rate_in_every_round(quadratics: Any) -> None:
    sizes = [4, 4, 4]
    data, chosen = quadratics(sizes, [1.0] * 3, [[1.0, -2.0, 0.5], [-4.0, 1.0, 3.0], [7.0, 0.0, -1.0]])
    local = {"steps": 1, "batch_size": 100, "lr": 0.2}
    erased = run([request("continue_training", at=2)], steady(sizes, 6), data=data, local=local, **chosen)
    gaps = [row["erased_gap"] for row in erased.rows[2:]]
    assert gaps[1:] == pytest.approx([0.8 * gap for gap in gaps[:-1]], rel=1e-12)
