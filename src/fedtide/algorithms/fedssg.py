"""FedSSG."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.algorithms.base import Algorithm, AlgorithmSettings, Local, Round, RunPreview, ServerVector, Tunable
from fedtide.settings.choices import WeightingChoice

_LATE = 0.65
"""Of the first learning rate in the last round; a run that ended at 0.55 was stable, one at 0.74 was not."""


class FedSsg(Algorithm):
    """Drift memories gated by how often a client was drawn, against expectation (Zhou et al. 2025).

    With ``k_i`` the rounds client i took part in (this one included), ``gate_i = k_i / (T p)`` and ``q_i = gate_i + beta``:

        minimise f_i + alpha_i <h_i, theta - (w - h_i)> + <theta, c / omega_i - c_i>,  Delta_i = q_i (theta_i - w)
        c_i+ = c_i - c / omega_i - Delta_i / (K eta),  c+ = c + 1/N sum_S omega_i (c_i+ - c_i)
        h_i+ = h_i + Delta_i,  w+ = mean_S theta_i + mean_N h_i

    The defaults are the released program, which departs from the text: gate T p (Alg. 1: T |S| / N, Eq. 5: t p), beta 1
    (text: 0), an inner product that the gate does not touch (Eq. 8: a proximal term whose weight is the gate; set alpha 1),
    K steps of a mean-sized client (text: E), the undecayed eta, ``alpha_i = alpha / omega_i``, and the mean memory of all
    N clients at the server (Eq. 28: of the participants; Alg. 1 divides their sum by N). T is fixed in advance: a run cut
    short is another algorithm, unless ``horizon`` says what was planned. Neither text nor program uses local momentum, which
    would enlarge the variates.
    """

    class Settings(AlgorithmSettings):
        """Settings of FedSSG."""

        name: str = "fedssg"
        weighting: WeightingChoice = Field("uniform", description="how participants are weighted")  # type: ignore[assignment]
        alpha: float = Tunable(0.05, low=1e-3, high=1.0, log=True, ge=0, description="strength of the penalty")
        beta: float = Field(1.0, ge=0, description="added to the gate: 1 in the released program, 0 in the text")
        gate: Literal["T_p", "T_S", "t_p", "none"] = Field(
            "T_p", description="participations over: T p; T |S| / N; t p so far; none: a gate of 0"
        )
        horizon: int | None = Field(None, ge=1, description="T of the gate; null: the rounds of the run")
        gate_clip: bool = Field(False, description="limit the gate to [0, 1]")
        penalty: Literal["inner", "prox", "none"] = Field(
            "inner", description="inner: alpha <h, theta>; prox: (alpha/2) |theta - (w - h)|^2"
        )
        penalty_gated: bool = Field(False, description="multiply the penalty by the gate (Eq. 8)")
        correction: bool = Field(True, description="correct gradients by the control variates (kept either way)")
        correction_scale: Literal["K", "E"] = Field("K", description="variates divide by K eta, or E eta (text)")
        server: Literal["code", "eq28", "alg1"] = Field(
            "code", description="w+: mean_S theta + mean_N h; mean_S (theta + h); (1/N) sum_S (theta + h)"
        )
        control_lr: Literal["initial", "current"] = Field("initial", description="eta of the variates: lr0 or lr")

    settings: Settings

    server = (ServerVector("h_mean", mean_of="h"), ServerVector("c", mean_of="c_k", by_size=True))
    client = ("h", "c_k")
    down = ("w", "c")
    up = ("W", "c_k")
    models = ("cloud", "participants", "all")

    def gate(self, r: Round) -> Tensor:
        """gate_i [C, 1]: participations over expected ones."""
        s, p = self.settings, r.participation_fraction
        T = r.rounds if s.horizon is None else s.horizon
        if s.gate == "none":
            return torch.zeros_like(r.counts)
        expected = {"T_p": T * p, "T_S": T * len(r.ids) / r.population, "t_p": (r.t + 1) * p + 1e-6}
        gate = r.counts / expected[s.gate]
        return gate.clamp(max=1) if s.gate_clip else gate

    def local(self, r: Round) -> Local:
        """alpha_i h_i (or alpha_i (theta - w + h_i)) + c / omega_i - c_i."""
        s, h = self.settings, r.client.h
        alpha = s.alpha / r.omega * (self.gate(r) if s.penalty_gated else 1)
        correction = r.server.c / r.omega - r.client.c_k if s.correction else None
        if s.penalty == "prox":
            return Local(linear=correction, pull=alpha, towards=r.w - h)
        if s.penalty == "none":
            return Local(linear=correction)
        return Local(linear=alpha * h if correction is None else alpha * h + correction)

    def finish(self, r: Round) -> Tensor:
        """Gated memories and variates of the participants, the server's means, the model."""
        s = self.settings
        delta = (self.gate(r) + s.beta) * (r.W - r.w)
        K = r.mean_steps if s.correction_scale == "K" else r.local.amount
        eta = r.lr0 if s.control_lr == "initial" else r.lr
        change = -r.server.c / r.omega - delta / (K * eta)
        r.client.c_k = r.client.c_k + change
        r.server.c = r.server.c + r.total(r.omega * change) / r.population
        r.client.h = r.client.h + delta
        r.server.h_mean = r.server.h_mean + r.total(delta) / r.population
        if s.server == "alg1":
            return r.total(r.W + r.client.h) / r.population
        return r.mean(r.W) + (r.server.h_mean if s.server == "code" else r.mean(r.client.h))

    def payload(self, name: str) -> int:
        """Without correction no variate need travel."""
        return super().payload(name) if self.settings.correction else 0

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """The gate of every participant."""
        return {"gate": self.gate(r)}

    def advice(self, run: RunPreview) -> list[str]:
        """Known instabilities: explicit steps, early gates, over-relaxed variates, a shrinking model, short runs."""
        s, p, gated = self.settings, run.participation_fraction, self.settings.gate != "none"
        prox, strength, left = s.penalty == "prox", s.alpha / run.smallest, run.last_lr / run.lr
        early = prox and s.penalty_gated and s.gate == "t_p" and not s.gate_clip and run.lr * strength / p >= 2
        known = {
            f"algorithm.gate t_p starts at 1 / p = {1 / p:.3g}: the proximal step diverges": early,
            "algorithm.control_lr current needs beta 0 or gate_clip: the variates' recursion has factor 1 - q": (
                s.correction and s.control_lr == "current" and s.beta > 0 and gated and not s.gate_clip
            ),
            f"algorithm.server alg1 shrinks the model by about p = {p:.3g} in every round": s.server == "alg1"
            and p < 1,
            f"the gate nears {1 + s.beta:g} at {left:.0%} of the first learning rate: short runs of this kind have got worse "
            "towards their end; let local.lr decay faster": gated and s.gate != "t_p" and s.beta >= 1 and left > _LATE,
        }
        return [
            *(run.stiff("alpha / omega", strength) if prox else []),
            *(line for line, holds in known.items() if holds),
        ]
