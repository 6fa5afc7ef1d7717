"""Concentration of activity: closed forms and invariances, and which layers are looked at."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from fedtide.training.engine.passes.neurons import MEASURES, SOFTMAX, activities, concentration, probe
from support import federation, images, run_rounds, settings, steady, vectors

ACTIVITY = st.lists(st.floats(0.01, 100), min_size=2, max_size=12)


def of(values):
    return concentration(torch.tensor(values, dtype=torch.float64))


def test_equal_neurons_and_a_single_active_one():
    assert of([3.0] * 7) == pytest.approx({"entropy": 0, "hhi": 0, "gini": 0, "top10": 1 / 7}, abs=1e-12)
    assert of([0.0, 5.0, 0.0, 0.0]) == pytest.approx({"entropy": 1, "hhi": 1, "gini": 0.75, "top10": 1})
    assert of([0.0] * 5) == dict.fromkeys(MEASURES, 1.0)


def test_two_neurons_and_k_equal_ones_among_many():
    e = 0.2
    assert of([1 - e, e])["entropy"] == pytest.approx(1 + (e * math.log(e) + (1 - e) * math.log(1 - e)) / math.log(2))
    assert of([1.0] * 3 + [0.0] * 9)["hhi"] == pytest.approx((12 / 3 - 1) / 11)


@given(ACTIVITY, st.floats(0.1, 10), st.randoms())
def test_scale_and_order_do_not_matter_and_twins_leave_gini_alone(values, factor, random):
    found = of(values)
    shuffled = [factor * value for value in values]
    random.shuffle(shuffled)
    assert of(shuffled) == pytest.approx(found, abs=1e-9)
    assert of([*values, *values])["gini"] == pytest.approx(found["gini"], abs=1e-9)
    assert all(-1e-12 <= value <= 1 + 1e-12 for value in found.values())


def test_the_probe_has_equally_many_of_each_class():
    assert probe(torch.tensor([2, 0, 0, 1, 0, 2, 1]), 2).tolist() == [1, 2, 3, 6, 0, 5]
    assert probe(torch.tensor([1, 0, 0]), 2).tolist() == [1, 2, 0]


def test_activities_of_a_perceptron_by_hand():
    data = vectors(20)
    fed = federation(settings(model={"name": "mlp", "widths": [6, 4]}), steady((20,), 1), data)
    found = activities(fed.parts.workers, fed.parts.w0, fed.parts.b0, data.test_inputs, 7)
    named = fed.parts.layout.named(fed.parts.w0)
    x = data.test_inputs
    for place in (0, 1):
        x = functional.linear(x, named[f"hidden.{2 * place}.weight"], named[f"hidden.{2 * place}.bias"]).relu()
        torch.testing.assert_close(found[f"relu_{place}"], x.mean(0), rtol=1e-12, atol=1e-12)
    logits = functional.linear(x, named["head.weight"], named["head.bias"])
    torch.testing.assert_close(found[SOFTMAX], logits.softmax(1).mean(0), rtol=1e-12, atol=1e-12)
    fed.parts.workers.close()


def test_a_channel_is_a_neuron_and_a_residual_block_has_two_layers():
    data = images(side=32, channels=3, count=2)
    fed = federation(settings(model="resnet18"), steady((2,), 1), data)
    found = activities(fed.parts.workers, fed.parts.w0, fed.parts.b0, data.test_inputs, 2)
    fed.parts.workers.close()
    widths = [64] * 5 + [128] * 4 + [256] * 4 + [512] * 4
    assert [len(value) for value in found.values()] == [*widths, 3]


def test_it_is_recorded_when_asked_for_and_where_the_model_is_evaluated():
    for neurons, layers in ((0, []), (3, ["relu_0", "relu_1", SOFTMAX])):
        chosen = settings(model="mlp", evaluation={"every": 2, "neurons": neurons})
        _, records = run_rounds(federation(chosen, steady((30, 30), 3), vectors()))
        assert [list(record.neurons) for record in records] == [[], layers, layers]
