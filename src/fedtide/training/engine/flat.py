"""A network and its parameters as one flat vector.

``Layout`` maps parameter names to slices of ``w`` [d] and floating buffers (BatchNorm statistics) to slices of ``b`` [q].
Parameters that require no gradient and buffers that training does not change are in neither: constants of the network.
``ResidentModule`` is a network whose parameters *and gradients* are views of two such vectors: loading a client is one copy,
a local step is vector algebra, and nothing is allocated per client.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from fedtide.core.errors import SettingsError, nearest
from fedtide.training.models.base import Keyed, Network

_NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, _InstanceNorm)


@dataclass(frozen=True)
class Slot:
    """Where one named tensor lies in a flat vector."""

    name: str
    shape: torch.Size
    start: int
    stop: int

    def view(self, flat: Tensor) -> Tensor:
        """The named tensor as a view of ``flat`` [..., d]."""
        return flat[..., self.start : self.stop].view((*flat.shape[:-1], *self.shape))


class Layout:
    """Slots of all trained parameters and floating buffers of a network, in ``named_parameters`` order; masks on ``device``."""

    def __init__(self, network: nn.Module, device: torch.device | None = None) -> None:
        self.device = device
        self.parameters, self.size = self._slots(trained(network))
        self._sizes = [slot.stop - slot.start for slot in self.parameters]
        self.buffers, self.buffer_size = self._slots(statistics(network))
        norms = {name for name, module in network.named_modules() if isinstance(module, _NORMS)}
        self._norms = [slot.name for slot in self.parameters if slot.name.rpartition(".")[0] in norms]
        modules = network.named_modules()
        self.dropout_keys = [f"{name}.key" for name, module in modules if isinstance(module, Keyed)]

    @staticmethod
    def _slots(tensors: Mapping[str, Tensor]) -> tuple[list[Slot], int]:
        slots, start = [], 0
        for name, value in tensors.items():
            slots.append(Slot(name, value.shape, start, start + value.numel()))
            start += value.numel()
        return slots, start

    def views(self, w: Tensor) -> list[Tensor]:
        parts = w.split_with_sizes(self._sizes, dim=-1)  # one call instead of a slice each
        return [part.view((*w.shape[:-1], *slot.shape)) for part, slot in zip(parts, self.parameters, strict=True)]

    def part(self, mask: Tensor | None) -> Layout:
        """The layout of a vector of the parameters alone that a mask bool [d] covers; None for all. A cut tensor is flat."""
        if mask is None:
            return self
        found, start = copy.copy(self), 0
        found.parameters = []
        for slot in self.parameters:
            if count := int(mask[slot.start : slot.stop].sum()):
                shape = slot.shape if count == slot.stop - slot.start else torch.Size([count])
                found.parameters.append(Slot(slot.name, shape, start, start + count))
                start += count
        found.size, found._sizes = start, [slot.stop - slot.start for slot in found.parameters]
        return found

    def mask(self, part: str | Sequence[str]) -> Tensor:
        """Which parameters belong to a part of the network, bool [d].

        Args:
            part: ``head`` (the last layer), ``body`` (all else), ``norms`` (scales and shifts of normalization layers), or
                names of parameters or of modules, which stand for all of theirs.

        Raises:
            SettingsError: no parameter has such a name.
        """
        found = torch.zeros(self.size, dtype=torch.bool, device=self.device)
        names = {"head": ["head"], "body": ["head"], "norms": self._norms}.get(part) if isinstance(part, str) else part
        for name in [part] if names is None else names:
            own = [slot for slot in self.parameters if f"{slot.name}.".startswith(f"{name}.")]
            if not own:
                known = [slot.name for slot in self.parameters]
                raise SettingsError(nearest(f"the model has no parameter {name!r}", str(name), known))
            for slot in own:
                found[slot.start : slot.stop] = True
        return ~found if part == "body" else found

    def whole(self, mask: Tensor) -> list[bool] | None:
        """For each parameter whether a mask bool [d] covers it; None if it cuts one in two."""
        parts = [mask[slot.start : slot.stop] for slot in self.parameters]
        covered = [bool(part.all()) for part in parts]
        return covered if all(full or not bool(part.any()) for full, part in zip(covered, parts, strict=True)) else None

    def named(self, w: Tensor, b: Tensor | None = None) -> dict[str, Tensor]:
        """Named views of flat vectors ``w`` [..., d] and ``b`` [..., q]."""
        views = {slot.name: slot.view(w) for slot in self.parameters}
        if b is not None:
            views |= {slot.name: slot.view(b) for slot in self.buffers}
        return views


def trained(network: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that are trained, by name."""
    return {name: value for name, value in network.named_parameters() if value.requires_grad}


