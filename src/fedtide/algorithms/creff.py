"""CReFF."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.algorithms._head_training import minimised, trained_head
from fedtide.algorithms.base import Algorithm, AlgorithmSettings, Extra, ForwardPass, Layout, Problem, Round


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

    admits = ("rules",)
    needs = ("linear_head",)
    needs_classes = True

    server = ("average",)
    down = ("w", "head")
    up = ("W", "head_gradients")

    # A client.

    def start(self, r: Round) -> Tensor:
        """FedAvg's model, with FedAvg's head."""
        return r.server.average if r.session.round else r.w

    def head_gradients(self, r: Round) -> list[Tensor]:
        """Step 1, what each client sends: [L, L, q + 1], of h_r on the features that the body it has received gives."""
        return [_gradients(seen, *_head(r, r.w)) for seen in r.services.forward(self.start(r))]

    # The server.

    def finish(self, r: Round) -> Tensor:
        """FedAvg, then a new head from what the clients have sent."""
        s, (weight, bias) = self.settings, _head(r, r.w)  # h_r
        g_real = _mean_over_clients(self.head_gradients(r), r.label_counts)  # step 2
        F = r.extra["features"] if r.extra["features"].numel() else self._drawn(r, weight)
        F = minimised(mismatch, F, weight, bias, g_real, steps=s.match_steps, rate=s.match_lr)  # step 3
        head = trained_head(F, self._passes(r, F), s.head_batch, s.head_lr)  # step 4
        r.extra["features"], r.server.average = F, r.average()
        model = r.server.average.clone()
        for part, values in zip(_head(r, model), head, strict=True):
            part.copy_(values)
        return model

    # What is kept and what is sent.

    def bind(self, problem: Problem) -> None:
        super().bind(problem)
        self.head_size = int(problem.layout.mask("head").sum())

    def extra(self) -> dict[str, Tensor]:
        """The features F, drawn in the first round: q is not known before."""
        return {"features": torch.zeros(0)}

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        """The head, and its gradient for each class."""
        sizes = {"head": self.head_size, "head_gradients": self.problem.classes * self.head_size}
        return sizes.get(name, super().width(name, layout, extra))

    def _drawn(self, r: Round, weight: Tensor) -> Tensor:
        """The first F, standard normal."""
        classes, width = weight.shape
        rng = self.problem.randomness.generator("creff.features")
        return torch.from_numpy(rng.standard_normal((classes, self.settings.per_class, width))).to(weight)

    def _passes(self, r: Round, F: Tensor) -> Iterator[Tensor]:
        """Orders of the features for a new head."""
        rng = self.problem.randomness.generator("creff", r.t)
        for _ in range(self.settings.head_epochs):
            yield torch.from_numpy(rng.permutation(F.shape[0] * F.shape[1]))


def _head(r: Round, w: Tensor) -> tuple[Tensor, Tensor]:
    """Weight [L, q] and bias [L] of the last layer, views of ``w``."""
    named = r.problem.layout.named(w)
    return named["head.weight"], named["head.bias"]


def _gradients(seen: ForwardPass, weight: Tensor, bias: Tensor) -> Tensor:
    """Mean gradient of a head's cross-entropy over the samples of each class: [L, L, q + 1], zero without samples."""
    own = functional.one_hot(seen.labels, len(bias)).to(weight)
    wrong = torch.softmax(functional.linear(seen.features, weight, bias), 1) - own
    x = functional.pad(seen.features, (0, 1), value=1.0)
    return torch.einsum("nc,nl,nq->clq", own / own.sum(0).clamp(min=1), wrong, x)


def _mean_over_clients(gradients: list[Tensor], counts: Tensor) -> Tensor:
    """Per class over the clients that have it; zero where none has."""
    holders = (counts > 0).sum(0).clamp(min=1).view(-1, 1, 1)
    return torch.stack(gradients).sum(0) / holders


def mismatch(F: Tensor, weight: Tensor, bias: Tensor, g_real: Tensor) -> Tensor:
    """Sum of 1 - cos(g_syn, g_real), up to a constant, over the classes known, rows of the weight, and the bias as one row."""
    known = g_real.flatten(1).any(1)
    wrong = torch.softmax(functional.linear(F, weight, bias), -1) - torch.eye(len(F)).to(F).unsqueeze(1)
    g_syn = torch.einsum("cml,cmq->clq", wrong, functional.pad(F, (0, 1), value=1.0)) / F.shape[1]
    cosines = functional.cosine_similarity(g_syn[..., :-1], g_real[..., :-1], dim=-1).sum(1)
    cosines = cosines + functional.cosine_similarity(g_syn[..., -1], g_real[..., -1], dim=-1)
    return -torch.where(known, cosines, 0.0).sum()
