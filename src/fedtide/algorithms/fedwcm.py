"""FedWCM."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from fedtide.algorithms._imbalance import Imbalance
from fedtide.algorithms.base import Round
from fedtide.algorithms.fedcm import FedCm, MomentumSettings
from fedtide.core.errors import SettingsError
from fedtide.privacy.base import NUMBER
from fedtide.privacy.factory import Way, histograms
from fedtide.settings.choices import WeightingChoice


class WeightedMomentumSettings(MomentumSettings):
    """Settings of FedWCM and FedWCM-X."""

    weighting: WeightingChoice = Field("uniform", description="what the softmax of the scores multiplies")  # type: ignore[assignment]
    alpha0: float = Field(0.1, gt=0, le=1, description="weight of the gradient in the first round")
    score: Literal["abs", "scarce"] = Field(
        "abs", description="a sample scores |target - p| of its class (eq. 3), or only what the class lacks"
    )
    target: tuple[float, ...] | None = Field(None, description="class frequencies aimed at; default uniform")
    label_histogram: Way = Field(
        "plain",
        description="how clients tell the server their summed class counts: in the clear, under masks, or encrypted (extra he)",
    )
    alpha_argument: Literal["discrepancy", "temperature", "per_client"] = Field(
        "discrepancy", description="x of alpha = 0.1 + 0.9 (1 - e^-x) q: L1, T / L, or L L1 / K"
    )

    @field_validator("target")
    @classmethod
    def _simplex(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and (min(value, default=-1) < 0 or abs(sum(value) - 1) > 1e-6):
            raise SettingsError(f"should be non-negative and sum to 1, got {list(value)}")
        return value


class FedWcm(FedCm):
    """Weighted client momentum for long-tailed data: FedCM with score-based weights and an adaptive alpha.

    All clients' class frequencies p and a target give scores s_k (eq. 3, 4), weights ``w_k ~ exp(s_k / T)`` (eq. 5) and
    ``alpha+ = clamp(0.1 + 0.9 (1 - e^-L1) q, 0.1, 1)``, q being the participants' mean score over everybody's. Exactly
    balanced data give FedCM with alpha 0.1.

    The paper leaves T open: ``T = 1 / (L L1)`` for L classes keeps s_k / T free of scale and makes balanced data FedCM, as
    its appendix demands. Its Delta_k has the wrong sign (the server would ascend); here ``u_k = x - y_k`` as in FedCM.
    "A higher score means scarcer data" is false for eq. 3, whose head classes score most: ``score: scarce`` is what the text
    means. Class histograms are exchanged once per session, among those present in its first round (``label_histogram``); the
    ledger counts the bytes in that round, the cost model neither their seconds nor joules.
    """

    class Settings(WeightedMomentumSettings):
        """Settings of FedWCM."""

        name: str = "fedwcm"

    settings: Settings

    down = ("w", "Delta", "alpha")

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.histograms = histograms(settings.label_histogram)

    def extra(self) -> dict[str, Tensor]:
        """alpha_0, and the summed class counts.

        Raises:
            SettingsError: the target has another number of classes than the data.
        """
        target, classes = self.settings.target, self.problem.classes
        if target is not None and len(target) != classes:
            raise SettingsError(f"algorithm.target: {len(target)} frequencies, but the data have {classes} classes")
        return {
            "alpha": torch.tensor(self.settings.alpha0, dtype=torch.float64),
            "histogram": torch.zeros(classes, dtype=torch.float64),
        }

    def alpha(self, r: Round) -> float:
        """alpha_r."""
        return float(r.extra["alpha"])

    def imbalance(self, r: Round) -> Imbalance:
        """Of the clients present."""
        counts, target = r.services.population_counts(), self.settings.target
        share = torch.full_like(counts[0], 1 / counts.shape[1]) if target is None else counts.new_tensor(target)
        return Imbalance.of(counts, share, self.settings.score, r.extra["histogram"])

    def weights(self, r: Round) -> Tensor:
        """Weights of the participants; the clients present exchange histograms in the first round of a session."""
        if r.session_round == 0:
            counts = r.services.population_counts().to(torch.int64).numpy()
            summed = self.histograms.total(counts, r.randomness.seed, r.session)
            r.extra["histogram"] = torch.from_numpy(summed.astype("float64"))
        data = self.imbalance(r)
        s = data.score(r.label_counts)
        return self.weigh(torch.softmax(s / data.T, 0).unsqueeze(1).to(r.weights), r.weights)

    def weigh(self, softmax: Tensor, prior: Tensor) -> Tensor:
        """Weights [C, 1] from the softmax of the scores (eq. 5) and the weighting."""
        w = softmax * prior
        return w / w.sum()

    def finish(self, r: Round) -> Tensor:
        """FedCM's server, alpha of the next round."""
        data = self.imbalance(r)
        s = data.score(r.label_counts)
        L, K = len(data.p), r.population
        x = {"discrepancy": data.L1, "temperature": data.T / L, "per_client": L * data.L1 / K}
        alpha = 0.1 + 0.9 * (1 - math.exp(-x[self.settings.alpha_argument])) * data.q(s)
        r.extra["alpha"] = torch.tensor(min(max(alpha, 0.1), 1.0), dtype=torch.float64)
        return super().finish(r)

    def session_traffic(self, clients: int) -> tuple[int, int]:
        """The histograms; where they are hidden, clients send their scores too."""
        up, down = self.histograms.traffic(clients, self.problem.classes)
        return up + clients * NUMBER * self.histograms.hides, down

    def payload(self, name: str) -> int:
        """alpha is one number."""
        return 1 if name == "alpha" else super().payload(name)
