"""A model that is not trained after the first session."""

from fedtide.methods.algorithms.base import Algorithm, Session


class Frozen(Algorithm):
    """Reference baseline: FedAvg that stops after the first session, or period.

    In later rounds nobody takes part, and nothing is sent. What a session starts from is up to the initializer; with
    ``previous`` it is the model of the first one.
    """

    admits = ("sums", "rules", "exchanges", "downlink")

    def rests(self, session: Session) -> bool:
        return session.number > 0
