"""Matrix products by oneDNN, on processors for which MKL has no AVX-512 kernels; equal up to rounding.

MKL serves AMD's processors with 256-bit kernels even where they have AVX-512; oneDNN takes 0.5 to 0.75 of the time there
(measured on Zen 5, one thread).
"""

from functools import cache
from pathlib import Path

import torch
from torch.fx import Graph, Node

from fedtide.training.programs.views import example, transposed

_LEAST = 1 << 20  # fewest multiplications that are worth oneDNN's longer way to its kernel (measured)
_NARROW, _SHALLOW = 16, 32
"""Most rows or columns, and most terms in a sum, with which MKL's kernels are no slower (measured)."""

_aten = torch.ops.aten
_mm, _addmm, _relu = _aten.mm.default, _aten.addmm.default, _aten.relu.default


@cache
def preferred() -> bool:
    """Whether oneDNN multiplies faster here than MKL."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


def is_faster(node: Node) -> bool:
    """Whether a node of a graph traced on a CPU is a matrix product that oneDNN takes less time for."""
    if node.op != "call_function" or node.target not in (_mm, _addmm) or node.kwargs or not preferred():
        return False
    *_, left, right = map(example, node.args)
    (rows, depth), columns = left.shape, right.shape[1]
    large = rows * depth * columns >= _LEAST and min(rows, columns) > _NARROW and depth >= _SHALLOW
    return large and left.dtype == torch.float32


def use_onednn(graph: Graph) -> None:
    """Let oneDNN take the products it is faster at, and a ReLU after them, in place, in a traced graph."""
    for node in filter(is_faster, list(graph.nodes)):
        linear = torch.ops.mkldnn._linear_pointwise.default  # not in every build of torch
        bias, left, right = (None, *node.args)[-3:]
        with graph.inserting_before(node):
            weight = transposed(graph, right)
        end, activation = node, "none"
        if len(node.users) == 1 and (user := next(iter(node.users))).target is _relu:
            end, activation = user, "relu"
        with graph.inserting_before(end):
            product = graph.call_function(linear, (left, weight, bias, activation, [], ""))
        product.meta = end.meta
        end.replace_all_uses_with(product)
        for old in {end: None, node: None}:
            graph.erase_node(old)
