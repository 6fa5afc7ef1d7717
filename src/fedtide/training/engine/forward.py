"""Logits of models in evaluation mode, from a traced program."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedtide.training.engine.flat import Layout
from fedtide.training.engine.task import Task
from fedtide.training.programs.program import trace_plain
from fedtide.training.programs.traces import shapes, shared, structure
from fedtide.world.dataset import Dataset

_LARGEST = 1 << 25
"""Most bytes of a layer's outputs at once on a CPU: images whose maps leave the caches take half as long again (measured)."""

_PER_INPUT = 64  # numbers of the largest output per number of input, where it cannot be found out


class Forward:
    """The network in evaluation mode as a function of flat vectors, traced once per batch shape.

    On a CPU, large batches of images pass in several parts.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._network = copy.deepcopy(task.network).to(task.device, task.dtype).eval()
        self._layout = Layout(self._network)
        self._at_once = None
        if task.device.type == "cpu":
            self._at_once = max(1, _LARGEST // (task.dtype.itemsize * _widest(self._network, task.data)))
        self._programs: dict[Any, Callable[..., Tensor]] = {}
        # Described now: while a thread traces, the network holds its tensors.
        self._described = structure(self._network, task.autocast)

    def __call__(self, w: Tensor, b: Tensor, inputs: Tensor) -> Tensor:
        """Logits [B, L] of the model with parameters ``w`` [d] and floating buffers ``b`` [q] for prepared inputs [B, ...]."""
        state = self._layout.named(w, b)
        if self._at_once is None or len(inputs) <= self._at_once:
            return self._logits(state, inputs)
        count = -(-len(inputs) // self._at_once)
        parts = torch.split(inputs, -(-len(inputs) // count))
        return torch.cat([self._logits(state, part) for part in parts])

    def _logits(self, state: dict[str, Tensor], inputs: Tensor) -> Tensor:
        shape = (inputs.shape, inputs.stride())
        program = self._programs.get(shape)
        if program is None:
            arguments = [*state.values(), inputs]
            described = self._described
            key = None if described is None else ("forward", described, tuple(state), shapes(arguments))
            program = self._programs.setdefault(shape, shared(key, partial(self._trace, list(state), arguments)))
        return program(*state.values(), inputs)

    def _trace(self, names: list[str], arguments: list[Tensor]) -> Callable[..., Tensor]:
        def logits(*values: Tensor) -> Tensor:
            state = dict(zip(names, values, strict=False))
            with self._task.mixed():
                outputs: Tensor = functional_call(self._network, state, (values[-1],))
            return outputs

        with torch.inference_mode(False), torch.no_grad():
            return trace_plain(logits, [value.clone() for value in arguments])


def _widest(network: nn.Module, data: Dataset) -> int:
    """Numbers of the input or of the largest output of a layer, for one sample in evaluation mode."""
    found = [math.prod(data.input_shape)]

    def note(_module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            found.append(output.numel())

    hooks = [part.register_forward_hook(note) for part in network.modules() if not list(part.children())]
    dtype = torch.int64 if data.kind == "text" else next(network.parameters()).dtype
    try:
        with torch.no_grad():
            network(torch.zeros(1, *data.input_shape, dtype=dtype))
    except Exception:  # the run itself says what is wrong
        found = [found[0] * _PER_INPUT]
    for hook in hooks:
        hook.remove()
    return max(found)
