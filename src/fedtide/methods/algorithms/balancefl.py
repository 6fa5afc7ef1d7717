"""BalanceFL."""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedtide.core.randomness import hashed_uniform
from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import ForwardPass, Round, Term, TermBatch, Tunable


class BalanceFl(Averaging):
    """Local training as if on balanced data (Shuai et al. 2022), averaged as in FedAvg.

    With P the classes that occur in a batch, N the others, z the logits and zT those of the frozen global model, the loss is
    (1), in place of the objective. z~ are the logits of features that are perturbed, with probability
    ``1 - n_y / max_c n_c`` (3), along the client's pooled within-class covariance under the global model (4)::

        CE(z~[P], y) + lambda KD - mu sum_i H(softmax(z_i[P]))                                                      (1)
        KD = - mean_i softmax(zT_i[N] / T) . log softmax(z_i[N] / T)                                                (2)

    The method also samples classes evenly: ``local.order: class_balanced``. The released code draws 500 perturbations once a
    round and uses them in turn; here every sample draws its own.
    """

    class Settings(AveragingSettings):
        name: str = "balancefl"
        strength: float = Tunable(1.0, low=0.1, high=3.0, ge=0, description="weight lambda of the distillation")
        temperature: float = Field(2.0, gt=0, description="temperature T of the distillation")
        entropy: float = Field(0.002, ge=0, description="weight mu of the entropy, summed over a batch")
        spread: float = Field(1.0, ge=0, description="size of the perturbations; 1 for the data's own covariance")

    settings: Settings
    needs_classes = True
    admits = ("sums", "rules", "noise")
    needs = ("linear_head",)

    def terms(self, r: Round) -> list[Term]:
        roots = [_root(_within_class_covariance(seen)).to(r.w) for seen in r.services.forward(r.w)]
        constants = {
            "root": self.settings.spread * torch.stack(roots),
            "chance": 1 - r.label_counts / r.label_counts.amax(1, keepdim=True),  # (3)
        }
        return [Term(self._loss, {"teacher": r.w}, constants=constants, replaces=True)]

    def _loss(self, batch: TermBatch) -> Tensor:
        """(1) of each sample [B]; the entropies are summed over the batch, which takes the mean of this."""
        s, z, y = self.settings, batch.outputs.logits, batch.labels
        own = y.unsqueeze(-1) == torch.arange(z.shape[-1], device=z.device)
        real = torch.ones_like(y, dtype=torch.bool) if batch.real is None else batch.real
        P = (own & real.unsqueeze(-1)).any(0)

        perturbed = functional.log_softmax(_only(P, z + self._shift(batch)), dim=-1)
        CE = -torch.where(own, perturbed, 0.0).sum(-1)
        log_p = functional.log_softmax(_only(P, z), dim=-1)
        H = -torch.where(P, log_p.exp() * log_p, 0.0).sum(-1)
        teacher = functional.softmax(_only(~P, batch.references["teacher"].logits) / s.temperature, dim=-1)
        student = functional.log_softmax(_only(~P, z) / s.temperature, dim=-1)
        KD = -torch.where(P, 0.0, teacher * student).sum(-1)  # (2)
        total: Tensor = CE + s.strength * KD - s.entropy * (real.sum() * H)  # (1)
        return total

    def _shift(self, batch: TermBatch) -> Tensor:
        """z~ - z [B, L]; the last layer is affine, so the perturbation alone goes through it."""
        chance, root = batch.constants["chance"], batch.constants["root"]
        size, width = len(batch.labels), len(root)
        u = hashed_uniform(batch.key, size * (_uniforms(width) + 1)).view(size, -1).to(root.dtype)
        moved = (u[:, -1] < chance[batch.labels]).to(root.dtype)  # (3)
        change = moved.unsqueeze(-1) * (_normal(u[:, :-1], width) @ root)  # (4)
        return batch.head(change) - batch.head(torch.zeros_like(change))


def _only(classes: Tensor, z: Tensor) -> Tensor:
    """Logits whose softmax is that over some ``classes`` (bool [L]) alone."""
    return torch.where(classes, z, torch.finfo(z.dtype).min / 4)


def _within_class_covariance(seen: ForwardPass) -> Tensor:
    """(4): pooled covariance [q, q] of the features within classes, these weighted by their samples; float64.

    A class with a single sample has none.
    """
    features, labels = seen.features.to(torch.float64), seen.labels
    n = torch.bincount(labels, minlength=seen.logits.shape[-1]).to(features)
    sums = torch.zeros(len(n), features.shape[1], dtype=features.dtype)  # on the CPU: a GPU adds in no fixed order
    means = sums.index_add(0, labels.cpu(), features.cpu()).to(features) / n.clamp(min=1).unsqueeze(1)
    away = features - means[labels]
    unbiased = n / (n - 1).clamp(min=1)
    return (away * unbiased[labels].unsqueeze(1)).T @ away / len(labels)


def _root(covariance: Tensor) -> Tensor:
    """Cholesky: R [q, q] with R^T R the covariance, which may be singular, plus a little on the diagonal.

    Not checked, since features that are not finite have to end as a diverged run.
    """
    floor = 1e-10 * covariance.diagonal().mean().clamp(min=1e-30)
    root: Tensor = torch.linalg.cholesky_ex(
        covariance + floor * torch.eye(len(covariance)).to(covariance), upper=True
    ).L
    return root


def _uniforms(width: int) -> int:
    """Uniform numbers that ``width`` normal ones take."""
    return 2 * -(-width // 2)


def _normal(u: Tensor, width: int) -> Tensor:
    """Box and Muller: standard normal numbers [B, width] from uniform ones u [B, 2 h], two from two."""
    first, second = u.chunk(2, 1)
    radius, angle = (-2 * torch.log1p(-first)).sqrt(), 2 * torch.pi * second
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], 1)[:, :width]
