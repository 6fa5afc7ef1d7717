"""Faster forms of operations on matrices with few columns, such as the logits of ten classes.

Libraries tune matrix products for wide results and softmax for long rows. On a CPU the product ``[batch, 784] x [784, 10]``
takes less than half the time when computed transposed, ``[10, 784] x [784, batch]``, and a softmax over the first of two
dimensions, vectorised over samples, a twentieth. A norm over a few non-contiguous numbers takes fifty times as long as the
root of their sum of squares. Results are the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

_COLUMNS = 16
"""Most columns for which the transposed forms are faster (measured)."""

_aten = torch.ops.aten


def _mm(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(b.mT, a.mT).mT


def _bmm(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(b.mT, a.mT).mT


def _addmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(b.mT, a.mT).mT.add_(bias)


def _log_softmax(values: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.log_softmax(values.mT, -2).mT


def _log_softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    result: Tensor = _aten._log_softmax_backward_data(grad.mT, output.mT, output.dim() - 2, dtype)
    return result.mT


def _norm(values: Tensor, order: int, dim: list[int], keepdim: bool = False) -> Tensor:
    return values.square().sum(dim, keepdim).sqrt()


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


_FORMS: dict[Any, tuple[Callable[..., Tensor], Callable[[Node], bool]]] = {
    _aten.mm.default: (_mm, _is_narrow),
    _aten.bmm.default: (_bmm, _is_narrow),
    _aten.addmm.default: (_addmm, _is_narrow),
    _aten._log_softmax.default: (_log_softmax, _is_narrow_along_rows),
    _aten._log_softmax_backward_data.default: (_log_softmax_backward, _is_narrow_along_rows),
    _aten.linalg_vector_norm.default: (_norm, _is_root_of_few_squares),
}
"""The faster form of an operation, with the operation's own arguments, and the test of whether to use it."""


def use_narrow_forms(graph: Graph) -> None:
    """Replace operations by their faster forms, in place, in a traced graph whose nodes carry example values."""
    for node in graph.nodes:
        form, fits = _FORMS.get(node.target, (None, None))
        if form is not None and fits is not None and not node.kwargs and fits(node):
            node.target = form
    for node in graph.nodes:
        if node.target in (_aten.view.default, _aten._unsafe_view.default):
            node.target = torch.reshape  # a transposed result may have to be copied for it
