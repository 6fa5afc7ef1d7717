"""FedVRA."""

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


class FedVra(Algorithm):
    """Primal-dual variance reduction with step sizes a (dual) and d (server) (Wang et al. 2023).

    With its dual ``lambda_k = gamma h_k`` client k minimizes (1), by any local optimizer; then::

        f_k + <lambda_k, theta> + (gamma/2) |theta - w|^2                                                           (1)
        h_k+ = h_k + a (theta_k - w)                                                                                (2)
        w+ = d mean_S theta_k + mean_N h_k                                                                          (3)

    A reconstruction: the authors released no code, and what FedSSG's repository calls FedVRA is FedDyn. The published d = 10 is
    N/|S| at 10 % participation: ``d`` here is relative to that, 1 by default. ``a = 1`` is FedDyn with alpha = gamma and equal
    sizes, ``a = 0`` FedProx with equal weights. The dual shrinks by ``1 - a gamma eta K`` per round of K steps: the published
    a = 7, gamma = 0.1 diverge above eta K = 2.9, hence a = 1 by default.
    """

    class Settings(AlgorithmSettings):
        name: str = "fedvra"
        weighting: WeightingChoice = choice_field("uniform", "how participants are weighted")
        gamma: float = Tunable(0.1, low=1e-3, high=1.0, log=True, ge=0, description="strength of the penalty")
        a: float = Tunable(1.0, low=0.1, high=10.0, log=True, ge=0, description="step size of the dual variables")
        d: float = Field(1.0, gt=0, description="weight of the participants' mean, relative to its proper weight 1")

    settings: Settings

    server = (ServerVector("h_mean", mean_of="h"),)
    client = ("h",)
    models = ("global", "participants", "all")

    def local(self, r: Round) -> Local:
        """gamma (h_k - w) inside the clip, gamma theta outside: the gradient of what (1) adds."""
        gamma = self.settings.gamma
        return Local(linear=gamma * (r.client.h - r.w), decay=gamma) if gamma else Local()

    def finish(self, r: Round) -> Tensor:
        r.move("h", self.settings.a * (r.W - r.w))  # (2)
        d: float = self.settings.d
        return d * r.average() + r.server.h_mean  # (3)

    def advice(self, run: RunPreview) -> list[str]:
        s = self.settings
        factor = s.a * s.gamma * run.lr * run.steps
        dual = [f"algorithm.a * gamma * local.lr * {run.steps} steps = {factor:g} is not below 2: the dual diverges"]
        rescaled = [f"algorithm.d = {s.d:g} multiplies the model by that factor every round"] if s.d != 1 else []
        return [*explicit_step(run, "gamma", s.gamma), *dual * (factor >= 2), *rescaled]
