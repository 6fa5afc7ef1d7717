"""FedWCM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms._histograms import NUMBER, Protocol, histograms
from fedtide.methods.algorithms._momentum import ClientMomentum, MomentumSettings
from fedtide.methods.algorithms.base import Extra, Layout, Problem, Round
from fedtide.settings.choices import WeightingChoice, choice_field


class FedWcm(ClientMomentum):
    """FedCM with score-based weights and an adaptive alpha, for long-tailed data (Li et al.).

    With class frequencies p of all clients, a target p^ and their discrepancy ``L1 = sum_c |p^_c - p_c|``, the participants S
    have scores and weights, and their mean score relative to that of all clients sets the next alpha::

        s_k = sum_c delta_c n_kc / n_k,   delta_c = |p^_c - p_c|                                                 (eq. 3)
        w_k = exp(s_k / T) / sum_{j in S} exp(s_j / T)                                                           (eq. 4)
        alpha+ = clamp(0.1 + 0.9 (1 - exp(-L1)) q, 0.1, 1),   q = mean_S s_k / mean s_k                          (eq. 5)

    Local steps and server are FedCM's.

    The paper leaves T open: ``T = 1 / (L L1)`` for L classes keeps s_k / T free of scale and makes balanced data FedCM, as
    its appendix demands. Its Delta_k has the wrong sign (the server would ascend); here ``u_k = x - y_k`` as in FedCM.
    "A higher score means scarcer data" is false for eq. 3, under which head classes score most: ``score: scarce`` is what the
    text means. The clients present in a session's first round exchange class histograms once (``label_histogram``); the
    ledger counts the bytes in that round, the cost model neither their seconds nor joules.

    References:
        Li et al. FedWCM: Unleashing the Potential of Momentum-based Federated Learning in Long-Tailed Scenarios.
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

    admits = ("sums", "rules", "downlink")
    needs_classes = True

    down: Sequence[str] = ("w", "Delta", "alpha")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.histograms = histograms(settings.label_histogram)

    def start(self, r: Round) -> Tensor:
        """x; in the first round of a session the clients present sum up their class counts."""
        if r.session.round == 0:
            r.extra["histogram"] = self.summed_counts(r)
        return r.w

    def alpha(self, r: Round) -> float:
        """alpha_r."""
        return float(r.extra["alpha"])

    def weights(self, r: Round) -> Tensor:
        """w_k [C, 1], times the weighting."""
        data = self.imbalance(r)
        w = torch.softmax(data.scores(r.label_counts) / data.T, 0)  # eq. 4
        return self.weigh(w.unsqueeze(1).to(r.weights), r.weights)

    def weigh(self, w: Tensor, prior: Tensor) -> Tensor:
        """w_k times the weighting [C, 1]."""
        return w * prior / (w * prior).sum()

    def finish(self, r: Round) -> Tensor:
        data, L, K = self.imbalance(r), self.problem.classes, r.population
        x = {"discrepancy": data.L1, "temperature": data.T / L, "per_client": L * data.L1 / K}
        everybody = r.services.population_counts()
        q = relative_score(data.scores(r.label_counts), data.scores(everybody[everybody.sum(1) > 0]))
        alpha = 0.1 + 0.9 * (1 - math.exp(-x[self.settings.alpha_argument])) * q  # eq. 5
        r.extra["alpha"] = torch.tensor(min(max(alpha, 0.1), 1.0), dtype=torch.float64)
        return super().finish(r)

    def imbalance(self, r: Round) -> Imbalance:
        """Of the clients that have summed up their class counts."""
        total, target = r.extra["histogram"].cpu(), self.settings.target
        uniform = torch.full_like(total, 1 / len(total))
        return Imbalance.of(total, uniform if target is None else total.new_tensor(target), self.settings.score)

    # What is kept and what is sent.

    def bind(self, problem: Problem) -> None:
        super().bind(problem)
        target, classes = self.settings.target, problem.classes
        if target is not None and len(target) != classes:
            raise SettingsError(f"algorithm.target: {len(target)} frequencies, but the data have {classes} classes")

    def extra(self) -> dict[str, Tensor]:
        return {
            "alpha": torch.tensor(self.settings.alpha0, dtype=torch.float64),
            "histogram": torch.zeros(self.problem.classes, dtype=torch.float64),
        }

    def summed_counts(self, r: Round) -> Tensor:
        """sum_k n_kc [L], in the clear or not."""
        counts = r.services.population_counts().to(torch.int64).numpy()
        return torch.from_numpy(self.histograms.total(counts, self.problem.randomness, r.session.number)).to(
            torch.float64
        )

    def session_traffic(self, clients: int) -> tuple[int, int]:
        """The histograms; where they are hidden, clients send their scores too."""
        up, down = self.histograms.traffic(clients, self.problem.classes)
        return up + clients * NUMBER * self.histograms.hides, down

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        return 1 if name == "alpha" else super().width(name, layout, extra)


@dataclass(frozen=True)
class Imbalance:
    """How far the data of all clients together are from the target, float64 on the CPU.

    Attributes:
        p, target: [L] class frequencies. delta: [L] what a sample of a class scores. L1: discrepancy, whatever the score.
        T: temperature.
    """

    p: Tensor
    target: Tensor
    delta: Tensor
    L1: float
    T: float

    @staticmethod
    def of(total: Tensor, target: Tensor, score: str) -> Imbalance:
        """From the summed class counts [L]."""
        p = total / total.sum()
        gap = target - p
        delta = gap.abs() if score == "abs" else gap.clamp(min=0)  # eq. 3
        L1 = float(gap.abs().sum())
        return Imbalance(p, target, delta, L1, 1 / (len(p) * L1) if L1 else math.inf)

    def scores(self, counts: Tensor) -> Tensor:
        """s_k [C] of clients with class counts [C, L], none of them empty."""
        n = counts.to(self.delta)
        return n @ self.delta / n.sum(1)  # eq. 3


def relative_score(scores: Tensor, population_scores: Tensor) -> float:
    """q: mean score of a round's participants over that of all clients; one if nobody scores."""
    mean = float(population_scores.mean())
    return float(scores.mean()) / mean if mean else 1.0
