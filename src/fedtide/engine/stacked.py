"""Executor for accelerators and tiny models: a chunk of clients advanced as one batched program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedtide.engine.executor import Executor
from fedtide.engine.flat import Layout
from fedtide.engine.local import Cohort, Update, rows_of
from fedtide.engine.memory import plan_chunk
from fedtide.engine.task import Task
from fedtide.models.base import Network, Outputs


class _Probe(nn.Module):
    """Makes ``outputs`` of a network callable through ``functional_call``."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Outputs:
        return self.network.outputs(inputs)


class Stacked(Executor):
    """``vmap`` over clients; every client of a chunk takes the same number of steps, finished rows are frozen."""

    def __init__(self, task: Task, chunk: int = 0) -> None:
        self.task, self.chunk = task, chunk
        self.layout = Layout(task.network)
        # Two copies: training mode is a property of a module, and references are evaluated while clients train.
        self._train = _Probe(copy.deepcopy(task.network)).to(task.device, task.dtype).train()
        self._frozen = copy.deepcopy(self._train).eval()
        self._heads = {slot.name for slot in self.layout.parameters if slot.name.startswith("head.")}

    def advance(self, cohort: Cohort, first: int, last: int) -> None:
        """See :meth:`Executor.advance`."""
        plan = cohort.plan
        chunk = self.chunk or plan_chunk(self.layout.size, plan.indices.shape[-1], self.task)
        clients = len(plan.steps)
        for start in range(0, clients, chunk):
            rows = slice(start, min(start + chunk, clients))
            self._chunk(cohort, rows, first, min(last, max(plan.steps[rows], default=0)))

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        chunk = self.chunk or plan_chunk(self.layout.size, self.task.local.batch_size, self.task)
        return f"stacked, chunks of {chunk} clients"

    def _chunk(self, cohort: Cohort, rows: slice, first: int, last: int) -> None:
        plan, task = cohort.plan, self.task
        if last <= first:
            return
        update = Update(cohort, rows, task.local)
        count = rows.stop - rows.start
        steps = torch.tensor(plan.steps[rows], device=task.device).unsqueeze(-1)
        w = cohort.W[rows].clone()
        m = None if cohort.momentum is None else cohort.momentum[rows]
        written = [w, *([] if m is None else [m]), *(memory[rows] for memory in cohort.memories)]
        g = torch.empty_like(w)
        losses = torch.zeros(count, dtype=task.dtype, device=task.device)
        sizes = plan.sizes[rows].to(task.device)
        weights, references = self._terms(cohort, rows, count)
        gradient = self._gradient(cohort, weights)
        shortest = min(plan.steps[rows])
        for step in range(first, last):
            width = int(plan.sizes[rows, step].max())
            keys = plan.keys[rows, step]
            inputs, labels = task.batch(plan.indices[rows, step, :width], keys)
            mask = torch.arange(width, device=task.device) < sizes[:, step : step + 1]
            seen = [self._outputs(reference, inputs) for reference in references]
            counts = cohort.label_counts[rows]
            values: list[Tensor] = []

            def loss_gradient(at: Tensor, batch: Any = (inputs, labels, mask, keys, counts, seen, values)) -> Tensor:
                x, y, keep, key, n, frozen, out = batch
                named = self.layout.named(at.expand(count, -1))
                grads, value = gradient(named, x, y, keep, key, n, frozen)
                out.append(value.detach())
                return torch.cat([grads[slot.name].reshape(count, -1) for slot in self.layout.parameters], dim=-1)

            before = [value.clone() for value in written] if step >= shortest else []
            if cohort.direction is None:
                update.seed(g)
                g.add_(loss_gradient(w))
            else:
                g.copy_(cohort.direction(loss_gradient, w, rows))
            update.step(w, g, m)
            running = steps > step
            if step >= shortest:
                for value, old in zip(written, before, strict=True):
                    value.copy_(torch.where(running, value, old))
            losses += torch.where(running[:, 0], values[0], 0.0)
        cohort.W[rows] = w
        cohort.losses[rows] += losses

    def _gradient(self, cohort: Cohort, weights: list[Any]) -> Callable[..., tuple[dict[str, Tensor], Tensor]]:
        """vmapped gradient of the masked mean loss with respect to the named parameters."""
        task, prefix = self.task, "network."

        def loss(
            named: dict[str, Tensor],
            x: Tensor,
            y: Tensor,
            keep: Tensor,
            key: Tensor,
            n: Tensor,
            frozen: Any,
            scale: Any,
        ) -> Tensor:
            state = {prefix + name: value for name, value in named.items()}
            state |= {prefix + name: key for name in self.layout.dropout_keys}
            with task.mixed():
                outputs = functional_call(self._train, state, (x,))

                def head(features: Tensor) -> Tensor:
                    own = {name.removeprefix("head."): named[name] for name in self._heads}
                    return functional_call(self._train.network.head, own, (features,))  # type: ignore[no-any-return]

                terms = [(t, s, f) for t, s, f in zip(cohort.terms, scale, frozen, strict=True)]
                values = task.losses(outputs, y, n, terms, head, key)
            return (values * keep).sum() / keep.sum().clamp(min=1)

        mapped = vmap(grad_and_value(loss), in_dims=(0, 0, 0, 0, 0, 0, 0, 0), randomness="error")
        return lambda *args: mapped(*args, weights)  # type: ignore[call-arg]

    def _terms(self, cohort: Cohort, rows: slice, count: int) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        """Weights [c] and reference vectors [c, d] of the extra terms."""
        task, weights, references = self.task, [], []
        for term in cohort.terms:
            weight = torch.as_tensor(rows_of(term.weight, rows), dtype=task.dtype, device=task.device)
            weights.append(weight.reshape(-1).expand(count))
            references.append({k: rows_of(v, rows).expand(count, -1) for k, v in term.references.items()})
        return weights, references

    def _outputs(self, references: dict[str, Tensor], inputs: Tensor) -> dict[str, Outputs]:
        def one(named: dict[str, Tensor], x: Tensor) -> Outputs:
            return functional_call(self._frozen, {f"network.{k}": v for k, v in named.items()}, (x,))  # type: ignore

        with torch.no_grad(), self.task.mixed():
            return {name: vmap(one)(self.layout.named(vector), inputs) for name, vector in references.items()}
