"""Transpositions in traced graphs."""

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

_aten = torch.ops.aten
_T, _TRANSPOSE = _aten.t.default, _aten.transpose.int
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
