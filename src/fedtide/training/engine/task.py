"""The learning problem that all executors share: network, data, loss and augmentation."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedtide.core.discovery.faults import PluginError, location
from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine.augment import Augmentation
from fedtide.training.engine.local import Term, TermBatch
from fedtide.training.models.base import Network, Outputs
from fedtide.training.objectives.base import Objective
from fedtide.world.dataset import Dataset

TINY = 8192  # most parameters of a tiny model, whose local steps spend their time on call overhead, not on arithmetic
_STRIDE = 3202034522624059733  # an odd 64-bit multiplier keeps the keys of a batch's samples apart


@dataclass(frozen=True)
class Task:
    """The learning problem of a run on one device, in its precision; ``autocast`` is the dtype of mixed precision, or None."""

    network: Network
    data: Dataset
    objective: Objective
    local: LocalSettings
    augmentation: Augmentation | None
    device: torch.device
    dtype: torch.dtype
    autocast: torch.dtype | None = None
    layout: torch.memory_format = torch.contiguous_format

    def lay_out(self, inputs: Tensor) -> Tensor:
        """Prepared inputs [n, ...] in the memory layout of the run."""
        return inputs.contiguous(memory_format=self.layout) if inputs.dim() == 4 else inputs

    def mixed(self) -> AbstractContextManager[object]:
        """Context of a forward pass: autocast, where precision is mixed."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    def batch(self, indices: Tensor, key: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Prepared inputs and labels at ``indices`` [...] of the training set; augmented if ``key`` [...] is given."""
        inputs, labels = self.data.read("train", indices.reshape(-1))
        inputs = self.data.prepare(inputs, self.dtype)
        if key is not None and self.augmentation is not None:
            width = indices.shape[-1]
            offsets = torch.arange(width, device=indices.device) * _STRIDE
            inputs = self.augmentation(inputs, (key.unsqueeze(-1) + offsets).reshape(-1))
        inputs = self.lay_out(inputs)
        return inputs.view(*indices.shape, *inputs.shape[1:]), labels.view(*indices.shape, *labels.shape[1:])

    def losses(
        self,
        outputs: Outputs,
        labels: Tensor,
        counts: Tensor,
        terms: list[tuple[Term, Any, dict[str, Outputs], dict[str, Tensor]]],
        head: Callable[[Tensor], Tensor],
        key: Tensor,
        real: Tensor | None = None,
    ) -> Tensor:
        """Losses [B]: the objective plus the extra terms, each with weight, reference outputs and constants."""
        replaced = any(term.replaces for term, *_ in terms)
        total = torch.zeros_like(outputs.logits[:, 0]) if replaced else self.objective.loss(outputs, labels, counts)
        _refuse_other_than_samples(self.objective.loss, total, labels)
        for term, weight, references, constants in terms:
            extra = term.loss(TermBatch(outputs, labels, references, head, key, constants, real))
            _refuse_other_than_samples(term.loss, extra, labels)
            total = total + (weight.squeeze() if isinstance(weight, Tensor) else weight) * extra
        return total


def _refuse_other_than_samples(loss: Callable[..., Tensor], values: Any, labels: Tensor) -> None:
    """A single number would be averaged with padding."""
    if not isinstance(values, Tensor) or values.shape != labels.shape[:1]:
        found = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise PluginError(f"{location(loss)}should return a loss for each of {len(labels)} samples, got {found}")
