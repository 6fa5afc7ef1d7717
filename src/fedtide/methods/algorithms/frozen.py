"""A model that is not trained after the first session."""

from collections.abc import Generator

from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, Phase, Round


class Frozen(Algorithm):
    """Reference baseline: FedAvg that stops training after the first session, or period.

    Later participants evaluate the training loss and change nothing, except BatchNorm's running statistics. What a session
    starts from is up to the initializer; with ``previous`` it is the model of the first one.
    """

    admits = ("sums", "rules", "exchanges", "downlink")

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        yield Phase(r.w, lr=None if r.session.number == 0 else 0.0)

    def finish(self, r: Round) -> Tensor:
        return r.average() if r.session.number == 0 else r.w
