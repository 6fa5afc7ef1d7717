"""FedAvg."""

from typing import ClassVar

from fedtide.algorithms.base import Algorithm


class FedAvg(Algorithm):
    """Average of the local models (McMahan et al. 2017).

    ``w+ = sum_k p_k theta_k`` over the participants, ``p_k`` by samples or uniform.
    """

    averages_inside_round: ClassVar[bool] = True
