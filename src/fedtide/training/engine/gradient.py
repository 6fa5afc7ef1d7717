"""Loss and gradient of one client or of a chunk of clients as a function of tensors, traced where possible."""

import copy
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedtide.training.engine.flat import Layout
from fedtide.training.engine.local import Term
from fedtide.training.engine.task import Task
from fedtide.training.models.base import Network, Outputs
from fedtide.training.programs.program import Gradients, Program, trace, trace_plain
from fedtide.training.programs.traces import Traced, shapes, shared, structure

_MOST = 1 << 13  # most samples of a client whose outputs of reference models are kept
_TOGETHER, _GRAIN = 256, 32
"""Most samples of their pass, and what that number is a multiple of, so that few programs are traced."""


class Probe(nn.Module):
    """Makes ``outputs`` of a network callable through ``functional_call``."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Outputs:
        return self.network.outputs(inputs)


class References:
    """Outputs of frozen models, once for each sample of a client instead of once for each batch it is in.

    ``probe`` gives the outputs of the network in evaluation mode.
    """

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


class Gradient:
    """Gradient of the objective and the extra terms; ``batched`` maps over a leading dimension of clients.

    Calls are traced once per shape and set of terms; a term whose loss is a closure runs as written.
    """

    def __init__(self, task: Task, batched: bool) -> None:
        self.task, self.batched = task, batched
        self.layout = Layout(task.network)
        self._names = [f"network.{slot.name}" for slot in self.layout.parameters]
        # Two copies: training mode is a property of a module. Of the network where it is, before it is on the device.
        self._train, self._frozen = (
            Probe(copy.deepcopy(task.network)).to(task.device, task.dtype).train(mode) for mode in (True, False)
        )
        self._programs: dict[Any, Program] = {}
        self._lock = threading.Lock()  # functional_call swaps parameters on the modules
        # Described now: while a thread traces, the modules hold its tensors.
        self._described = structure(self._train, task.objective, task.autocast, task.dtype, task.device)

    @cached_property
    def references(self) -> References:
        """By a copy of the network, made for the few algorithms that have reference models."""
        probe = Probe(copy.deepcopy(self.task.network)).to(self.task.device, self.task.dtype).eval()
        return References(self.task, probe, self._names)

    def __call__(
        self,
        parameters: Sequence[Tensor],
        inputs: Tensor,
        labels: Tensor,
        keep: Tensor | None,
        key: Tensor,
        counts: Tensor,
        terms: Sequence[Term],
        weights: Sequence[Tensor],
        references: Sequence[Tensor],
        constants: Sequence[Tensor],
        known: bool = False,
    ) -> tuple[Gradients, Tensor]:
        """Gradients in parameter order and the mean loss of the batch; if batched, everything has a leading dimension [c].

        Args:
            parameters: views by slot. inputs, labels, keep: one batch; ``keep`` [B] is false for padding, None without.
            key: of dropout. counts: label counts [L]. terms, weights: extra losses, a scalar for each.
            references: parameters of the terms' reference models, by slot, or, if ``known``, their logits and features.
            constants: each term's constants followed by its tensors.
        """
        masks = () if keep is None else (keep,)
        arguments = (*parameters, inputs, labels, *masks, key, counts, *weights, *references, *constants)
        losses = tuple(term.loss for term in terms)
        if not all(map(_is_static, losses)):
            with self._lock:
                *gradients, value = self._function(terms, keep is not None, known)(*arguments)
            return list(gradients), value
        names = tuple((*term.references, None, *term.constants, *term.tensors) for term in terms)
        shape = (inputs.shape, keep is None, losses, names, known, tuple(value.shape for value in constants))
        program = self._programs.get(shape)
        if program is None:
            make = partial(trace, self._function(terms, keep is not None, known), arguments)
            program = self._programs.setdefault(shape, shared(self._key(terms, arguments), make))
        return program(*arguments)

    def _key(self, terms: Sequence[Term], arguments: Sequence[Tensor]) -> Any | None:
        losses = structure(
            [(term.loss, *map(tuple, (term.references, term.constants, term.tensors)), term.replaces) for term in terms]
        )
        if self._described is None or losses is None:
            return None
        return "gradient", self.batched, self._described, losses, shapes(arguments)

    def _function(self, terms: Sequence[Term], masked: bool, known: bool) -> Callable[..., tuple[Tensor, ...]]:
        slots, names = self.layout.parameters, self._names
        heads = [(i, slot.name.removeprefix("head.")) for i, slot in enumerate(slots) if slot.name.startswith("head.")]
        task, count = self.task, len(slots)
        each = 2 if known else count  # arguments that a reference model takes

        def loss(parameters: tuple[Tensor, ...], *rest: Tensor) -> Tensor:
            x, y, *rest_ = rest
            keep = rest_.pop(0) if masked else None
            key, label_counts = rest_.pop(0), rest_.pop(0)
            weights, tensors = rest_[: len(terms)], rest_[len(terms) :]
            split = each * sum(len(term.references) for term in terms)
            references, constants = tensors[:split], iter(tensors[split:])

            def head(features: Tensor) -> Tensor:
                own = {name: parameters[place] for place, name in heads}
                logits: Tensor = functional_call(self._train.network.head, own, (features,))
                return logits

            with task.mixed():
                state = dict(zip(names, parameters, strict=True))
                state |= {f"network.{name}": key for name in self.layout.dropout_keys}
                outputs = functional_call(self._train, state, (x,))
                applied = []
                for term, weight in zip(terms, weights, strict=True):
                    frozen = {}
                    for name in term.references:
                        given, references = references[:each], references[each:]
                        if known:
                            frozen[name] = Outputs(*given)
                        else:
                            frozen[name] = functional_call(self._frozen, dict(zip(names, given, strict=True)), (x,))
                    own = {name: next(constants) for name in (*term.constants, *term.tensors)}
                    applied.append((term, weight, frozen, own))
                values = task.losses(outputs, y, label_counts, applied, head, key, keep)
            return values.mean() if keep is None else (values * keep).sum() / keep.sum().clamp(min=1)

        def flat(*arguments: Tensor) -> tuple[Tensor, ...]:
            gradients, value = grad_and_value(loss)(arguments[:count], *arguments[count:])
            return (*gradients, value)

        return vmap(flat) if self.batched else flat


def _is_static(loss: Any) -> bool:
    """Whether a loss is the same function in every round: a method or plain function, not a closure."""
    function = getattr(loss, "__func__", loss)
    return getattr(function, "__closure__", None) is None and getattr(function, "__name__", "") != "<lambda>"
