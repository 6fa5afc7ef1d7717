"""The SCAFFOLD released with dynamic initialization."""

from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, Round


class ScaffoldReleased(Algorithm):
    """FedAvg damped by the clients' learning rate, released as SCAFFOLD with dynamic initialization (Chang et al.).

    Local training is plain. With ``dy_k = y_k - x`` and eta the round's *local* rate::

        x+ = x + eta sum_k p_k dy_k                                                                                 (1)
        c+ = c + sum_k p_k (-c - dy_k / (eta E_k))                                                                  (2)

    Control variates are sent as in SCAFFOLD but correct nothing. Kept to compare with the published rows; ``scaffold`` is the
    algorithm. Unlike the released code, BatchNorm statistics are averaged, not damped.

    References:
        Chang et al. Communication-Efficient Federated Learning under Dynamic Device Arrival and Departure: Convergence
            Analysis and Algorithm Design.
    """

    server = ("c",)
    down = ("w", "c")
    up = ("W", "c")
    admits = ("sums", "rules")
    optimizer = "sgd"
    models = ("global", "participants")

    def finish(self, r: Round) -> Tensor:
        dy = r.W - r.w
        r.server.c = r.server.c + r.mean(-r.server.c - dy / (r.lr * r.steps))  # (2)
        return r.w + r.lr * r.mean(dy)  # (1)
