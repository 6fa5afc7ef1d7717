"""CReFF."""

from collections.abc import Iterable, Iterator
from functools import partial

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Extra, ForwardPass, Layout, Problem, Round
from fedtide.training.programs.traces import Traced


class Creff(Algorithm):
    """Classifier re-training with federated features (Shang et al. 2022); local training is FedAvg's.

    With ``h_r`` the re-trained head and F [L, m, q] the federated features, m synthetic ones per class on the server, one
    round is:

    (1) The server sends FedAvg's model, with FedAvg's own head, and ``h_r``.
    (2) Client k computes, for each class c that it has, the mean gradient ``g_k,c`` of the cross-entropy of ``h_r`` on the
        features that the received body gives for its samples of c.
    (3) It trains the received model as in FedAvg and uploads it with its ``g_k,c``.
    (4) The server averages the models as in FedAvg.
    (5) It averages the gradients per class, over the clients that have the class: ``g_real_c = mean_k g_k,c``.
    (6) It updates F by gradient steps on ``sum_c 1 - cos(g_syn_c, g_real_c)``, with the cosines taken row by row and
        ``g_syn_c`` the mean gradient of the cross-entropy of ``h_r`` on the features ``F_c``.
    (7) It trains a new head ``h_{r+1}`` on F by SGD; F is balanced, with m features per class.
    (8) The new global model is the average (4) with the head ``h_{r+1}``. The next round starts from (4) itself,
        the first round of a session from the global model.

    Real gradients are means over all samples of a class, not over ten batches of 32 augmented ones; a new head starts at zero
    instead of at random. Traffic counts the gradients of all classes, also those that a client lacks.
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
        """(1): FedAvg's model, with FedAvg's head."""
        return r.server.average if r.session.round else r.w  # (1)

    def head_gradients(self, r: Round) -> list[Tensor]:
        """(2): g_k,c of each client and class, [L, L, q + 1] per client: class, row of the head, weight and bias."""
        return [_gradients(seen, *_head(r, r.w)) for seen in r.services.forward(self.start(r))]  # (2)

    # The server.

    def finish(self, r: Round) -> Tensor:
        """(4) to (8): FedAvg, then a new head from the gradients that the clients have sent."""
        s, (weight, bias) = self.settings, _head(r, r.w)  # h_r
        g_real = _mean_over_clients(self.head_gradients(r), r.label_counts)  # (5)
        F = r.extra["features"] if r.extra["features"].numel() else self._drawn(r, weight)
        nearer = Traced(partial(_nearer, s.match_lr))
        for _ in range(s.match_steps):
            F = nearer(F, weight, bias, g_real)  # (6)
        head = trained_head(F, self._passes(r, F), s.head_batch, s.head_lr)  # (7)
        r.extra["features"], r.server.average = F, r.average()  # (4)
        model = r.server.average.clone()
        for part, values in zip(_head(r, model), head, strict=True):
            part.copy_(values)  # (8)
        return model

    # What is kept and what is sent.

    def bind(self, problem: Problem) -> None:
        super().bind(problem)
        self.head_size = int(problem.layout.mask("head").sum())

    def extra(self) -> dict[str, Tensor]:
        """The features F, drawn in the first round: q is not known before."""
        return {"features": torch.zeros(0)}

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        """Sizes sent: the head (1), and its gradient for each class (3)."""
        sizes = {"head": self.head_size, "head_gradients": self.problem.classes * self.head_size}
        return sizes.get(name, super().width(name, layout, extra))

    def _drawn(self, r: Round, weight: Tensor) -> Tensor:
        """The initial F, standard normal."""
        classes, width = weight.shape
        rng = self.problem.randomness.generator("creff.features")
        return torch.from_numpy(rng.standard_normal((classes, self.settings.per_class, width))).to(weight)

    def _passes(self, r: Round, F: Tensor) -> Iterator[Tensor]:
        """(7): random orders of the features, one per epoch of a new head."""
        rng = self.problem.randomness.generator("creff", r.t)
        for _ in range(self.settings.head_epochs):
            yield torch.from_numpy(rng.permutation(F.shape[0] * F.shape[1]))


def _head(r: Round, w: Tensor) -> tuple[Tensor, Tensor]:
    """Weight [L, q] and bias [L] of the last layer, views of ``w``."""
    named = r.problem.layout.named(w)
    return named["head.weight"], named["head.bias"]


def _gradients(seen: ForwardPass, weight: Tensor, bias: Tensor) -> Tensor:
    """(2): mean gradient of a head's cross-entropy over the samples of each class: [L, L, q + 1], zero without samples."""
    own = functional.one_hot(seen.labels, len(bias)).to(weight)
    wrong = torch.softmax(functional.linear(seen.features, weight, bias), 1) - own
    x = functional.pad(seen.features, (0, 1), value=1.0)
    return torch.einsum("nc,nl,nq->clq", own / own.sum(0).clamp(min=1), wrong, x)  # (2)


