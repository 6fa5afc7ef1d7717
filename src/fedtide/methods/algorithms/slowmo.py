"""SlowMo."""

from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Round, Tunable


class SlowMo(Algorithm):
    """Slow momentum on the server, in units of a gradient (Wang et al. 2020).

    With ``D = sum_k p_k (y_k - x)``::

        b+ = beta b - D / lr                                                                                        (1)
        x+ = x - alpha lr b+                                                                                        (2)

    While lr is constant it is FedAvgM (``fedopt`` with ``sgd``).
    """

    class Settings(AlgorithmSettings):
        name: str = "slowmo"
        beta: float = Tunable(0.5, low=0.1, high=0.95, ge=0, lt=1, description="slow momentum beta")
        alpha_s: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="slow learning rate alpha")

    settings: Settings

    server = ("b",)
    models = ("global", "participants")
    admits = ("sums", "rules", "noise")

    def finish(self, r: Round) -> Tensor:
        s, D = self.settings, r.average() - r.w
        r.server.b = s.beta * r.server.b - D / r.lr  # (1)
        x: Tensor = r.w - s.alpha_s * r.lr * r.server.b  # (2)
        return x
