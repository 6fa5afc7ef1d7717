"""Faster forms of convolutions: strips of the batch, biases' gradients as sums, evaluation in parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as sampling
from hypothesis import strategies as st
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from fedtide.engine import forward
from fedtide.engine.forward import Forward
from fedtide.programs import strips, traces
from fedtide.programs.biases import use_bias_sums
from fedtide.programs.strips import use_strips
from support import assert_same, closest, federation, images, run_rounds, settings, steady

aten = torch.ops.aten
LAYOUTS = [torch.contiguous_format, torch.channels_last]


def network(w: Tensor, b: Tensor, v: Tensor, c: Tensor, x: Tensor, weights: Tensor) -> Tensor:
    """Two convolutions with pooling and a linear loss."""
    hidden = F.relu(F.max_pool2d(F.conv2d(x, w, b), 2))
    hidden = F.max_pool2d(F.relu(F.conv2d(hidden, v, c, padding=1)), 3, 2, 1)
    return (hidden.flatten(1) * weights).sum()


def whole_numbers(draw: torch.Generator, *shape: int) -> Tensor:
    """Small ones: sums of their products are exact in any order, and equal values in a window frequent."""
    return torch.randint(-1, 2, shape, generator=draw).double()


def example(batch: int, channels: int, side: int, layout: torch.memory_format) -> list[Tensor]:
    draw = torch.Generator().manual_seed(batch * 100 + channels * 10 + side)
    shapes = ((4, channels, 3, 3), (4,), (5, 4, 3, 3), (5,), (batch, channels, side, side))
    *parameters, x = (whole_numbers(draw, *shape) for shape in shapes)
    features = 5 * (((side - 2) // 2 + 1) // 2) ** 2
    return [*parameters, x.contiguous(memory_format=layout), whole_numbers(draw, batch, features)]


def traced(arguments: list[Tensor]) -> GraphModule:
    return make_fx(torch.func.grad_and_value(network, (0, 1, 2, 3)))(*arguments)


def count(graph: GraphModule, target: object) -> int:
    return sum(node.target is target for node in graph.graph.nodes)


def results(graph: GraphModule, arguments: list[Tensor]) -> list[Tensor]:
    graph.graph.lint()
    graph.recompile()
    gradients, value = graph(*arguments)
    return [*gradients, value]


@pytest.mark.parametrize("layout", LAYOUTS)
@sampling(deadline=None, max_examples=5)
@given(
    batch=st.integers(2, 9),
    channels=st.integers(1, 3),
    side=st.integers(8, 13),
    kept=st.sampled_from([1, 3_000, 20_000]),
)
def test_strips_and_sums_give_the_same_values_and_gradients_ties_included(
    layout: torch.memory_format, batch: int, channels: int, side: int, kept: int
) -> None:
    arguments = example(batch, channels, side, layout)
    expected = results(traced(arguments), arguments)
    graph = traced(arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strips, "_CACHE", kept)
        use_strips(graph.graph)
    use_bias_sums(graph.graph)
    if kept == 1:
        assert count(graph, aten.convolution.default) == 2 * batch
    masks = [node.args[-1][2] for node in graph.graph.nodes if node.target is aten.convolution_backward.default]
    assert not any(masks[-1:])
    assert all(torch.equal(one, other) for one, other in zip(results(graph, arguments), expected, strict=True))


def test_there_are_at_most_so_many_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(example(40, 1, 8, torch.channels_last))
    monkeypatch.setattr(strips, "_CACHE", 1)
    use_strips(graph.graph)
    assert count(graph, aten.convolution.default) == 2 * strips._MOST


def test_small_results_and_those_that_are_not_pooled_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = example(6, 2, 8, torch.channels_last)
    small = traced(arguments)
    use_strips(small.graph)
    assert count(small, aten.convolution.default) == 2
    monkeypatch.setattr(strips, "_CACHE", 1)
    plain = make_fx(lambda x, w: F.conv2d(x, w).relu().sum())(arguments[4], arguments[0])
    use_strips(plain.graph)
    assert count(plain, aten.convolution.default) == 1


def test_clients_that_share_a_program_keep_their_own_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """``vmap`` folds clients into channels or into the batch, so that not every operation is one on single images."""
    arguments = example(6, 2, 8, torch.contiguous_format)
    stacked = [torch.stack([value, value.roll(1)]) for value in arguments]
    function = torch.vmap(torch.func.grad(network, (0, 1, 2, 3)))
    expected = function(*stacked)
    graph = make_fx(function)(*stacked)
    monkeypatch.setattr(strips, "_CACHE", 1)
    use_strips(graph.graph)
    use_bias_sums(graph.graph)
    graph.recompile()
    assert all(torch.equal(one, other) for one, other in zip(graph(*stacked), expected, strict=True))


def test_sums_over_a_whole_batch_stay_in_the_kernel_where_they_are_no_slower() -> None:
    x, w, b = torch.randn(4, 2, 8, 8), torch.randn(3, 2, 3, 3), torch.randn(3)
    graph = make_fx(torch.func.grad(lambda w, b, x: F.conv2d(x, w, b).square().sum(), (0, 1)))(w, b, x)
    use_bias_sums(graph.graph)
    assert count(graph, aten.sum.dim_IntList) == 0


def test_a_run_in_strips_is_one_on_whole_batches_for_any_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    cut, counts = strips._cut, list[int]()

    def counted(*passes: Any) -> None:
        counts.append(len(passes[-1]) - 1)
        cut(*passes)

    monkeypatch.setattr(strips, "_cut", counted)

    def end(kept: int, **engine: object) -> tuple[Tensor, object]:
        counts.clear()
        monkeypatch.setattr(strips, "_CACHE", kept)
        monkeypatch.setattr(traces, "_programs", type(traces._programs)())
        chosen = settings(model="cnn_5x5", engine=engine, local={"amount": 2, "batch_size": 5, "lr": 0.05})
        state, _ = run_rounds(federation(chosen, steady((12, 13, 11), 1), images(side=16)))
        return state.w, state

    whole, _ = end(1 << 30, workers=1)
    assert not counts
    one, state = end(1 << 16, workers=1)
    assert min(counts) > 1
    _, again = end(1 << 16, workers=2)
    assert_same(state, again)
    assert closest(one, whole) < 1e-10
    stacked, _ = end(1 << 16, workers=1, executor="stacked")
    assert closest(stacked, whole) < 1e-10


def test_evaluation_in_parts_gives_the_logits_of_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation(settings(model="cnn_5x5"), steady((4, 5), 1), images(side=16))
    task, (w, b) = fed.parts.task, (fed.parts.w0, fed.parts.b0)
    inputs = fed.parts.data.test_inputs[:23]
    whole = Forward(task)(w, b, inputs)
    widest = 64 * 12 * 12 * whole.itemsize  # the first convolution's outputs
    for images_at_once in (1, 7, 22):
        monkeypatch.setattr(forward, "_LARGEST", images_at_once * widest)
        assert closest(Forward(task)(w, b, inputs), whole) < 1e-12
    fed.parts.workers.close()
