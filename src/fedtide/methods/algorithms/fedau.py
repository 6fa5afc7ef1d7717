"""FedAU."""

import torch
from torch import Tensor

from fedtide.methods.algorithms._absent import AbsentSettings, share
from fedtide.methods.algorithms.base import Algorithm, Round, Tunable


class FedAu(Algorithm):
    """FedAvg whose weights grow with the intervals between a client's rounds (Wang and Ji 2024).

    ``a_i``, the mean of the intervals between participations recorded so far, estimates one over the client's availability::

        w+ = w + eta_g sum_S q_i a_i (y_i - w)      a_i = 1 before the first interval; q over the population        (1)

    The weights are not normalized. After that every client present has waited one round more; one that took part, or has waited
    ``cutoff`` rounds, records the wait as an interval and starts again. What is kept of a client that leaves is there when it
    returns, until a session resets it.

    The paper's text was not available: the rule, also which interval counts first, is that of FedAWE's authors' code.
    """

    class Settings(AbsentSettings):
        name: str = "fedau"
        cutoff: int = Tunable(50, low=5, high=200, log=True, ge=1, description="cutoff of participation intervals")
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="server step size eta_g")

    settings: Settings

    admits = ("sums",)

    def extra(self) -> dict[str, Tensor]:
        """Rounds waited, sum and number of the recorded intervals [N]."""
        return {
            name: torch.zeros(self.problem.clients, dtype=torch.int64) for name in ("waited", "intervals", "recorded")
        }

    def finish(self, r: Round) -> Tensor:
        waited, intervals, recorded = (r.extra[name] for name in ("waited", "intervals", "recorded"))
        drawn = torch.tensor(r.ids, device=waited.device)
        a = torch.where(recorded[drawn] > 0, intervals[drawn].to(r.W.dtype) / recorded[drawn].clamp(min=1), 1.0)
        step = r.total(share(r, self.settings) * a.to(r.W).unsqueeze(1) * (r.W - r.w))

        waited[torch.from_numpy(r.services.population().ids).to(waited.device)] += 1
        ends = waited >= self.settings.cutoff
        ends[drawn] = True
        intervals += waited * ends
        recorded += ends
        waited *= ~ends
        return r.w + self.settings.server_lr * step  # (1)
