"""FedLESAM."""

from typing import Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms._dual import Dual, DualSettings
from fedtide.methods.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Gradient,
    GradientAt,
    Local,
    Round,
    RunPreview,
    Tunable,
)
from fedtide.methods.algorithms.fedsam import radius
from fedtide.methods.algorithms.scaffold import Scaffold


class FedLesam(Algorithm):
    """Locally estimated global perturbation (Fan et al. 2024): sharpness-aware steps with one gradient each.

    Local gradients are taken at ``y + e_k``; x_old_k is the model that client k received when it last took part::

        e_k = rho (x_old_k - x) / |x_old_k - x|          fixed for the round; zero in a client's first                     (1)

    Everything else is the base: FedAvg, SCAFFOLD (FedLESAM-S) or FedDyn in FedSpeed's form (FedLESAM-D). The released code
    indexes a flat vector by tensor and scales SCAFFOLD's correction by FedDyn's coefficient; both are treated as defects.
    """

    class Settings(AlgorithmSettings):
        name: str = "fedlesam"
        base: Literal["fedavg", "scaffold", "feddyn"] = Field("fedavg", description="what the perturbation is added to")
        rho: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="radius rho of the perturbation")
        a: float = Field(0.1, ge=0, description="proximal coefficient of the base feddyn")
        server_lr: float = Field(1.0, gt=0, description="server step size eta_g; the base feddyn has none")

        @model_validator(mode="after")
        def _has_a_server_step(self) -> Self:
            if self.base == "feddyn" and self.server_lr != 1:
                raise SettingsError(
                    f"server_lr = {self.server_lr:g}: the base feddyn has no server step size; leave it at 1"
                )
            return self

    settings: Settings

    models = ("global", "participants")
    admits = ("downlink",)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.base = _base(settings)
        self.server, self.client = self.base.server, (*self.base.client, "x_old")
        self.down, self.up, self.optimizer = self.base.down, self.base.up, self.base.optimizer
        self.apart = self.base.apart

    def start(self, r: Round) -> Tensor:
        """x; until the round's end e_k takes the place of x_old_k, which is not read again."""
        away = r.client.x_old - r.w
        r.client.x_old = r.seen * away * radius(away, self.settings.rho)  # (1)
        return r.w

    def local(self, r: Round) -> Local:
        return self.base.local(r)

    def direction(self, grad: Gradient, W: Tensor, r: Round) -> GradientAt:
        return GradientAt(W + r.client.x_old)

    def finish(self, r: Round) -> Tensor:
        r.client.x_old = r.w.expand_as(r.W)
        return self.base.finish(r)

    def advice(self, run: RunPreview) -> list[str]:
        return self.base.advice(run)


def _base(s: FedLesam.Settings) -> Algorithm:
    """The algorithm whose local terms, memories and server are used."""
    if s.base == "scaffold":
        return Scaffold(Scaffold.Settings(server_lr=s.server_lr))
    if s.base == "feddyn":
        return Dual(DualSettings(name="feddyn", a=s.a))
    return Averaging(AveragingSettings(name="fedavg", server_lr=s.server_lr))