def _mean_over_clients(gradients: list[Tensor], counts: Tensor) -> Tensor:
    """(5): mean per class over the clients that have it; zero where none has."""
    holders = (counts > 0).sum(0).clamp(min=1).view(-1, 1, 1)
    return torch.stack(gradients).sum(0) / holders  # (5)


def mismatch(F: Tensor, weight: Tensor, bias: Tensor, g_real: Tensor) -> Tensor:
    """(6): sum of 1 - cos(g_syn, g_real), up to a constant.

    The sum is over the classes for which g_real is known, and over the rows of the weight and the bias as one row.
    """
    known = g_real.flatten(1).any(1)
    wrong = torch.softmax(functional.linear(F, weight, bias), -1) - torch.eye(len(F)).to(F).unsqueeze(1)
    g_syn = torch.einsum("cml,cmq->clq", wrong, functional.pad(F, (0, 1), value=1.0)) / F.shape[1]  # (6): g_syn
    cosines = functional.cosine_similarity(g_syn[..., :-1], g_real[..., :-1], dim=-1).sum(1)
    cosines = cosines + functional.cosine_similarity(g_syn[..., -1], g_real[..., -1], dim=-1)
    return -torch.where(known, cosines, 0.0).sum()  # (6)


_TOGETHER = 32
"""Steps of a head that are traced as one program."""


def slope(F: Tensor, weight: Tensor, bias: Tensor, g_real: Tensor) -> Tensor:
    """Gradient of (6) by F."""
    F = F.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(mismatch(F, weight, bias, g_real), F)[0]


def _nearer(rate: float, F: Tensor, *constants: Tensor) -> Tensor:
    return F - slope(F, *constants).mul_(rate)


def trained_head(F: Tensor, passes: Iterable[Tensor], batch: int, rate: float) -> tuple[Tensor, Tensor]:
    """Weight [L, q] and bias [L] after SGD from zero on the cross-entropy over features F [L, m, q], m of each class.

    ``passes``: for each pass over them their order, a permutation of L m.
    """
    classes, per_class, _ = F.shape
    x = functional.pad(F.flatten(0, 1), (0, 1), value=1.0)
    y = torch.eye(classes, dtype=F.dtype, device=F.device).repeat_interleave(per_class, 1)
    theta = torch.zeros(classes, x.shape[1], dtype=F.dtype, device=F.device)
    descend = Traced(partial(_descend, batch=batch, rate=rate))
    for order in passes:
        for some in torch.split(order.to(F.device), _TOGETHER * batch):
            theta = descend(theta, x.index_select(0, some), y.index_select(1, some))
    return theta[:, :-1], theta[:, -1]


def _descend(theta: Tensor, x: Tensor, y: Tensor, batch: int, rate: float) -> Tensor:
    """A head [L, q + 1] after a step for each batch of features x [n, q + 1] with one-hot labels y [L, n]."""
    theta = theta.clone()
    for some, own in zip(torch.split(x, batch), torch.split(y, batch, 1), strict=True):
        wrong = torch.softmax(theta @ some.T, 0).sub_(own)
        theta.addmm_(wrong, some, alpha=-rate / len(some))
    return theta
