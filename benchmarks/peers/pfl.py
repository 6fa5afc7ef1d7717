"""pfl-research: its FederatedAveraging on its SimulatedBackend, in two processes with one thread each.

Several processes are what its guide to fast simulations recommends: the same script is started once per process, and pfl
shares the users of a cohort among them.
"""

import os
import socket
import subprocess
import sys
from typing import Any

import torch
from torch import nn

from peers.networks import network, parameters_of
from peers.task import Arrays, Clock, Task

PACKAGES = ("pfl", "torch", "numpy")
PROCESSES = 2
ADDRESSES, RANK = "PFL_WORKER_ADDRESSES", "PFL_WORKER_RANK"


class _Module(nn.Module):
    """A network as pfl wants it: with its loss and its metrics."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.body(inputs), labels)

    def metrics(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        with torch.no_grad():
            return {"loss": Weighted(len(labels) * self.loss(inputs, labels).item(), len(labels))}


def run(task: Task, clock: Clock, variant: str) -> Arrays:
    """See ``contender.py``; no variants."""
    torch.set_num_threads(1)
    if RANK in os.environ:  # another process than the first
        return _train(task, clock)
    os.environ[ADDRESSES] = ",".join(f"127.0.0.1:{_free_port()}" for _ in range(PROCESSES))
    _, name, folder, result = sys.argv
    others = [
        subprocess.Popen(
            [sys.executable, "-m", "peers.contender", name, folder, f"{result}.{rank}"],
            env={**os.environ, RANK: str(rank)},
        )
        for rank in range(1, PROCESSES)
    ]
    os.environ[RANK] = "0"
    model = _train(task, clock)
    if any(other.wait() for other in others):
        raise SystemExit("a worker process failed")
    return model


def _train(task: Task, clock: Clock) -> Arrays:
    # Imported here: pfl connects the processes on import, as the environment tells it.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Rounds(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            clock.tick()
            return False, Metrics()

    inputs, labels = (torch.from_numpy(array.copy()) for array in task.data())
    users = [PyTorchTensorDataset((inputs[user], labels[user]), user_id=str(user)) for user in range(task.clients)]
    sampler = get_user_sampler("minimize_reuse", list(range(task.clients)))
    data = FederatedDataset(users.__getitem__, sampler)
    module = _Module(network(task.model, task.initial()))
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=task.rounds,
            evaluation_frequency=task.rounds,  # that is, in the first round, which is not timed
            train_cohort_size=task.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(local_batch_size=task.batch, local_num_epochs=task.epochs, local_learning_rate=task.lr),
        callbacks=[Rounds()],
        send_metrics_to_platform=False,
    )
    return parameters_of(module)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
