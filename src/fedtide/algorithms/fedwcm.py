"""FedWCM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from fedtide.algorithms._imbalance import Imbalance, relative_score
from fedtide.algorithms._momentum import ClientMomentum, MomentumSettings
from fedtide.algorithms.base import Round
from fedtide.core.errors import SettingsError
from fedtide.privacy.base import NUMBER
from fedtide.privacy.factory import Protocol, histograms
from fedtide.settings.choices import WeightingChoice, choice_field


class FedWcm(ClientMomentum):
    """Weighted client momentum for long-tailed data: FedCM with score-based weights and an adaptive alpha.

    The class frequencies p of all clients and a target give scores s_k (eq. 3, 4), weights ``w_k ~ exp(s_k / T)`` (eq. 5) and
    ``alpha+ = clamp(0.1 + 0.9 (1 - exp(-L1)) q, 0.1, 1)``, q being the participants' mean score over that of all clients.
    Exactly balanced data give FedCM with alpha 0.1.

    The paper leaves T open: ``T = 1 / (L L1)`` for L classes keeps s_k / T free of scale and makes balanced data FedCM, as
    its appendix demands. Its Delta_k has the wrong sign (the server would ascend); here ``u_k = x - y_k`` as in FedCM.
    "A higher score means scarcer data" is false for eq. 3, under which head classes score most: ``score: scarce`` is what the
    text means. The clients present in a session's first round exchange class histograms once (``label_histogram``); the
    ledger counts the bytes in that round, the cost model neither their seconds nor joules.
    """

    class Settings(MomentumSettings):
        name: str = "fedwcm"
        weighting: WeightingChoice = choice_field("uniform", "what the softmax of the scores is multiplied by")
        alpha0: float = Field(0.1, gt=0, le=1, description="weight of the gradient in the first round")
        score: Literal["abs", "scarce"] = Field(
            "abs", description="a sample scores |target - p| of its class (eq. 3), or only what the class lacks"
        )
        target: tuple[float, ...] | None = Field(None, description="class frequencies aimed at; default uniform")
        label_histogram: Protocol = Field(
            "plain", description="how class counts are summed: in the clear, under masks, or encrypted (extra he)"
        )
        alpha_argument: Literal["discrepancy", "temperature", "per_client"] = Field(
            "discrepancy", description="x of alpha = 0.1 + 0.9 (1 - exp(-x)) q: L1, T / L, or L L1 / K"
        )

        @field_validator("target")
        @classmethod
        def _simplex(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
            if value is not None and (min(value, default=-1) < 0 or abs(sum(value) - 1) > 1e-6):
                raise SettingsError(f"should be non-negative and sum to 1, got {list(value)}")
            return value

    settings: Settings
    needs_classes = True

    down: Sequence[str] = ("w", "Delta", "alpha")

    def __init__(self, settings: Settings) -> None:
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

    def start(self, r: Round) -> Tensor:
        """In the first round of a session the clients present exchange class histograms."""
        if r.session_round == 0:
            counts = r.services.population_counts().to(torch.int64).numpy()
            summed = self.histograms.total(counts, r.randomness, r.session)
            r.extra["histogram"] = torch.from_numpy(summed.astype("float64"))
        return r.w

    def imbalance(self, r: Round) -> Imbalance:
        """Of the clients that have exchanged histograms, against the target."""
        total, target = r.extra["histogram"].cpu(), self.settings.target
        uniform = torch.full_like(total, 1 / len(total))
        return Imbalance.of(total, uniform if target is None else total.new_tensor(target), self.settings.score)

    def weights(self, r: Round) -> Tensor:
        """w_k: the softmax of the scores times the weighting."""
        data = self.imbalance(r)
        softmax = torch.softmax(data.scores(r.label_counts) / data.T, 0)  # eq. 5
        return self.weigh(softmax.unsqueeze(1).to(r.weights), r.weights)

    def weigh(self, softmax: Tensor, prior: Tensor) -> Tensor:
        """Weights [C, 1] from the softmax of the scores and the weighting."""
        w = softmax * prior
        return w / w.sum()

    def finish(self, r: Round) -> Tensor:
        """alpha of the next round, then FedCM's server."""
        data, counts = self.imbalance(r), r.services.population_counts()
        q = relative_score(data.scores(r.label_counts), data.scores(counts[counts.sum(1) > 0]))
        L, K = len(data.p), r.population
        x = {"discrepancy": data.L1, "temperature": data.T / L, "per_client": L * data.L1 / K}
        alpha = 0.1 + 0.9 * (1 - math.exp(-x[self.settings.alpha_argument])) * q
        r.extra["alpha"] = torch.tensor(min(max(alpha, 0.1), 1.0), dtype=torch.float64)
        return super().finish(r)

    def session_traffic(self, clients: int) -> tuple[int, int]:
        """The histograms; where they are hidden, clients send their scores too."""
        up, down = self.histograms.traffic(clients, self.problem.classes)
        return up + clients * NUMBER * self.histograms.hides, down

    def payload(self, name: str) -> int:
        """alpha is one number."""
        return 1 if name == "alpha" else super().payload(name)
