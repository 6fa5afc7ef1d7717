"""Faster forms of operations on matrices with few columns, such as the logits of ten classes; equal up to rounding.

On a CPU the product ``[batch, 784] x [784, 10]`` takes less than half the time when computed transposed,
``[10, 784] x [784, batch]``, and a softmax over the first of two dimensions, vectorized over samples, a twentieth. A norm over
a few non-contiguous numbers takes fifty times as long as the root of their sum of squares.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from fedtide.training.programs.views import example, transposed

_COLUMNS = 16  # most columns for which the transposed forms are faster (measured)
_aten = torch.ops.aten


def _product(graph: Graph, node: Node) -> Node:
    left, right = node.args
    return transposed(graph, _like(graph, node, transposed(graph, right), transposed(graph, left)))


def _sum_with_bias(graph: Graph, node: Node) -> Node:
    bias, left, right = node.args
    product = graph.call_function(_aten.mm.default, (transposed(graph, right), transposed(graph, left)))
    column = graph.call_function(_aten.unsqueeze.default, (bias, 1))
    total = graph.call_function(_aten.add.Tensor, (product, column))
    total.meta["val"] = example(node).mT
    return transposed(graph, total)


def _log_softmax(graph: Graph, node: Node) -> Node:
    values, _, half_to_float = node.args
    return transposed(graph, _like(graph, node, transposed(graph, values), -2, half_to_float))


def _log_softmax_backward(graph: Graph, node: Node) -> Node:
    grad, output, _, dtype = node.args
    return transposed(graph, _like(graph, node, transposed(graph, grad), transposed(graph, output), -2, dtype))


def _norm(graph: Graph, node: Node) -> Node:
    values, _, *how = node.args
    squares = graph.call_function(_aten.square.default, (values,))
    return graph.call_function(_aten.sqrt.default, (graph.call_function(_aten.sum.dim_IntList, (squares, *how)),))


def _like(graph: Graph, node: Node, *arguments: Any) -> Node:
    """The operation of a node whose result is the node's transposed."""
    new = graph.call_function(node.target, arguments)  # type: ignore[arg-type]
    new.meta["val"] = example(node).mT
    return new


def _is_narrow(node: Node) -> bool:
    shape = node.meta["val"].shape
    return len(shape) > 1 and shape[-1] <= _COLUMNS < shape[-2]


def _is_narrow_along_rows(node: Node) -> bool:
    return _is_narrow(node) and node.args[-2] in (-1, len(node.meta["val"].shape) - 1)


def _is_root_of_few_squares(node: Node) -> bool:
    if len(node.args) < 3 or node.args[1] != 2 or not isinstance(node.args[0], Node):
        return False
    shape = node.args[0].meta["val"].shape
    return node.args[2] in ([-1], [len(shape) - 1]) and shape[-1] <= _COLUMNS


_FORMS: dict[Any, tuple[Callable[[Graph, Node], Node], Callable[[Node], bool]]] = {
    _aten.mm.default: (_product, _is_narrow),
    _aten.bmm.default: (_product, _is_narrow),
    _aten.addmm.default: (_sum_with_bias, _is_narrow),
    _aten._log_softmax.default: (_log_softmax, _is_narrow_along_rows),
    _aten._log_softmax_backward_data.default: (_log_softmax_backward, _is_narrow_along_rows),
    _aten.linalg_vector_norm.default: (_norm, _is_root_of_few_squares),
}
"""What puts the faster form of an operation into its graph, and the test of whether to use it."""


def use_narrow_forms(graph: Graph) -> None:
    """Replace operations by their faster forms, in place, in a traced graph whose nodes carry example values."""
    for node in list(graph.nodes):
        form, fits = _FORMS.get(node.target, (None, None))
        if form is not None and fits is not None and not node.kwargs and fits(node):
            with graph.inserting_before(node):
                node.replace_all_uses_with(form(graph, node))
            graph.erase_node(node)
    for node in graph.nodes:
        if node.target in (_aten.view.default, _aten._unsafe_view.default):
            node.target = torch.reshape  # a transposed result may have to be copied for it
