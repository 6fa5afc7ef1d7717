"""FedAsync."""

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._staleness import Asynchronous, StalenessSettings
from fedtide.methods.algorithms.base import Round, Tunable


class FedAsync(Asynchronous):
    """Asynchronous federated optimization: an update for every result that arrives (Xie et al. 2019, arXiv:1903.03934).

    A client minimizes ``f_k + (mu/2) |theta - base|^2`` from the model ``base`` that it received; its result y is tau updates
    behind when it arrives::

        w+ = (1 - alpha s) w + alpha s y,    s = s(tau)                                                             (1)

    The formulas are from memory of the paper, whose late halving of alpha is left out. In gradient rounds of an initializer,
    where several clients finish at once, y is their mean.
    """

    class Settings(StalenessSettings):
        name: str = "fedasync"
        alpha: float = Tunable(0.6, low=0.1, high=0.9, gt=0, le=1, description="weight of a fresh result")
        mu: float = Field(0.005, ge=0, description="strength of the pull toward the model that the client started from")

    settings: Settings

    def finish(self, r: Round) -> Tensor:
        step = self.settings.alpha * self.freshness(r)
        return (1 - r.weighted_mean(step)) * r.w + r.mean(step * r.W)  # (1)
