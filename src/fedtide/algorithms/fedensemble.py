"""FedEnsemble."""

from __future__ import annotations

from typing import ClassVar

from fedtide.algorithms.base import Algorithm


class FedEnsemble(Algorithm):
    """FedAvg whose participants predict together: their logits are added up (DynamicFL's baseline).

    Training is FedAvg. Beside the server's model, the models of a round's participants after local training are evaluated as
    an ensemble (column ``test_accuracy_ensemble``, or ``evaluation.reported: ensemble``). FedGen's program adds up all
    clients, of which those that were not drawn hold the server's model.
    """

    models = ("cloud", "ensemble")
    averages_inside_round: ClassVar[bool] = True
