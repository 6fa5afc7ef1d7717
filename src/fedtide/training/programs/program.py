"""Gradient programs: the loss and its gradient traced once per shape into a straight line of tensor operations.

The gradient of a linear layer is a product of two matrices, and a program returns the two factors: the matrix multiplication
can then do the update itself (``addmm`` into the parameters), and the gradient is never stored.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from fedtide.training.programs.interpreter import TRACING, as_function
from fedtide.training.programs.onednn import is_faster, use_onednn
from fedtide.training.programs.views import RESHAPES, example, is_transposition

_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)


@dataclass(frozen=True)
class Product:
    """A gradient as the matrix product ``left @ right`` ([m, k] x [k, n], or batched)."""

    left: Tensor
    right: Tensor


Gradients = list[Tensor | Product]


class Program:
    """A traced function of tensors whose first results are gradients of parameters and whose last one is the loss."""

    def __init__(self, call: Callable[..., tuple[Tensor, ...]], products: Sequence[bool]) -> None:
        self._call, self._products = call, products

    def __call__(self, *arguments: Tensor) -> tuple[Gradients, Tensor]:
        """Gradients in parameter order, and the loss ([] or one per client)."""
        results = iter(self._call(*arguments))
        gradients: Gradients = [
            Product(next(results), next(results)) if product else next(results) for product in self._products
        ]
        return gradients, next(results)


def trace(function: Callable[..., tuple[Tensor, ...]], arguments: Sequence[Tensor]) -> Program:
    """Trace ``function(*arguments) -> (*gradients, loss)`` at the shapes of ``arguments``.

    The function must be pure and its Python control flow may depend on shapes only.
    """
    graph = trace_graph(function, arguments)
    output = next(node for node in graph.graph.nodes if node.op == "output")
    *gradients, loss = output.args[0]
    results: list[Any] = []
    products = []
    for node in gradients:
        factors = _factors(node, arguments[0].device)
        products.append(factors is not None)
        results.extend([node] if factors is None else factors)
    output.args = ((*results, loss),)
    return Program(_finished(graph, arguments), products)


def trace_plain(function: Callable[..., Any], arguments: Sequence[Tensor]) -> Callable[..., Any]:
    """Trace a pure function of tensors at the shapes of ``arguments``."""
    return _finished(trace_graph(function, arguments), arguments)


def trace_as_written(function: Callable[..., Any], arguments: Sequence[Tensor]) -> Callable[..., Any]:
    """Trace a pure function of tensors; all operations stay as they are, so results are eager ones."""
    return _as_function(trace_graph(function, arguments), arguments)


def trace_graph(function: Callable[..., Any], arguments: Sequence[Tensor]) -> GraphModule:
    """The operations of a pure function of tensors at the shapes of ``arguments``."""
    shapes = FakeTensorMode(allow_fallback_kernels=True)  # for all nodes; torch would make one for each
    with TRACING, compiling(), tracing(TracingContext(shapes)):
        return make_fx(function)(*arguments)


@contextmanager
def compiling() -> Iterator[None]:
    """Tell networks, while TRACING is held, that they are compiled: many then leave out warnings that depend on values."""
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = False


def _finished(graph: GraphModule, arguments: Sequence[Tensor]) -> Callable[..., Any]:
    """The graph as a callable, every operation in its fastest form."""
    if arguments[0].device.type == "cpu":
        use_onednn(graph.graph)
    return _as_function(graph, arguments)


def _as_function(graph: GraphModule, arguments: Sequence[Tensor]) -> Callable[..., Any]:
    with TRACING:
        return as_function(graph, arguments[0].device)


def _factors(node: Node, device: torch.device) -> tuple[Any, Any] | None:
    """The factors of a node that is a matrix product, up to transpositions that cancel; ``None`` for other nodes."""
    turned, shape = False, example(node).shape
    while is_transposition(node) or node.target in RESHAPES:
        inner = node.args[0]
        if not isinstance(inner, Node) or (node.target in RESHAPES and example(inner).shape != example(node).shape):
            return None
        turned, node = turned != is_transposition(node), inner
    if turned or node.op != "call_function" or node.target not in _PRODUCTS or example(node).shape != shape:
        return None
    if device.type == "cpu" and is_faster(node):
        return None  # oneDNN cannot add to a matrix in place, and is faster with an addition of its own
    return node.args[0], node.args[1]
