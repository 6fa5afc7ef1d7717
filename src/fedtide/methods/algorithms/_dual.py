"""What FedSpeed, FedSMOO and FedLESAM-D share: FedDyn with one coefficient for all clients, in displacement units."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import PluginSettings
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


class DualSettings(AlgorithmSettings):
    weighting: WeightingChoice = choice_field("uniform", "how participants are weighted")
    a: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="proximal coefficient a = 1 / lambda")
    rho: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="radius rho of the perturbation")
    server_form: Literal["all_clients", "participants"] = Field(
        "all_clients", description="whose mean h_k the server adds"
    )


class Dual(Algorithm):
    """FedDyn with one coefficient for all clients.

    With v a gradient or what a method puts in its place::

        v + a (y - x + h_k)                                                                                         (1)
        h_k+ = h_k + y_k - x                                                                                        (2)
        x+ = mean_S y_k + mean_K h_k, or mean_S (y_k + h_k)                                                         (3)

    The part ``a y`` joins the weight decay, outside the clip. As in FedDyn, any local optimizer will do.
    """

    Settings: ClassVar[type[PluginSettings]] = DualSettings
    settings: DualSettings

    server: Sequence[str | ServerVector] = (ServerVector("h_mean", mean_of="h"),)
    client: Sequence[str] = ("h",)
    models = ("global", "participants")

    def local(self, r: Round) -> Local:
        """a (h_k - x) inside the clip and a y outside: (1)."""
        a = self.settings.a
        return Local(linear=a * (r.client.h - r.w), decay=a) if a else Local()

    def finish(self, r: Round) -> Tensor:
        moved = r.W - r.w
        r.move("h", moved)  # (2)
        if self.settings.server_form == "participants":
            return r.mean(r.W + r.client.h)
        return r.average() + r.server.h_mean  # (3)

    def advice(self, run: RunPreview) -> list[str]:
        return explicit_step(run, "a", self.settings.a)
