"""What a program computes from shapes alone is computed once, and the program's results stay the same to the bit."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fedtide.programs.constants import fold_constants
from fedtide.programs.program import trace_plain


def loss(x, y):
    return -torch.log_softmax(x, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1).mean()


def called(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def test_the_seed_of_a_gradient_is_a_constant():
    x, y = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2, 1, 1, 0])
    graph = make_fx(torch.func.grad(loss))(x, y)
    expected, before = graph(x, y), called(graph)
    fold_constants(graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    assert torch.equal(graph(x, y), expected)
    assert torch.ops.aten.ones_like.default in before
    assert not {torch.ops.aten.ones_like.default, torch.ops.aten.div.Tensor, torch.ops.aten.neg.default} & set(
        called(graph)
    )


def test_a_result_is_the_callers_own():
    program = trace_plain(lambda x: torch.ones_like(x) * 3, [torch.zeros(4)])
    program(torch.zeros(4)).zero_()
    assert program(torch.zeros(4)).tolist() == [3.0] * 4


def test_views_of_constants_are_the_callers_own():
    program = trace_plain(lambda x: torch.zeros_like(x).expand(2, 4).t(), [torch.zeros(4)])
    program(torch.zeros(4)).add_(1)
    assert not program(torch.zeros(4)).any()


def test_numbers_of_tensors_are_no_constants():
    program = trace_plain(lambda x: torch.ones_like(x) + x, [torch.zeros(4)])
    assert program(torch.arange(4.0)).tolist() == [1, 2, 3, 4]


def test_random_numbers_are_no_constants():
    program = trace_plain(lambda x: torch.rand_like(torch.ones_like(x)) + x, [torch.zeros(4)])
    assert not torch.equal(program(torch.zeros(4)), program(torch.zeros(4)))


def through_a_view(x):
    own = torch.zeros_like(x)
    own.view(2, 2).reshape(2, 2)[0].add_(x[:2])
    return own + torch.ones_like(x)


def twice(x):
    own = torch.zeros_like(x)
    return own.add_(x).add_(torch.ones_like(x)) + own


@pytest.mark.parametrize("written", [through_a_view, twice])
def test_tensors_that_are_written_into_are_no_constants(written):
    x = torch.arange(4.0)
    graph = make_fx(written)(x)
    fold_constants(graph)
    graph.recompile()
    assert any("constant" in name for name, _ in graph.named_buffers())
    for _ in range(2):
        assert torch.equal(graph(x), written(x))


def test_a_result_that_is_written_into_is_no_constant():
    def written(x):
        own = torch.zeros_like(x)
        own.add_(x)
        return own

    graph = make_fx(written)(torch.zeros(4))
    before = called(graph)
    fold_constants(graph)
    assert called(graph) == before
    program = trace_plain(written, [torch.zeros(4)])
    program(torch.ones(4))
    assert program(torch.ones(4)).tolist() == [1.0] * 4


def test_large_constants_are_not_kept():
    graph = make_fx(lambda x: torch.ones_like(x) + x)(torch.zeros(20_000))
    fold_constants(graph)
    assert not dict(graph.named_buffers())
