"""Gradients with respect to the inputs of models in evaluation mode, from a traced program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor
from torch.func import functional_call, grad

from fedtide.training.engine.flat import Layout
from fedtide.training.engine.task import Task
from fedtide.training.programs.program import trace_plain
from fedtide.training.programs.traces import shapes, shared, structure

Loss = Callable[[Tensor, Tensor], Tensor]  # (logits [n, L], labels [n]) -> a number


class InputGradient:
    """Gradient of a loss with respect to the inputs of the network, as a function of flat vectors; traced once per shape."""

    def __init__(self, task: Task, loss: Loss) -> None:
        self._task, self._loss = task, loss
        self._network = copy.deepcopy(task.network).to(task.device, task.dtype).eval()
        self._layout = Layout(self._network)
        self._names = [slot.name for slot in (*self._layout.parameters, *self._layout.buffers)]
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._described = structure(self._network, loss, task.autocast)

    def __call__(self, w: Tensor, b: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """Gradient [n, ...] for prepared inputs [n, ...] with labels [n], parameters [d] and floating buffers [q]."""
        arguments = (*self._layout.named(w, b).values(), inputs, labels)
        shape = (inputs.shape, inputs.stride())
        program = self._programs.get(shape)
        if program is None:
            key = None if self._described is None else ("inputs", self._described, shapes(arguments))
            program = self._programs.setdefault(shape, shared(key, partial(trace_plain, self._function, arguments)))
        found: Tensor = program(*arguments)
        return found

    def _function(self, *arguments: Tensor) -> Tensor:
        *values, inputs, labels = arguments
        state = dict(zip(self._names, values, strict=True))

        def loss(at: Tensor) -> Tensor:
            with self._task.mixed():
                return self._loss(functional_call(self._network, state, (at,)), labels)

        found: Tensor = grad(loss)(inputs)
        return found
