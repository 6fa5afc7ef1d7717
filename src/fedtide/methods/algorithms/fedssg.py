"""FedSSG."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Local,
    Round,
    RunPreview,
    ServerVector,
    Tunable,
)
from fedtide.settings.choices import WeightingChoice, choice_field

_LATE = 0.65
"""Share of the first learning rate that is left in the last round; a run that ended at 0.55 was stable, one at 0.74 was not."""


class FedSsg(Algorithm):
    """Drift memories gated by how often a client was drawn, relative to expectation (Zhou et al. 2025).

    With ``k_i`` the rounds client i has taken part in (this one included), ``alpha_i = alpha / omega_i`` (omega_i: relative
    size) and K the local steps of a client of mean size, client i minimizes (1), then::

        f_i + alpha_i <h_i, theta - (w - h_i)> + <theta, c / omega_i - c_i>                                         (1)
        Delta_i = (gate_i + beta) (theta_i - w),   h_i+ = h_i + Delta_i                                             (2)
        c_i+ = c_i - c / omega_i - Delta_i / (K eta_0),   c+ = c + 1/N sum_S omega_i (c_i+ - c_i)                   (3)

    The paper describes the method three times; ``variant`` chooses among:

    =========== ================= ==== ============================================ =============================
    variant     gate_i            beta penalty                                      w+
    =========== ================= ==== ============================================ =============================
    released    k_i / (T p)       1    alpha_i <h_i, theta>                         mean_S theta_i + mean_N h_i
    main_text   k_i / (t p)       0    (alpha_i gate_i / 2) |theta - (w - h_i)|^2   mean_S theta_i + mean_N h_i
    algorithm_1 k_i N / (T |S|)   0    alpha_i <h_i, theta>                         mean_S (theta_i + h_i)
    =========== ================= ==== ============================================ =============================

    The main text has no gradient correction, and its weight is the gate alone (``alpha: 1``). Algorithm 1 divides the sum over
    S by N, which would shrink the model every round; eq. 28 is used instead. All variants divide control variates by K eta_0
    (undecayed) as the released code does, not by Algorithm 1's E eta. ``gate``, ``penalty`` and ``correction`` are the parts
    that the ablation (Table 6) switches off. T is fixed in advance: for a run that is cut short, set ``horizon`` to the planned
    rounds. Local momentum, which the paper does not use, enlarges the control variates.

    References:
        Zhou et al. 2025. FedSSG: Expectation-Gated and History-Aware Drift Alignment for Federated Learning.
    """

    class Settings(AlgorithmSettings):
        name: str = "fedssg"
        weighting: WeightingChoice = choice_field("uniform", "how participants are weighted")
        variant: Literal["released", "main_text", "algorithm_1"] = Field(
            "released",
            description="the released code; the rule of the main text; Algorithm 1 with the server of eq. 28",
        )
        alpha: float = Tunable(0.05, low=1e-3, high=1.0, log=True, ge=0, description="strength of the penalty")
        beta: float | None = Field(None, ge=0, description="added to the gate; null: 1 for released, 0 otherwise")
        horizon: int | None = Field(None, ge=1, description="T of the gate; null: the rounds of the run")
        gate: bool = Field(True, description="false: a gate of 0, so that beta alone scales the memory")
        penalty: bool = Field(True, description="pull toward the drift memory")
        correction: bool = Field(True, description="correct gradients by the control variates (updated either way)")

    settings: Settings

    server = (ServerVector("h_mean", mean_of="h"), ServerVector("c", mean_of="c_k", by_size=True))
    client = ("h", "c_k")
    down: Sequence[str] = ("w", "c")
    up: Sequence[str] = ("W", "c_k")
    models = ("global", "participants", "all")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.beta = float(settings.variant == "released") if settings.beta is None else settings.beta
        self.corrects = settings.correction and settings.variant != "main_text"
        self.optimizer = "sgd" if self.corrects else "any"
        if not self.corrects:  # no control variate is sent
            self.down, self.up = ("w",), ("W",)

    def gate(self, r: Round) -> Tensor:
        """gate_i [C, 1]: participations over those expected."""
        s, (k, p) = self.settings, r.services.participations()
        T = self.problem.rounds if s.horizon is None else s.horizon
        if not s.gate:
            return torch.zeros_like(k)
        expected = {
            "released": T * p,
            "main_text": (r.t + 1) * p + 1e-6,  # eq. 5
            "algorithm_1": T * len(r.ids) / r.population,
        }
        return k / expected[s.variant]

    def local(self, r: Round) -> Local:
        """The gradient of what (1) adds: of the penalty, and the correction c / omega_i - c_i."""
        h, alpha = r.client.h, self.settings.alpha / r.omega
        correction = r.server.c / r.omega - r.client.c_k if self.corrects else None
        if not self.settings.penalty:
            return Local(linear=correction)
        if self.settings.variant == "main_text":
            return Local(pull=alpha * self.gate(r), toward=r.w - h)  # eq. 8
        return Local(linear=alpha * h if correction is None else alpha * h + correction)

    def finish(self, r: Round) -> Tensor:
        delta = (self.gate(r) + self.beta) * (r.W - r.w)  # (2)
        r.move("c_k", -r.server.c / r.omega - delta / (r.mean_steps * r.local.lr))  # (3)
        r.move("h", delta)
        memory = r.mean(r.client.h) if self.settings.variant == "algorithm_1" else r.server.h_mean  # eq. 28
        return r.average() + memory

    def record(self, r: Round) -> dict[str, Tensor | float]:
        return {"gate": self.gate(r)}

    def advice(self, run: RunPreview) -> list[str]:
        s, strength = self.settings, self.settings.alpha / run.smallest
        if s.variant == "main_text":  # the gate starts at 1 / p
            weight = strength / run.participation_fraction
            return [
                f"algorithm.variant main_text: the penalty's weight starts at alpha / (omega p) = {weight:.3g}: the "
                "proximal step diverges"
            ] * (s.gate and s.penalty and run.lr * weight >= 2)
        left = run.last_lr / run.lr
        return [
            f"the gate approaches {1 + self.beta:g} while the learning rate is still {left:.0%} of its initial value: "
            "short runs of this kind have degraded toward their end; let local.lr decay faster"
        ] * (s.gate and self.beta >= 1 and left > _LATE)
