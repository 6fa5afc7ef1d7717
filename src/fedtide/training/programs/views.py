"""Views in traced graphs: transpositions, and those that change nothing."""

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

_aten = torch.ops.aten
_T, _TRANSPOSE = _aten.t.default, _aten.transpose.int
_SUM = _aten.sum.dim_IntList
RESHAPES = (_aten.view.default, _aten._unsafe_view.default, _aten.expand.default)


def example(node: Any) -> Tensor:
    """The traced value of a node: its shape and type, no numbers."""
    value: Tensor = node.meta["val"]
    return value


def is_transposition(node: Node) -> bool:
    """Whether a node exchanges the last two dimensions of a tensor."""
    if node.op != "call_function" or node.target not in (_T, _TRANSPOSE):
        return False
    dims = example(node).dim()
    return node.target == _T or {dim % dims for dim in node.args[1:] if isinstance(dim, int)} == {dims - 2, dims - 1}


def transposed(graph: Graph, matrix: Any) -> Node:
    """A node with the last two dimensions of ``matrix`` exchanged, at the point of insertion."""
    if is_transposition(matrix) and isinstance(inner := matrix.args[0], Node):
        return inner
    value = example(matrix)
    node = graph.call_function(_T, (matrix,)) if value.dim() == 2 else graph.call_function(_TRANSPOSE, (matrix, -2, -1))
    node.meta["val"] = value.mT
    return node


def drop_idle_views(graph: Graph) -> None:
    """Remove views that change nothing, in place: to the same shape, pairs of transpositions, of sums that kept dimensions."""
    for node in graph.nodes:
        inner = node.args[0] if node.args else None
        if not isinstance(inner, Node) or "val" not in node.meta or "val" not in inner.meta:
            continue
        if node.target in RESHAPES and example(node).shape == example(inner).shape:
            node.replace_all_uses_with(inner)
        elif node.target in RESHAPES and _is_kept_sum(inner, example(node).shape):
            inner.args, inner.meta = inner.args[:2], dict(node.meta)
            node.replace_all_uses_with(inner)
        elif is_transposition(node) and is_transposition(inner):
            node.replace_all_uses_with(inner.args[0])
    graph.eliminate_dead_code()


def _is_kept_sum(node: Node, shape: torch.Size) -> bool:
    """Whether a node is a sum that keeps the summed dimensions, only to lose them in a view of this ``shape``."""
    if node.target is not _SUM or node.args[2:] != (True,) or len(node.users) > 1:
        return False
    dims: Any = node.args[1]
    return example(node).squeeze(dims).shape == shape
