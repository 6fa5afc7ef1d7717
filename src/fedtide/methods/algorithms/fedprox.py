"""FedProx."""

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms._preview import explicit_step
from fedtide.methods.algorithms.base import Local, Round, RunPreview, Tunable


class FedProx(Averaging):
    """Proximal local objectives f_k + (mu/2) |theta - w|^2 (Li et al. 2020), averaged as in FedAvg.

    ``mu = 0`` is bitwise FedAvg: the term is left out. An explicit step needs ``lr * mu < 2``.

    References:
        Li et al. 2020. Federated Optimization in Heterogeneous Networks.
    """

    class Settings(AveragingSettings):
        name: str = "fedprox"
        mu: float = Tunable(0.01, low=1e-4, high=1.0, log=True, ge=0, description="strength of the proximal term")

    settings: Settings

    admits = ("sums", "rules", "noise", "exchanges")

    def local(self, r: Round) -> Local:
        mu = self.settings.mu
        return Local(pull=mu, toward=r.w) if mu else Local()

    def advice(self, run: RunPreview) -> list[str]:
        return explicit_step(run, "mu", self.settings.mu)
