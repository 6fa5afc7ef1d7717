"""Logits of models in evaluation mode, from a traced program."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedtide.training.engine.flat import Layout
from fedtide.training.engine.task import Task
from fedtide.training.programs.program import trace_plain
from fedtide.training.programs.traces import Traced
from fedtide.world.dataset import Dataset

_LARGEST = 1 << 25
"""Most bytes of a layer's outputs at once on a CPU: images whose maps leave the caches take half as long again (measured)."""

_PER_INPUT = 64  # numbers of the largest output per number of input, where it cannot be found out


class Forward:
    """The network in evaluation mode as a function of flat vectors; on a CPU, large batches of images pass in parts."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._network = copy.deepcopy(task.network).to(task.device, task.dtype).eval()
        self._layout = Layout(self._network)
        self._names = [slot.name for slot in (*self._layout.parameters, *self._layout.buffers)]
        self._at_once = None
        if task.device.type == "cpu":
            self._at_once = max(1, _LARGEST // (task.dtype.itemsize * _widest(self._network, task.data)))
        self._logits = Traced(self._function, ("forward", self._network, task.autocast), _trace)

    def __call__(self, w: Tensor, b: Tensor, inputs: Tensor) -> Tensor:
        """Logits [B, L] of the model with parameters ``w`` [d] and floating buffers ``b`` [q] for prepared inputs [B, ...]."""
        state = self._layout.named(w, b).values()
        count = 1 if self._at_once is None else -(-len(inputs) // self._at_once)
        if count <= 1:
            return self._logits(*state, inputs)  # type: ignore[no-any-return]
        return torch.cat([self._logits(*state, part) for part in torch.split(inputs, -(-len(inputs) // count))])

    def _function(self, *arguments: Tensor) -> Tensor:
        state = dict(zip(self._names, arguments[:-1], strict=True))
        with self._task.mixed():
            outputs: Tensor = functional_call(self._network, state, (arguments[-1],))
        return outputs


def _trace(function: Callable[..., Any], arguments: Sequence[Tensor]) -> Callable[..., Any]:
    """A program from tensors that may be those of inference mode."""
    with torch.inference_mode(False), torch.no_grad():
        return trace_plain(function, [value.clone() for value in arguments])


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
