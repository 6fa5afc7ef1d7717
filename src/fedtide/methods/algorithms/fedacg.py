"""FedACG."""

from torch import Tensor

from fedtide.methods.algorithms._preview import explicit_step
from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Local, Round, RunPreview, Tunable


class FedAcg(Algorithm):
    """Accelerated client gradient: server momentum, broadcast as a lookahead (Kim et al. 2024).

    Clients start from (1), minimize (2), and the server takes the step (3)::

        x~ = x + lambda m                                                                                           (1)
        f_k + (beta/2) |y - x~|^2                                                                                   (2)
        m+ = lambda m + sum_k p_k (y_k - x~),   x+ = x + m+ = sum_k p_k y_k                                         (3)

    Only x~ is sent, and x+ is evaluated. The released code has no factor 1/2 in the penalty and weights clients uniformly.
    """

    class Settings(AlgorithmSettings):
        name: str = "fedacg"
        lambda_: float = Tunable(0.5, low=0.1, high=0.95, ge=0, lt=1, description="server momentum lambda")
        beta: float = Tunable(0.1, low=1e-4, high=1.0, log=True, ge=0, description="pull toward the lookahead")

    settings: Settings

    server = ("m",)
    admits = ("sums", "rules", "noise")

    def start(self, r: Round) -> Tensor:
        lookahead: Tensor = r.w + self.settings.lambda_ * r.server.m  # (1)
        return lookahead

    def local(self, r: Round) -> Local:
        """Gradient beta (y - x~) of (2)."""
        beta = self.settings.beta
        return Local(pull=beta, toward=self.start(r)) if beta else Local()

    def finish(self, r: Round) -> Tensor:
        x = r.average()  # (3)
        r.server.m = x - r.w
        return x

    def advice(self, run: RunPreview) -> list[str]:
        return explicit_step(run, "beta", self.settings.beta)
