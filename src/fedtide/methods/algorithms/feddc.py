"""FedDC."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._preview import explicit_step
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


class FedDc(Algorithm):
    """Local drift, decoupled and corrected by drift variables and control variates (Gao et al. 2022).

    With its drift h_k, its control variate c_k and ``Delta_k = theta_k - w`` after its local steps, client k minimizes::

        f_k + (alpha_k/2) |theta - (w - h_k)|^2 + <theta, c / omega_k - c_k>                                        (1)
        h_k+ = h_k + Delta_k                                                                                        (2)
        c_k+ = c_k - c / omega_k - Delta_k / (K eta),   c+ = c + 1/N sum_S omega_k (c_k+ - c_k)                     (3)
        w+ = mean_S theta_k + mean_N h_k                                                                            (4)

    The paper writes the correction as ``(Delta_k - Delta) / (K eta)`` of the round before; the recursion of the released code,
    which is used here, is the same with the c of all clients. Also from that code: ``alpha_k = alpha / omega_k`` (omega_k:
    relative size), K the steps of a client of mean size, the undecayed eta (``control_lr: initial``), equal weights. Local
    momentum, which the authors do not use, enlarges the control variates by up to 1 / (1 - momentum).

    References:
        Gao et al. 2022. FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction.
    """

    class Settings(AlgorithmSettings):
        name: str = "feddc"
        weighting: WeightingChoice = choice_field("uniform", "how participants are weighted")
        alpha: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="strength of the pull to w - h_k")
        correction: bool = Field(True, description="gradient correction by control variates; without it, FedDyn")
        control_lr: Literal["initial", "current"] = Field(
            "initial", description="learning rate in the control variates: undecayed, or of the round"
        )

    settings: Settings

    server = (ServerVector("h_mean", mean_of="h"), ServerVector("c", mean_of="c_k", by_size=True))
    client = ("h", "c_k")
    down: Sequence[str] = ("w", "c")
    up: Sequence[str] = ("W", "c_k")
    models = ("global", "participants", "all")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.optimizer = "sgd" if settings.correction else "any"
        if not settings.correction:  # no control variate is sent
            self.down, self.up = ("w",), ("W",)

    def local(self, r: Round) -> Local:
        """alpha_k (theta - w + h_k) + c / omega_k - c_k, the gradient of what (1) adds."""
        s = self.settings
        added = Local(linear=r.server.c / r.omega - r.client.c_k if s.correction else None)
        if s.alpha:
            added.pull, added.toward = s.alpha / r.omega, r.w - r.client.h
        return added

    def finish(self, r: Round) -> Tensor:
        delta = r.W - r.w
        r.move("h", delta)  # (2)
        if self.settings.correction:
            eta = r.local.lr if self.settings.control_lr == "initial" else r.lr
            r.move("c_k", -r.server.c / r.omega - delta / (r.mean_steps * eta))  # (3)
        return r.average() + r.server.h_mean  # (4)

    def advice(self, run: RunPreview) -> list[str]:
        return explicit_step(run, "alpha / omega", self.settings.alpha / run.smallest)
