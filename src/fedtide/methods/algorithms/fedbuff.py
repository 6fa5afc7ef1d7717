"""FedBuff."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._staleness import Asynchronous, StalenessSettings
from fedtide.methods.algorithms.base import Round, Tunable
from fedtide.settings.choices import WeightingChoice, choice_field


class FedBuff(Asynchronous):
    """Buffered asynchronous aggregation: an update for every K results (Nguyen et al. 2022, arXiv:2106.06639).

    A result y of a client that received the model ``base`` is tau updates behind when it is used::

        w+ = w + eta_g sum_k p_k s_k (y_k - base_k),    s = s(tau),  p_k = 1 / K                             (1)

    With ``normalize: weights`` the sum is divided by ``sum_k p_k s_k``, as FLSim's default reducer does. The formulas are from
    memory of the paper. FLSim's s is a constant factor larger, which eta_g absorbs, and its jobs start at a rate; here, as in
    the paper's text, the number of jobs at once is fixed (``mode.concurrency``).
    """

    class Settings(StalenessSettings):
        name: str = "fedbuff"
        weighting: WeightingChoice = choice_field("uniform", "how the results in the buffer are weighted")
        buffer: int = Tunable(10, low=2, high=50, ge=1, description="results K per server update")
        normalize: Literal["count", "weights"] = Field(
            "count", description="divisor of the weighted sum: their number, or their weights"
        )
        server_lr: float = Tunable(1.0, low=0.1, high=2.0, gt=0, description="server step size eta_g")

    settings: Settings

    admits = ("rules",)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.buffer = settings.buffer

    def finish(self, r: Round) -> Tensor:
        s = self.freshness(r)
        step = r.mean_update(s)
        if self.settings.normalize == "weights":
            step = step / r.weighted_mean(s)
        return r.w + self.settings.server_lr * step  # (1)
