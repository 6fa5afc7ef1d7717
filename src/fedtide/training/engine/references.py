"""Outputs of reference models, once for each sample of a client instead of once for each batch it is in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedtide.training.engine.task import Task
from fedtide.training.programs.program import trace_plain
from fedtide.training.programs.traces import Traced

_MOST = 1 << 13  # most samples of a client whose outputs are kept
_TOGETHER, _GRAIN = 256, 32
"""Most samples of a pass, and what their number is a multiple of, so that few programs are traced."""


class References:
    """Frozen models on the samples of one client; ``probe`` gives the outputs of the network in evaluation mode."""

    def __init__(self, task: Task, probe: nn.Module, names: Sequence[str]) -> None:
        self._task, self._probe, self._names = task, probe, names
        self._pass = Traced(self._function, ("references", probe, task.autocast), trace_plain)

    def worthwhile(self, samples: int, distinct: int) -> bool:
        """Whether outputs should be kept of a client that trains on so many samples, so many of which are distinct."""
        return self._task.augmentation is None and samples >= 2 * distinct and distinct <= _MOST

    def outputs(self, models: Sequence[Sequence[Tensor]], positions: Tensor) -> list[Tensor]:
        """Logits [n, L] and features [n, q] of every model, model by model, at int64 positions [n] in the training set."""
        passes = -(-len(positions) // _TOGETHER)
        width = -(-len(positions) // (passes * _GRAIN)) * _GRAIN
        padded = torch.cat([positions, positions[:1].expand(passes * width - len(positions))])
        parts = []
        for part in torch.split(padded, width):
            inputs = self._task.batch(part)[0]
            parts.append([found for model in models for found in self._pass(*model, inputs)])
        return [torch.cat(column)[: len(positions)] for column in zip(*parts, strict=True)]

    def _function(self, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        state = dict(zip(self._names, arguments[:-1], strict=True))
        with self._task.mixed():
            outputs = functional_call(self._probe, state, (arguments[-1],))
        return outputs.logits, outputs.features
