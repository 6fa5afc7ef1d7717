"""Exact erasure."""

from torch import Tensor

from fedtide.methods.erasers.base import Eraser, Erasing


class Retrain(Eraser):
    """The run goes on as if the clients had never taken part: model, memories and stored models are the counterfactual's.

    All rounds since the clients' first one are trained again without them, all other draws the same; clients that have left
    are assumed to come back for it. This is the reference of exact erasure and not a method for deployment.
    """

    helps = "retained"
    memory = "counterfactual"
    store = "erase"

    def erase(self, e: Erasing) -> Tensor:
        return e.counterfactual()
