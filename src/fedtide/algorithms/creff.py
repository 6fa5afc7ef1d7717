"""CReFF."""

from __future__ import annotations

from functools import partial

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.algorithms.base import Algorithm, AlgorithmSettings, ForwardPass, Problem, Round
from fedtide.programs.traces import Traced

_TOGETHER = 32
"""Steps of a head that are traced as one program."""


class Creff(Algorithm):
    """Classifier re-training with federated features (Shang et al. 2022); local training is FedAvg's.

    With h_r the re-trained head and F [L, m, q] synthetic features on the server, a round is, beside FedAvg's:

    1. Clients send, for each of their classes, the mean gradient of h_r on the features of their samples.
    2. The server averages these gradients per class over the clients that have it: ``g_real``.
    3. It moves F by gradient steps on ``sum_c 1 - cos(g_syn_c, g_real_c)`` (row by row), ``g_syn`` being the gradient on F.
    4. It trains a new head h_{r+1} on F, which has the same number of features for every class.

    The new model is FedAvg's with the head h_{r+1}; the next round starts from FedAvg's own. Real gradients are means over
    all samples of a class, not over ten draws of 32 augmented ones; a new head starts at zero, which for a convex loss is as
    good as at random. The ledger counts gradients for every class, also those a client lacks.
    """

    class Settings(AlgorithmSettings):
        name: str = "creff"
        per_class: int = Field(100, ge=1, description="synthetic features per class")
        match_steps: int = Field(100, ge=0, description="steps on the features per round")
        match_lr: float = Field(0.1, gt=0, description="learning rate of the features")
        head_epochs: int = Field(300, ge=0, description="passes of a new head over the features")
        head_lr: float = Field(0.01, gt=0, description="learning rate of the head")
        head_batch: int = Field(32, ge=1, description="features per step of the head")

    settings: Settings
    needs_classes = True
    linear_head = True

    server = ("average",)
    down = ("w", "head")
    up = ("W", "head_gradients")

    def bind(self, problem: Problem) -> None:
        """The size of the head."""
        super().bind(problem)
        layout = problem.layout
        self.head_size: int = sum(slot.stop - slot.start for slot in layout.parameters if slot.name.startswith("head."))

    def extra(self) -> dict[str, Tensor]:
        """The features F, drawn in the first round: q is not known before."""
        return {"features": torch.zeros(0)}

    def start(self, r: Round) -> Tensor:
        """FedAvg's model, with FedAvg's head."""
        return r.server.average if r.session_round else r.w

    def finish(self, r: Round) -> Tensor:
        """FedAvg, then the head."""
        weight, bias = _head(r, r.w)
        g = [_gradients(seen, weight, bias) for seen in r.services.forward(self.start(r))]  # step 1
        g_real = _mean_over_clients(g, r.label_counts)  # step 2
        r.extra["features"] = F = self._matched(r, g_real, weight, bias)  # step 3
        r.server.average = r.mean(r.W)
        model = r.server.average.clone()
        for part, values in zip(_head(r, model), self._new_head(F, r), strict=True):  # step 4
            part.copy_(values)
        return model

    def _matched(self, r: Round, g_real: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """F after ``match_steps`` gradient steps."""
        s, F = self.settings, r.extra["features"]
        if not F.numel():
            draw = r.randomness.generator("creff.features").standard_normal((len(bias), s.per_class, weight.shape[1]))
            F = torch.from_numpy(draw).to(weight)
        step = Traced(partial(_step, rate=s.match_lr))
        for _ in range(s.match_steps):
            F = step(F, weight, bias, g_real)
        return F

    def _new_head(self, F: Tensor, r: Round) -> tuple[Tensor, Tensor]:
        """Weight and bias of a head trained on F by SGD."""
        s, classes = self.settings, len(F)
        x = functional.pad(F.flatten(0, 1), (0, 1), value=1.0)
        y = torch.eye(classes, dtype=F.dtype, device=F.device).repeat_interleave(s.per_class, 1)
        theta = torch.zeros(classes, x.shape[1], dtype=F.dtype, device=F.device)
        rng = r.randomness.generator("creff", r.t)
        descend = Traced(partial(_descend, batch=s.head_batch, rate=s.head_lr))
        for _ in range(s.head_epochs):
            order = torch.from_numpy(rng.permutation(len(x))).to(F.device)
            for some in torch.split(order, _TOGETHER * s.head_batch):
                features, labels = x.index_select(0, some), y.index_select(1, some)
                theta = descend(theta, features, labels)
        return theta[:, :-1], theta[:, -1]

    def payload(self, name: str) -> int:
        """The head, and its gradient for each class."""
        sizes = {"head": self.head_size, "head_gradients": self.problem.classes * self.head_size}
        return sizes.get(name, super().payload(name))


def _head(r: Round, w: Tensor) -> tuple[Tensor, Tensor]:
    """Weight [L, q] and bias [L] of the last layer, views of ``w``."""
    named = r.layout.named(w)
    return named["head.weight"], named["head.bias"]


def _gradients(seen: ForwardPass, weight: Tensor, bias: Tensor) -> Tensor:
    """Mean gradient of the cross-entropy of a head over the samples of each class: [L, L, q + 1], zero without samples."""
    own = functional.one_hot(seen.labels, len(bias)).to(weight)
    wrong = torch.softmax(functional.linear(seen.features, weight, bias), 1) - own
    x = functional.pad(seen.features, (0, 1), value=1.0)
    return torch.einsum("nc,nl,nq->clq", own / own.sum(0).clamp(min=1), wrong, x)


def _mean_over_clients(gradients: list[Tensor], counts: Tensor) -> Tensor:
    """Per class over the clients that have it; zero where none has."""
    holders = (counts > 0).sum(0).clamp(min=1).view(-1, 1, 1)
    return torch.stack(gradients).sum(0) / holders


def _descend(theta: Tensor, features: Tensor, labels: Tensor, batch: int, rate: float) -> Tensor:
    """A head [L, q + 1] after a step of SGD for each batch of features [n, q + 1] with labels [L, n]."""
    theta = theta.clone()
    for x, y in zip(torch.split(features, batch), torch.split(labels, batch, 1), strict=True):
        wrong = torch.softmax(theta @ x.T, 0).sub_(y)
        theta.addmm_(wrong, x, alpha=-rate / len(x))
    return theta


def _step(F: Tensor, weight: Tensor, bias: Tensor, g_real: Tensor, rate: float) -> Tensor:
    """F after a gradient step."""
    return F - _slope(F, weight, bias, g_real).mul_(rate)


def _slope(F: Tensor, weight: Tensor, bias: Tensor, g_real: Tensor) -> Tensor:
    """Gradient [L, m, q] of the sum of 1 - cos(g_syn, g_real) over classes, rows of the weight, and the bias as one row."""
    F = F.detach().requires_grad_()
    known = g_real.flatten(1).any(1)
    with torch.enable_grad():
        wrong = torch.softmax(functional.linear(F, weight, bias), -1) - torch.eye(len(F)).to(F).unsqueeze(1)
        g_syn = torch.einsum("cml,cmq->clq", wrong, functional.pad(F, (0, 1), value=1.0)) / F.shape[1]
        agreement = functional.cosine_similarity(g_syn[..., :-1], g_real[..., :-1], dim=-1).sum(1)
        agreement = agreement + functional.cosine_similarity(g_syn[..., -1], g_real[..., -1], dim=-1)
        return torch.autograd.grad(-torch.where(known, agreement, 0.0).sum(), F)[0]
