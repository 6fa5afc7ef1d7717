"""How a traced graph is run: as a straight line of Python calls, and by TorchScript's interpreter once it has been used often.

Both call the same kernels in the same order, with bitwise identical results. TorchScript is deprecated; without it only the
speed changes.
"""

import linecache
import re
import threading
import warnings
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule
from torch.fx.graph import CodeGen

TRACING = threading.Lock()
"""Tracing changes global state of torch, and functional_call that of modules: one trace at a time per process."""

_OFTEN = 200
"""Calls in which TorchScript saves the time it takes to read a graph: 130 to 250 for convolutions, 2,700 for a linear model."""


def as_function(graph: GraphModule, device: torch.device) -> Callable[..., Any]:
    """The traced graph as a function of its tensors, which are on ``device``."""
    graph.graph.set_codegen(CodeGen())
    graph.graph.eliminate_dead_code()
    return _Function(graph) if device.type == "cpu" else _called(graph)


class _Function:
    """A graph on the CPU, in Python until it has been called often."""

    def __init__(self, graph: GraphModule) -> None:
        self._left = _OFTEN
        self._graph: GraphModule | None = graph
        self._run = _called(graph)

    def __call__(self, *given: Tensor) -> Any:
        if self._graph is not None:
            self._left -= 1  # by several threads: a few more or less
            if self._left < 0:
                self._hand_over()
        return self._run(*given)

    def _hand_over(self) -> None:
        if not TRACING.acquire(blocking=False):
            return  # with the next call; this one may be part of a trace
        try:
            if self._graph is not None:
                self._run, self._graph = _scripted(self._graph) or self._run, None
        finally:
            TRACING.release()


def _scripted(graph: GraphModule) -> Callable[..., Any] | None:
    """The operations run by TorchScript's interpreter, without the GIL between them; ``None`` where torch cannot do that.

    Its optimizer stays off: from the second or third call on it would change the rounding.
    """
    try:
        function, constants = _free(graph)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated as a way to export models, which this is not
            scripted, unoptimized = torch.jit.script(function), torch.jit.optimized_execution  # type: ignore[attr-defined]
    except Exception:  # a torch without TorchScript, or a graph that it does not understand
        return None
    if not isinstance(scripted, torch.jit.ScriptFunction):  # switched off by PYTORCH_JIT=0
        return None

    def call(*given: Tensor) -> Any:
        with unoptimized(False):
            return scripted(*given, *constants)[0]

    return call


def _free(graph: GraphModule) -> tuple[Callable[..., Any], list[Any]]:
    """The graph as a function of its tensors and its constants, and these; it returns its results and what it was given.

    TorchScript reads a module four times as slowly.
    """
    constants: list[Any] = []
    lines = Graph()
    lines.output(lines.graph_copy(graph.graph, {}))
    *_, place = (node for node in lines.nodes if node.op == "placeholder")
    for node in list(lines.nodes):
        node.target = getattr(node.target, "overloadpacket", node.target)  # TorchScript chooses among overloads itself
        if node.op == "get_attr":
            constants.append(attrgetter(str(node.target))(graph))
            with lines.inserting_after(place):
                place = lines.placeholder(f"held{len(constants)}")
            node.replace_all_uses_with(place)
            lines.erase_node(node)
    # Returned as well: after its last use the interpreter would wait for the GIL to drop a tensor that Python holds.
    *given, output = (node for node in lines.nodes if node.op in ("placeholder", "output"))
    output.args = ((output.args[0], tuple(given)),)
    code = lines.python_code("self")
    source = re.sub(r"def forward\(self(, )?", "def forward(", code.src, count=1)
    space = {**code.globals, "__name__": __name__}
    exec(compile(source, "<traced>", "exec"), space)
    # TorchScript reads the source of a function from there.
    linecache.cache["<traced>"] = len(source), None, source.splitlines(keepends=True), "<traced>"
    return space["forward"], constants


def _called(graph: GraphModule) -> Callable[..., Any]:
    graph.recompile()
    return graph.forward