def statistics(network: nn.Module) -> dict[str, Tensor]:
    """Floating buffers by name, without those known to be constant: :attr:`Network.constants`."""
    known = getattr(network, "constants", ())
    floating = {name: value for name, value in network.named_buffers() if value.is_floating_point()}
    return {name: value for name, value in floating.items() if name not in known}


def flatten(network: nn.Module, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Trained parameters [d] and floating buffers [q] of a network as new flat vectors."""
    parameters = [value.detach().reshape(-1) for value in trained(network).values()]
    buffers = [value.detach().reshape(-1) for value in statistics(network).values()]
    w, b = (torch.cat(values or [torch.zeros(0)]).to(device=device, dtype=dtype) for values in (parameters, buffers))
    return w, b


class ResidentModule:
    """A network on flat vectors: ``w`` [d] parameters, ``g`` [d] gradients, ``b`` [q] floating buffers."""

    def __init__(self, network: Network, dtype: torch.dtype, device: torch.device) -> None:
        self.network = copy.deepcopy(network).to(device=device, dtype=dtype)
        self.layout = Layout(self.network)
        self.w, self.b = flatten(self.network, dtype, device)
        self.g = torch.zeros_like(self.w)
        self._keyed = [module for module in self.network.modules() if isinstance(module, Keyed)]
        for slot, parameter in zip(self.layout.parameters, trained(self.network).values(), strict=True):
            parameter.data = slot.view(self.w)
            parameter.grad = slot.view(self.g)
        for slot in self.layout.buffers:
            owner, _, leaf = slot.name.rpartition(".")
            self.network.get_submodule(owner)._buffers[leaf] = slot.view(self.b)
        for module in self.network.modules():
            if isinstance(module, _BatchNorm):
                _take_single_values(module)

    def load(self, w: Tensor, b: Tensor) -> None:
        self.w.copy_(w)
        self.b.copy_(b)

    def set_key(self, key: int) -> None:
        for module in self._keyed:
            module.key.fill_(key)


def _take_single_values(norm: _BatchNorm) -> None:
    """Let a layer use its running statistics, unchanged, for a training batch with a single value per channel.

    Such a batch (one sample, and no pixels beside it) has no spread to divide by.
    """
    usual = norm.forward

    def forward(values: Tensor) -> Tensor:
        if norm.training and values.numel() == values.shape[1]:
            scale, shift = norm.weight, norm.bias
            return batch_norm(values, norm.running_mean, norm.running_var, scale, shift, training=False, eps=norm.eps)
        return usual(values)

    norm.forward = forward  # type: ignore[method-assign, assignment]


def weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """``sum_k weights[k] * rows[k]`` for weights [C] and rows [C, d], on a CPU added in client order."""
    total = torch.zeros_like(rows[0])
    add_weighted(total, weights, rows)
    return total


def add_weighted(total: Tensor, weights: Tensor, rows: Tensor) -> None:
    """Add a :func:`weighted_sum` to ``total`` [d]; in pieces of the rows it gives the same on a CPU."""
    if rows.device.type != "cpu":
        total.addmv_(rows.mT, weights.to(rows))
        return
    for weight, row in zip(weights.tolist(), rows, strict=True):
        total.add_(row, alpha=weight)


def add_weighted_updates(total: Tensor, weights: Tensor, scale: Tensor, rows: Tensor, start: Tensor) -> None:
    """Add ``sum_k weights[k] * scale[k] (rows[k] - start[k])`` to ``total`` [d]; rows and start are [C, d], scale [C, 1].

    On a CPU the differences exist one at a time.
    """
    if rows.device.type != "cpu":
        add_weighted(total, weights, (rows - start).mul_(scale))
        return
    for weight, factor, row, origin in zip(weights.tolist(), scale, rows, start, strict=True):
        total.add_((row - origin).mul_(factor), alpha=weight)
