"""An oracle control for concept drift."""

import torch
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, Round


class OracleReset(Algorithm):
    """FedAvg with known drift times: after every drift it restarts from the first model of the session.

    It does so in each round in which the concept of a client has changed that was present in the round before, too. A control:
    what a perfect detector with the simplest response is worth.
    """

    admits = ("rules",)

    def extra(self) -> dict[str, Tensor]:
        """The first model of the session [d], kept in its first round."""
        return {"first": torch.zeros(0)}

    def start(self, r: Round) -> Tensor:
        if not r.extra["first"].numel():
            r.extra["first"] = r.w.clone()
        return r.extra["first"] if len(r.services.changed()) else r.w
