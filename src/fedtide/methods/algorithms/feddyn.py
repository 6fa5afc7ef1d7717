"""FedDyn."""

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


class FedDyn(Algorithm):
    """Dynamic regularization that aligns local with global stationary points (Acar et al. 2021).

    With ``q_k`` its gradient at the end of its last round, client k minimizes::

        f_k - <q_k, theta> + (alpha_k/2) |theta - w|^2                                                              (eq. 1)

    Here ``q_k = -alpha_k h_k``: the memory h_k sums up the client's displacements, and the server adds their mean over *all*
    clients, those never seen with ``h_k = 0``::

        h_k+ = h_k + theta_k - w                                                                                    (2)
        w+ = mean_S theta_k + mean_N h_k                                                                            (3)

    As in the released code ``alpha_k = alpha / omega_k`` with the relative size ``omega_k``, participants have equal weights,
    and ``alpha_k theta`` joins the weight decay, outside the clip (with ``adamw`` it stays part of the gradient).
    ``alpha = 0`` is *not* FedAvg: the server still adds the mean memory unless ``memory_in_server`` is off.

    References:
        Acar et al. 2021. Federated Learning Based on Dynamic Regularization.
    """

    class Settings(AlgorithmSettings):
        name: str = "feddyn"
        weighting: WeightingChoice = choice_field("uniform", "how participants are weighted")
        alpha: float = Tunable(0.01, low=1e-3, high=1.0, log=True, ge=0, description="strength of the regularizer")
        memory_in_server: bool = Field(True, description="the server adds the mean memory of all clients")

    settings: Settings

    server = (ServerVector("h_mean", mean_of="h"),)
    client = ("h",)
    models = ("global", "participants", "all")

    def local(self, r: Round) -> Local:
        """alpha_k (h_k - w) inside the clip, alpha_k theta outside: the gradient of eq. 1's added terms."""
        if not self.settings.alpha:
            return Local()
        alpha = self.settings.alpha / r.omega
        return Local(linear=alpha * (r.client.h - r.w), decay=alpha)

    def finish(self, r: Round) -> Tensor:
        r.move("h", r.W - r.w)  # (2)
        return r.average() + r.server.h_mean if self.settings.memory_in_server else r.average()  # (3)

    def advice(self, run: RunPreview) -> list[str]:
        return explicit_step(run, "alpha / omega", self.settings.alpha / run.smallest, "regularizer's step")
