"""Faster forms of operations on matrices with few columns, such as the logits of ten classes.

Libraries tune matrix products for wide results and softmax for long rows. On a CPU ``[batch, 784] x [784, 10]`` takes less
than half the time as the transposed product ``[10, 784] x [784, batch]``, and a softmax over the first of two dimensions,
which runs along the samples, a twentieth. A norm along a few numbers that are not neighbours in memory takes fifty times as
long as the root of their sum of squares. Results are the same up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import Graph

_COLUMNS = 16
"""Columns up to which the transposed forms win (measured)."""

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
    return _aten._log_softmax_backward_data(grad.mT, output.mT, output.dim() - 2, dtype).mT  # type: ignore[no-any-return]


def _norm(values: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
    return values.square().sum(dim, keepdim).sqrt()


_TRANSPOSED = {
    _aten.mm.default: _mm,
    _aten.bmm.default: _bmm,
    _aten.addmm.default: _addmm,
    _aten._log_softmax.default: _log_softmax,
    _aten._log_softmax_backward_data.default: _log_softmax_backward,
}
_NORM = _aten.linalg_vector_norm.default
_ALONG_ROWS = (_aten._log_softmax.default, _aten._log_softmax_backward_data.default)


def transpose_narrow(graph: Graph) -> None:
    """Use the transposed forms, in place, in a traced graph whose nodes carry example values."""
    for node in graph.nodes:
        if node.target is _NORM and not node.kwargs and len(node.args) > 2 and node.args[1] == 2:
            shape = node.args[0].meta["val"].shape
            if node.args[2] in ([-1], [len(shape) - 1]) and shape[-1] <= _COLUMNS:
                node.target, node.args = _norm, (node.args[0], *node.args[2:])
        if node.target not in _TRANSPOSED or node.kwargs:
            continue
        shape = node.meta["val"].shape
        along_rows = node.target not in _ALONG_ROWS or node.args[-2] in (-1, len(shape) - 1)
        if len(shape) > 1 and along_rows and shape[-1] <= _COLUMNS < shape[-2]:
            node.target = _TRANSPOSED[node.target]
    for node in graph.nodes:
        if node.target in (_aten.view.default, _aten._unsafe_view.default):
            node.target = torch.reshape  # a transposed result may have to be copied for it
