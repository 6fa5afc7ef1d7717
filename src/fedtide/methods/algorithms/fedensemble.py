"""FedEnsemble."""

from fedtide.methods.algorithms._averaging import Averaging


class FedEnsemble(Averaging):
    """FedAvg whose participants predict together: their logits are summed (DynamicFL's baseline).

    Beside the global model, the participants' models after local training are evaluated as an ensemble (column
    ``test_accuracy_ensemble``, or ``evaluation.model: ensemble``); FedGen's released code sums over all clients.
    """

    admits = ("rules", "exchanges")

    models = ("global", "ensemble")
