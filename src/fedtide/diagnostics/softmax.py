"""Softmax regression on the clients of one session: losses, gradients and constants in closed form (float64)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core.randomness import generator


class SoftmaxProblem:
    """F(M) = sum_k p_k F_k(M), p_k = D_k / D, with F_k the mean cross-entropy of ``M (x, 1)`` on client k.

    Args:
        inputs: samples of each client, float64 [D_k, f].
        labels: int64 [D_k].
        classes: L; M is [L, f + 1], the last column being the bias.
    """

    def __init__(self, inputs: Sequence[Tensor], labels: Sequence[Tensor], classes: int) -> None:
        self.classes = classes
        self.labels = list(labels)
        self.features = [functional.pad(part, (0, 1), value=1.0) for part in inputs]
        self.sizes = torch.tensor([len(part) for part in labels], dtype=torch.float64)
        self.weights = self.sizes / self.sizes.sum()

    def loss(self, m: Tensor) -> float:
        """F(M)."""
        parts = [
            functional.cross_entropy(x @ m.T, y, reduction="sum")
            for x, y in zip(self.features, self.labels, strict=True)
        ]
        return float(torch.stack(parts).sum() / self.sizes.sum())

    def gradients(self, m: Tensor) -> Tensor:
        """grad F_k(M) of every client, [K, L, f + 1]."""
        return torch.stack(
            [self._residuals(m, x, y).T @ x / len(y) for x, y in zip(self.features, self.labels, strict=True)]
        )

    def gradient(self, gradients: Tensor) -> Tensor:
        """grad F = sum_k p_k grad F_k, [L, f + 1]."""
        return torch.einsum("k,klf->lf", self.weights, gradients)

    def dissimilarity(self, gradients: Tensor) -> float:
        """zeta_2 at one point with zeta_1 = 1: sum_k p_k |grad F_k|^2 - |grad F|^2 >= 0."""
        own = gradients.flatten(1).square().sum(1)
        return float(self.weights @ own - self.gradient(gradients).square().sum())

    def smoothness(self) -> float:
        """beta = max_k 1/2 lambda_max((1/D_k) sum x x^T), the bias being a constant feature.

        An upper bound for every F_k: the Hessian is the mean of (diag(p) - p p^T) (x) x x^T, whose first factor is at most
        1/2; attained by two classes of probability 1/2.
        """
        return max(
            0.5 * float(torch.linalg.eigvalsh((x @ x.T if len(x) < x.shape[1] else x.T @ x) / len(x))[-1])
            for x in self.features
        )

    def scatter(self) -> Tensor:
        """sum_d |d - mean|^2 over the samples of every client, [K]; sigma^2 as the last step of the analysis needs it."""
        return torch.stack([(x - x.mean(0)).square().sum() for x in self.features])

    def lipschitz(self, m: Tensor, pairs: int, seed: int) -> float:
        """Lower bound of Theta: largest |grad f(M, d) - grad f(M, d')| / |d - d'| over sampled pairs of a client.

        Only pairs with the same label: equal features with different labels would make it infinite.

        Args:
            m: [L, f + 1].
            pairs: number drawn per client; those with different labels or equal features are skipped.
            seed: of the draw.
        """
        highest = 0.0
        for client, (x, y) in enumerate(zip(self.features, self.labels, strict=True)):
            drawn = generator(seed, "diagnose.pairs", client).integers(0, len(y), (2, pairs))
            a, b = torch.from_numpy(drawn)
            r = self._residuals(m, x, y)
            # |r x^T - r' x'^T|^2 without the matrices
            own = r.square().sum(1) * x.square().sum(1)
            square = own[a] + own[b] - 2 * (r[a] * r[b]).sum(1) * (x[a] * x[b]).sum(1)
            distance = (x[a] - x[b]).square().sum(1)
            usable = (y[a] == y[b]) & (distance > 0)
            if usable.any():
                ratio = square[usable].clamp(min=0) / distance[usable]
                highest = max(highest, float(ratio.max().sqrt()))
        return highest

    def _residuals(self, m: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return functional.softmax(x @ m.T, dim=1) - functional.one_hot(y, self.classes)
