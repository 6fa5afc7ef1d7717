"""How a traced graph is run: by TorchScript's interpreter, or as a straight line of Python calls.

Both call the same kernels in the same order, so their results are equal to the bit. TorchScript is deprecated; this is the only
place that uses it, and without it nothing changes but the speed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule
from torch.fx.graph import CodeGen

_FAST = {
    getattr(torch.ops.aten, name): getattr(torch, name)
    for name in (
        *("_log_softmax", "_log_softmax_backward_data", "add", "addmm", "bmm", "clamp", "div", "gather", "mean"),
        *("mm", "mul", "neg", "relu", "scatter_add", "squeeze", "sub", "sum", "t", "transpose", "unsqueeze"),
    )
}
"""Operators whose Python binding takes the same arguments as the traced one and is twice as fast to call."""


def as_function(graph: GraphModule, device: torch.device) -> Callable[..., Any]:
    """The traced graph as a function of its tensors, which are on ``device``."""
    graph.graph.set_codegen(CodeGen())
    graph.graph.eliminate_dead_code()
    return (_scripted(graph) if device.type == "cpu" else None) or _called(graph)


def _scripted(graph: GraphModule) -> Callable[..., Any] | None:
    """The operations run by TorchScript's interpreter, in one call from Python; ``None`` where torch cannot do that.

    Worker threads then do not wait for the GIL between operations. The interpreter's optimiser stays off: from the second or
    third call on it would change the rounding.
    """
    copied = Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    for node in copied.nodes:
        node.target = getattr(node.target, "overloadpacket", node.target)  # TorchScript chooses among overloads itself
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated as a way to export models, which this is not
            scripted, unoptimised = torch.jit.script(GraphModule(graph, copied)), torch.jit.optimized_execution  # type: ignore[attr-defined]
    except Exception:  # a torch without TorchScript, or a graph that it does not understand
        return None
    if not isinstance(scripted, torch.jit.ScriptModule):  # switched off by PYTORCH_JIT=0
        return None
    forward = scripted.forward

    def call(*given: Tensor) -> Any:
        with unoptimised(False):
            return forward(*given)

    return call


def _called(graph: GraphModule) -> Callable[..., Any]:
    for node in graph.graph.nodes:
        node.target = _FAST.get(getattr(node.target, "overloadpacket", None), node.target)
    graph.recompile()
    return graph.forward
