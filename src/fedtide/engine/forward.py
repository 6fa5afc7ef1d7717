"""Logits of models in evaluation mode, from a traced program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from fedtide.engine.flat import Layout
from fedtide.engine.program import trace_plain
from fedtide.engine.task import Task
from fedtide.engine.traces import shapes, shared, structure


class Forward:
    """The network in evaluation mode as a function of flat vectors, traced once per batch shape."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._network = copy.deepcopy(task.network).to(task.device, task.dtype).eval()
        self._layout = Layout(self._network)
        self._programs: dict[Any, Callable[..., Tensor]] = {}
        # Described now: while a thread traces, the network holds its tensors.
        self._described = structure(self._network, task.autocast)

    def __call__(self, w: Tensor, b: Tensor, inputs: Tensor) -> Tensor:
        """Logits [B, L] of the model with parameters ``w`` [d] and floating buffers ``b`` [q] for prepared inputs [B, ...]."""
        state = self._layout.named(w, b)
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
