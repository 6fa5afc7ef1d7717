"""MIFA."""

from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._absent import LastUpdates, UpdateSettings, shares
from fedtide.methods.algorithms.base import Round, Tunable


class Mifa(LastUpdates):
    """Averages the latest update of every client, present or absent (Gu et al. 2021, arXiv:2106.04159).

    Each client keeps its last update ``h_i``, and the server moves along the mean over the *population* (q_j = 1/K, or by size
    with ``weighting: samples``)::

        h_i = (w - y_i) / eta                    i in S, the others keep theirs                                     (1)
        w+ = w - eta_g eta sum_j q_j h_j         j over all clients present                                         (2)

    A stored update acts like a delayed gradient: where visits are rare, it needs lower learning rates than FedAvg.

    ``begin`` is what happens before everybody has answered. ``zero``, the authors' ``fdu_no_wait``: absent clients count as
    h_j = 0, so the first steps are short. ``wait``, their ``fdu``: w stays while some client present with data has not
    answered, also when one arrives later; the waiting rounds are charged and their updates kept. The released code instead
    trains all clients once when the last one has appeared, absent ones included, and starts its learning-rate schedule there.
    ``seen``: the mean of those who have answered.

    The paper's text was not available: formulas are those of the authors' code, without its schedule eta_0 / (t + 1).
    ``units: displacement`` stores ``w - y_i``, as FedAWE's authors do: old updates do not shrink with a decaying rate. FedLaAvg
    (Yan et al. 2020, arXiv:2002.07399) is MIFA with ``begin: zero`` on the cohorts of participation
    ``least_recently_selected``; its scaling of the local gradient by relative size is not reproduced.

    With ``mode: async`` every ``buffer`` results make an update, and h_i is the latest that has arrived from client i,
    ``(base - y_i) / eta`` with the model and the rate that its job started from.
    """

    class Settings(UpdateSettings):
        name: str = "mifa"
        begin: Literal["zero", "seen", "wait"] = Field(
            "zero",
            description="clients that have not answered yet count as zero, not at all, or the server waits for them",
        )
        server_lr: float = Tunable(1.0, low=0.3, high=1.5, gt=0, description="server step size eta_g")

    settings: Settings

    def finish(self, r: Round) -> Tensor:
        self.renew(r)  # (1)
        begin, here = self.settings.begin, r.services.population()
        answered = here.seen | np.isin(here.ids, np.array(r.ids)[r.job.keeps[:, 0].cpu().numpy() > 0])
        if begin == "wait" and not answered[here.samples > 0].all():
            return r.w.clone()
        mass = float(shares(r, self.settings)[answered].sum()) if begin == "seen" else 1.0
        return r.w - self.settings.server_lr * self.unit(r) / mass * r.server.h_mean  # (2)
