"""FedAvg."""

from fedtide.methods.algorithms._averaging import Averaging, AveragingSettings
from fedtide.methods.algorithms.base import Tunable


class FedAvg(Averaging):
    """Average of the local models (McMahan et al. 2017).

    ``w+ = w + eta_g sum_k p_k (theta_k - w)`` over the participants, the mean of their models for ``eta_g = 1``; ``p_k`` by
    samples or uniform.

    References:
        McMahan et al. 2017. Communication-Efficient Learning of Deep Networks from Decentralized Data.
    """

    class Settings(AveragingSettings):
        name: str = "fedavg"
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="server step size eta_g")

    settings: Settings

    admits = ("sums", "rules", "noise", "exchanges")
