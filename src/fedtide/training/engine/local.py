"""A local step: what an algorithm may add to the loss gradient, and the update that fuses it.

One step of one client, in this order::

    v = clip( scale * g(theta) + linear + pull * (theta - toward) )
    v = v + (weight_decay + decay) * theta
    theta = theta - lr * (v, or what the local optimizer makes of it)

With ``adamw`` the weight decay is the optimizer's. Parameters that are not trained are left out: of v before it is clipped, and
of the step.

``clip(v) = v * min(1, limit / (|v| + 1e-6))``, one norm over all parameters of a client. With ``clip_scope`` ``loss`` only
``g`` is clipped; with ``total_with_decay`` the decay is inside the clip.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedtide.settings.groups.local import LocalSettings
from fedtide.training.engine.optimizers import Coefficient, Moments, Sgd, add, optimizer
from fedtide.training.engine.plan import BatchPlan
from fedtide.training.models.base import Outputs
from fedtide.training.programs.program import Gradients, Product


@dataclass
class Local:
    """What an algorithm adds to the clients' gradients in one round; ``None`` costs nothing.

    Attributes:
        linear: constant vector [d] or [C, d] added to the gradient (SCAFFOLD, FedDyn, FedDC).
        pull, toward: adds ``pull * (theta - toward)``; pull is a number, [C, 1], [d] or [C, d]; toward [d] or [C, d]
            (FedProx, FedACG, CFL).
        scale: factor of the loss gradient, a number or [C, 1] (FedCM, FedWCM).
        decay: multiple of theta added after clipping, a number or [C, 1] (FedDyn's split form).
        lr_scale: factor of the learning rate, a number or [C, 1] (FedWCM-X).
    """

    linear: Tensor | None = None
    pull: Coefficient | None = None
    toward: Tensor | None = None
    scale: Coefficient | None = None
    decay: Coefficient | None = None
    lr_scale: Coefficient | None = None


@dataclass(frozen=True)
class TermBatch:
    """What an extra loss term sees of one batch of one client.

    Attributes:
        outputs: logits and features of the model in training.
        labels: int64 [B]; floating point [B, T] of other tasks than classification.
        references: outputs of the term's reference models on the same inputs, without gradient.
        head: the last layer of the model in training, features [*, q] -> logits [*, L].
        key: int64 scalar tensor, keyed per (seed, round, client, step), for ``hashed_uniform``.
        constants: by name, the client's rows of the term's constants, and the term's tensors.
        real: bool [B], false for the padding of a short batch; None if there is none.
    """

    outputs: Outputs
    labels: Tensor
    references: dict[str, Outputs]
    head: Callable[[Tensor], Tensor]
    key: Tensor
    constants: dict[str, Tensor] = field(default_factory=dict)
    real: Tensor | None = None


@dataclass(frozen=True)
class Term:
    """An extra loss: its values [B] times ``weight`` are added to the objective.

    Attributes:
        loss: the values.
        references: parameters [d] or [C, d] of frozen models, which are evaluated on the same batch.
        weight: a number or [C, 1]; 0 switches the term off for a client.
        buffers: floating buffers [q] of the references that do not use the broadcast ones.
        constants: tensors [C, ...] of which a client sees its own row.
        tensors: of any shape, the same for all clients; their names differ from those of ``constants``.
        replaces: used instead of the objective, for methods with a loss of their own.
    """

    loss: Callable[[TermBatch], Tensor]
    references: dict[str, Tensor] = field(default_factory=dict)
    weight: Coefficient = 1.0
    buffers: dict[str, Tensor] = field(default_factory=dict)
    constants: dict[str, Tensor] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    replaces: bool = False


@dataclass(frozen=True)
class GradientAt:
    """A direction that is the gradient on the current batch at ``point`` [c, d], less that at ``minus`` [d] or [c, d].

    The step takes it itself, which spares passes over the model.
    """

    point: Tensor
    minus: Tensor | None = None


class NoStep:
    """A direction that leaves parameters and moments as they are: the batch only prepares the next step."""


Gradient = Callable[[Tensor], Tensor]
Direction = Callable[[Gradient, Tensor, slice], Tensor | GradientAt | NoStep]
"""(gradient at any point on the current batch, parameters [c, d], rows) -> direction [c, d]."""


StopRule = Callable[[int, float, float], bool]
"""(local epoch, from 2 on; loss after the one before; loss after it) -> whether the client stops."""


class EarlyStop:
    """Early stop: where each row of a cohort ends its local training by its own loss; asked after every local step of a row.

    Rows do not affect each other, so they may be asked in parallel.

    Args:
        rule: whether a client stops. ends: of each row, the local steps after which its epochs end, ascending; empty for a
            row that does not train. loss: of a row with parameters [d] and buffers [q].

    Attributes:
        steps: local steps of each row, as planned until it stops.
    """

    def __init__(
        self, rule: StopRule, ends: Sequence[Sequence[int]], loss: Callable[[int, Tensor, Tensor], float]
    ) -> None:
        self._rule, self._loss = rule, loss
        self._epochs = [{step: epoch for epoch, step in enumerate(row, 1)} for row in ends]
        self._losses = [0.0] * len(ends)
        self.steps = [row[-1] if row else 0 for row in ends]

    def __call__(self, row: int, step: int, w: Tensor, b: Tensor) -> bool:
        """Whether a row, at parameters ``w`` [d] and buffers ``b`` [q] after so many steps, takes no more."""
        epoch = self._epochs[row].get(step)
        if epoch is None or step >= self.steps[row]:
            return False
        before, now = self._losses[row], self._loss(row, w, b)
        self._losses[row] = now
        if epoch == 1 or not self._rule(epoch, before, now):
            return False
        self.steps[row] = step
        return True

    def asked(self) -> list[int]:
        """How many losses each row has computed until it stopped."""
        rows = zip(self._epochs, self.steps, strict=True)
        return [sum(end <= taken and end < max(ends) for end in ends) for ends, taken in rows]


@dataclass
class Cohort:
    """The clients in training. Rows are clients; the executor advances ``W``, ``buffers`` and ``moments`` in place.

    Attributes:
        W: [C, d] parameters. buffers: [C, q] floating buffers. moments: what the local optimizer remembers, rows by name.
        b: [q] floating buffers as broadcast; frozen reference models use them.
        plan: batches. label_counts: [C, L] samples per class, for the objective: each client's own, or the total.
        lr: learning rate, a number or [C, 1]. added, terms: what the algorithm adds to the gradient, and extra losses.
        losses: [C] sum over steps of the mean batch loss, written by the executor.
        direction: the algorithm's own step direction, or None. memories: rows [C, d] that it may write; those of a finished
            client are frozen.
        trains: bool [d], the parameters that are trained; None for all. stop: ends rows early; None: none.
    """

    W: Tensor
    buffers: Tensor
    moments: Moments
    b: Tensor
    plan: BatchPlan
    label_counts: Tensor
    lr: Coefficient
    added: Local
    losses: Tensor
    terms: list[Term] = field(default_factory=list)
    direction: Direction | None = None
    memories: list[Tensor] = field(default_factory=list)
    trains: Tensor | None = None
    stop: EarlyStop | None = None


def rows_of(value: Any, rows: slice) -> Any:
    """The part of a coefficient or vector for ``rows``; numbers and vectors [d] are shared by all rows."""
    return value[rows] if isinstance(value, Tensor) and value.dim() == 2 else value


_READ = ("scale", "pull", "lr", "decay", "base", "_fixed", "_limit")


class Update:
    """The local step of some rows [c, d] of a cohort, with what is constant over the round precomputed."""

    def __init__(self, cohort: Cohort, rows: slice, local: LocalSettings) -> None:
        single = rows.stop - rows.start == 1

        def own(value: Any) -> Any:
            part = rows_of(value, rows)
            # On a GPU a number would be waited for.
            return part.item() if single and isinstance(part, Tensor) and part.numel() == 1 and part.is_cpu else part

        added = cohort.added
        self.local, self.optimizer = local, optimizer(local)
        self.moments = {name: values[rows] for name, values in cohort.moments.items()}
        self.scale, self.pull = own(added.scale), own(added.pull)
        # An optimizer that counts steps works with columns anyway, and alone a row should round as it does among others.
        lr, lr_scale = (
            rows_of(value, rows) if self.optimizer.counts else own(value) for value in (cohort.lr, added.lr_scale)
        )
        self.lr = lr if lr_scale is None else lr * lr_scale
        decay = own(added.decay)
        self.decay = local.gradient_decay if decay is None else local.gradient_decay + decay
        self.has_decay = added.decay is not None or local.gradient_decay > 0
        base = own(added.linear)
        if self.pull is not None:
            if added.toward is None:
                raise ValueError("Local.pull needs Local.toward")
            shift = -self.pull * own(added.toward)
            base = shift if base is None else base + shift
        self.base: Tensor | None = base
        self._fixed = None if cohort.trains is None else ~cohort.trains
        alone = self.scale is None and local.clip_scope != "loss" and cohort.direction is None
        self.seeded = base is not None and alone
        plain = not any(isinstance(value, Tensor) for value in (self.scale, self.pull, self.lr, self.decay))
        whole = cohort.trains is None or base is None
        self.direct = plain and whole and local.clip is None and isinstance(self.optimizer, Sgd) and not local.momentum
        """Whether the step is linear in the gradient with plain numbers: matrix products can then write into theta."""
        shrink = self._shrink() if self.direct else 0.0
        # Where the constant and proportional parts alone would lead.
        self._limit = None if base is None or not shrink else base * (-self.lr / shrink)

    def values(self) -> list[Tensor | float | None]:
        """What steps read, and the moments that they write: of two updates of the same form in the same order."""
        return [*(getattr(self, name) for name in _READ), *self.moments.values()]

    def copied(self, copy_of: Callable[[Any], Any]) -> Update:
        """The same with copies of :meth:`values`."""
        other = copy.copy(self)
        for name in _READ:
            setattr(other, name, copy_of(getattr(self, name)))
        other.moments = {name: copy_of(values) for name, values in self.moments.items()}
        return other

    def _shrink(self) -> Any:
        return self.lr * ((self.pull or 0.0) + self.decay)

    def seed(self, g: Tensor) -> None:
        """Initialize ``g`` [c, d] before the loss gradient is accumulated into it: adding the constant is then free."""
        if self.seeded and self.base is not None:
            g.copy_(self.base.expand_as(g))
        else:
            g.zero_()

    def step_by(self, gradients: Gradients, w: list[Tensor], W: Tensor, minus: Gradients | None = None) -> None:
        """A direct step: theta <- (1 - lr (pull + decay)) theta - lr scale (gradient - minus) - lr base.

        ``w`` are views of the parameters ``W`` [c, d], one per parameter.
        """
        rate = self.lr * (1.0 if self.scale is None else self.scale)
        shrink = self._shrink()
        if self.base is None:
            accumulate(w, gradients, 1.0 - shrink, -rate)
        else:
            if self._limit is not None:  # one pass instead of two
                W.lerp_(self._limit, shrink)
            else:
                W.add_(self.base, alpha=-self.lr)
            accumulate(w, gradients, 1.0, -rate)
        if minus is not None:
            accumulate(w, minus, 1.0, rate)

    def direction(self, w: Tensor, g: Tensor) -> None:
        """Turn ``g`` (seed + loss gradient) into v, in place; ``w`` is only read."""
        local = self.local
        self._leave_out(g)
        if local.clip is not None and local.clip_scope == "loss":
            clip(g, local.clip)
        if self.scale is not None:
            g.mul_(self.scale)
        if self.base is not None and not self.seeded:
            g.add_(self.base)
        if self.pull is not None:
            add(g, self.pull, w)
        if self.has_decay and local.clip_scope == "total_with_decay":
            add(g, self.decay, w)
        self._leave_out(g)
        if local.clip is not None and local.clip_scope != "loss":
            clip(g, local.clip)
        if self.has_decay and local.clip_scope != "total_with_decay":
            add(g, self.decay, w)
            self._leave_out(g)

    def _leave_out(self, v: Tensor) -> None:
        """Clear what belongs to parameters that are not trained."""
        if self._fixed is not None:
            v.masked_fill_(self._fixed, 0.0)

    def step(self, w: Tensor, g: Tensor) -> None:
        """Update ``w`` [c, d] and the moments of these rows in place; ``g`` is overwritten."""
        self.direction(w, g)
        if self._fixed is None:
            self.optimizer.step(w, g, self.moments, self.lr)
            return
        before = w.clone()
        self.optimizer.step(w, g, self.moments, self.lr)
        torch.where(self._fixed, before, w, out=w)  # AdamW shrinks parameters whatever their gradient is


def accumulate(targets: list[Tensor], gradients: Gradients, keep: float, factor: float) -> None:
    """``target <- keep * target + factor * gradient`` for each parameter, in place; with ``keep`` 0 they may hold anything."""
    for target, gradient in zip(targets, gradients, strict=True):
        if isinstance(gradient, Product):
            into = target.addmm_ if target.dim() == 2 else target.baddbmm_
            into(gradient.left, gradient.right, beta=keep, alpha=factor)
        else:
            if keep == 0.0:
                torch.mul(gradient, factor, out=target)
                continue
            if keep != 1.0:
                target.mul_(keep)
            target.add_(gradient, alpha=factor)


def clip(v: Tensor, limit: float) -> None:
    """Scale each row of ``v`` [c, d] to a norm of at most ``limit``, in place."""
    norm = torch.linalg.vector_norm(v, dim=-1, keepdim=True).add_(1e-6)
    if norm.is_cpu and norm.max().item() <= limit:  # cheaper than scaling by one; on a GPU it would synchronize
        return
    v.mul_((limit / norm).clamp_(max=1.0))


def momentum_steps(steps: Tensor, momentum: float, nesterov: bool = False) -> Tensor:
    """Displacement per unit gradient and learning rate after ``steps`` [C] steps E of momentum m from rest.

    ``(E - m (1 - m^E) / (1 - m)) / (1 - m)``, the 1-norm of FedNova's a (Wang et al. 2020). Nesterov momentum is heavy-ball
    momentum one step ahead, so m^2 replaces the first m.
    """
    count = steps.to(torch.float64)
    if momentum == 0.0:
        return count
    lag = momentum**2 if nesterov else momentum
    return (count - lag * (1 - momentum**count) / (1 - momentum)) / (1 - momentum)
