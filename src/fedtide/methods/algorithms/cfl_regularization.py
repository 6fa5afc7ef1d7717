"""CFL-Regularization."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms._continual import Continual, ContinualSettings
from fedtide.methods.algorithms.base import Extra, Local, Problem, Round, Tunable
from fedtide.training.engine.flat import Layout

_EXACT = 8192
"""Most parameters for which one Hessian-vector product each is feasible."""


class CflRegularization(Continual):
    """Past objectives kept as diagonal Taylor models and added to the local ones (Guo, Lin and Tang 2021).

    The objective f of a past round is replaced by a quadratic F around a model w^, all products being elementwise::

        F(w) = g (w - w^) + 1/2 h (w - w^)^2

    Round t follows Algorithm 1. The server sends w_t and two vectors that combine the stored triples (g_j, h_j, w^_j) of all
    clients, (1). Each client takes K steps along (2), or along (3) with p_t of Lemma B.4 if ``past: lemma``; mu > 0 is the
    combination with FedProx. It then computes g, the gradient, and h, the diagonal curvature, of its data at its own final
    model w^ = w_{t,i,K}, (4). The server keeps the last ``window`` triples, (5), and averages the models, (6)::

        H = sum_j a_j h_j,   c' = sum_j a_j (g_j - h_j w^_j) + H w_t                                             (1)
        grad f(w) + B (c' + H (w - w_t)) + mu (w - w_t)                                                          (2)
        p_t grad f(w) + (1 - p_t) (c' + H (w - w_t)) + mu (w - w_t)                                              (3)
        g = grad f(w^),   h = diag of the Hessian of f(w^) or its estimate                                       (4)
        triples+ = the last ``window`` of triples and (g_i, h_i, w^_i) of the participants i                     (5)
        w_{t+1} = w_t + eta_g mean_i (w_{t,i,K} - w_t)                                                           (6)

    Sending two vectors is exact, ``sum_j a_j grad F_j(w) = c' + H (w - w_t)``. The first round has no past. B is ``B_head`` on
    the last layer and ``B_below`` on the layer or stage below it (``top``) or on everything below it (``full``).

    Not given in the paper and chosen here: a_j = 1/n rather than 1, the window counts triples, the last stage is that of
    the last weight matrix before the head, 10 probes, single-sample gradients in the Fisher information (``fisher_group`` > 1
    squares those of batches). BatchNorm's statistics are the broadcast ones.

    References:
        Guo, Lin and Tang 2021. Towards Federated Learning on Time-Evolving Heterogeneous Data.
    """

    class Settings(ContinualSettings):
        name: str = "cfl_regularization"
        curvature: Literal["fisher", "hutchinson", "exact"] = Field(
            "hutchinson", description="h: empirical Fisher information; Hutchinson's estimate; the Hessian's diagonal"
        )
        probes: int = Field(10, ge=1, description="Rademacher vectors of hutchinson")
        fisher_group: int = Field(1, ge=1, description="samples whose mean gradient fisher squares")
        clamp: bool = Field(False, description="treat negative curvatures as zero")
        expand_at: Literal["final", "received"] = Field("final", description="w^: the client's own model or w_t")
        layers: Literal["top", "full"] = Field(
            "top", description="top: the last layer and the layer or stage below it; full: all"
        )
        B_head: float = Tunable(1.0, low=0.01, high=10.0, log=True, ge=0, description="weight B on the last layer")
        B_below: float = Tunable(0.1, low=0.001, high=1.0, log=True, ge=0, description="weight B below it")
        past: Literal["layer", "lemma"] = Field("layer", description="weight of the past: B, or by Lemma B.4")
        D2: float = Field(1.0, ge=0, description="lemma: time drift D^2")
        R2: float = Field(1.0, ge=0, description="lemma: information loss R^2")
        mu: float = Field(0.0, ge=0, description="strength of FedProx's term")
        window: int | None = Field(40, ge=1, description="triples kept; null: all")
        reduce: Literal["mean", "sum"] = Field("mean", description="a_j: 1/n or 1")

    settings: Settings

    down: Sequence[str] = ("w", "c", "H")
    up: Sequence[str] = ("W", "g", "h")

    def bind(self, problem: Problem) -> None:
        """B on the regularized parameters, which are the last d' ones."""
        super().bind(problem)
        s, layout, head = self.settings, problem.layout, problem.layout.mask("head")
        self.first = 0 if s.layers == "full" else _stage(layout, int(head.nonzero()[0]))
        below = torch.full((layout.size - self.first,), s.B_below, dtype=torch.float64, device=head.device)
        self.B = below.masked_fill(head[self.first :], s.B_head)
        if s.curvature == "exact" and len(self.B) > _EXACT:
            raise SettingsError(
                f"algorithm.curvature = 'exact': {len(self.B)} parameters require as many Hessian-vector products; "
                f"the largest feasible number is {_EXACT}; use 'hutchinson'"
            )

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        return super().width(name, layout, extra) - self.first

    def extra(self) -> dict[str, Tensor]:
        """Float64 ``sums`` of the window's pairs (g - h w^, h) [2, d'], those ``kept`` to be subtracted, and their number.

        ``uploads``: the pairs of all visits, for the measurement.
        """
        none = torch.zeros(0, 2, len(self.B))
        sums, triples = none.sum(0, dtype=torch.float64), torch.zeros((), dtype=torch.int64)
        return {**super().extra(), "sums": sums, "kept": none, "triples": triples, "uploads": none.clone()}

    def local(self, r: Round) -> Local:
        """The past as a linear term and a pull toward w_t."""
        s = self.settings
        if int(r.extra["triples"]) == 0:
            return Local(pull=s.mu, toward=r.w) if s.mu else Local()
        p = present_weight(r.t + 1, s.D2, s.R2) if s.past == "lemma" else None  # p_t, Lemma B.4, (3)
        B = self.B.to(r.w) if p is None else 1 - p  # (2) or (3)
        c, H = self.combined(r.extra, r.w)
        linear, pull = torch.zeros_like(r.w), torch.full_like(r.w, s.mu)
        linear[self.first :] = B * c  # B c', (2) or (3)
        pull[self.first :] += B * H  # B H + mu, (2) or (3)
        return Local(linear=linear, pull=pull, toward=r.w, scale=p)  # (2) or (3)

    def combined(self, extra: dict[str, Tensor], w: Tensor) -> tuple[Tensor, Tensor]:
        """c' and H [d'] around the model ``w`` [d]: (1)."""
        a = 1 / max(1, int(extra["triples"])) if self.settings.reduce == "mean" else 1.0
        shift, H = a * extra["sums"].to(w.device)  # sum_j a_j (g_j - h_j w^_j), sum_j a_j h_j
        return (shift + H * w[self.first :]).to(w.dtype), H.to(w.dtype)  # (1)

    def finish(self, r: Round) -> Tensor:
        """The participants' triples enter the window, in client order; then FedAvg."""
        expanded_at = r.W if self.settings.expand_at == "final" else r.w.expand_as(r.W)  # w^
        g, h = self.expansion(r, expanded_at)  # (4)
        pairs = torch.stack([g - h * expanded_at[:, self.first :], h], 1)
        _push(r.extra, pairs, self.settings.window)  # (5)
        self.visit(r)
        if self.settings.measure_every:  # every visit's pair counts, also beyond the window
            r.extra["uploads"] = torch.cat([r.extra["uploads"].to(pairs), pairs])
        return super().finish(r)  # (6)

    def expansion(self, r: Round, at: Tensor) -> tuple[Tensor, Tensor]:
        """g and h, [C, d'] each, of the participants' losses ``at`` [C, d]: (4)."""
        s = self.settings
        if s.curvature == "fisher":
            g = r.services.full_gradient(at)[:, self.first :]  # (4)
            h = r.services.fisher_diagonal(at, s.fisher_group, self.first)  # (4)
        else:
            g, h = r.services.taylor(at, s.probes if s.curvature == "hutchinson" else None, self.first)  # (4)
        return g, h.clamp(min=0) if s.clamp else h

    def remembered(self, r: Round, visits: list[tuple[int, int]]) -> Tensor:
        """grad F(w_t) = g + h (w_t - w^)."""
        shift, h = r.extra["uploads"].unbind(1)
        found = torch.full((len(visits), len(r.w)), torch.nan, dtype=r.w.dtype, device=r.w.device)
        found[:, self.first :] = shift + h * r.w[self.first :]
        return found


def present_weight(t: int, D2: float, R2: float) -> float:
    """p_t of Lemma B.4 in round t = 1, 2, ...; the past shares 1 - p_t equally.

    ``p_t = ((t-1) R^2 + D^2) / (t D^2 + (t-1) R^2)``, the minimizer of ``R^2 (sum_{tau<t} p_tau)^2 + D^2 sum_{tau<=t} p_tau^2``
    among weights that sum to one; 1/t without information loss, 1 without drift (then the past adds nothing).
    """
    if D2 == 0:
        return 1.0
    return ((t - 1) * R2 + D2) / (t * D2 + (t - 1) * R2)


def _stage(layout: Layout, head: int) -> int:
    """First parameter of the stage below the head: that of the last weight matrix; the head if there is none."""
    below = [slot.name.split(".") for slot in layout.parameters if slot.start < head and len(slot.shape) > 1]
    names = below[-1][:-1] if below else ["head"]
    starts = [_first(layout, names[:depth]) for depth in range(min(2, len(names)), len(names) + 1)]
    return next((start for start in starts if start), starts[0])  # a stage that is the whole network is divided further


def _first(layout: Layout, names: list[str]) -> int:
    """First parameter below a module."""
    return next(slot.start for slot in layout.parameters if slot.name.startswith(".".join([*names, ""])))


def _push(extra: dict[str, Tensor], new: Tensor, window: int | None) -> None:
    """Add rows [C, *shape] and drop the oldest beyond the ``window``; without one nothing has to be kept."""
    kept, count = extra["kept"].to(new), int(extra["triples"]) + len(new)
    sums = extra["sums"].to(new.device) + new.sum(0, dtype=torch.float64)
    if window is not None:
        kept = torch.cat([kept, new])
        sums -= kept[:-window].sum(0, dtype=torch.float64)
        kept, count = kept[-window:].clone(), min(count, window)
    extra |= {"sums": sums, "kept": kept, "triples": torch.tensor(count)}
