"""fluke: its FedAVG, in one process with PyTorch's default of a thread per core; ``fluke-1`` is one thread."""

import torch
from torch import nn

try:
    import torchvision  # noqa: F401
except RuntimeError:
    # torchvision's wheel is built for CUDA and cannot load its operators beside a CPU build of torch. fluke never calls them;
    # that they are declared is enough for the import.
    OPERATORS = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.utils import FederationObserver

from peers.networks import network, parameters_of
from peers.task import Arrays, Clock, Task

PACKAGES = ("fluke-fl", "torch", "numpy")


class _Rounds(FederationObserver):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def end_round(self, round: int) -> None:  # noqa: A002
        self.clock.tick()


def run(task: Task, clock: Clock, variant: str) -> Arrays:
    """See ``contender.py``; variants: number of threads."""
    if variant:
        torch.set_num_threads(int(variant))
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_inmemory(True)
    environment.set_eval_cfg(server=False, locals=False, pre_fit=False, post_fit=False)
    inputs, labels = task.data()
    shards = [
        FastDataLoader(
            torch.from_numpy(inputs[client].copy()),
            torch.from_numpy(labels[client]),
            num_labels=10,
            batch_size=task.batch,
            shuffle=True,
        )
        for client in range(task.clients)
    ]
    splitter = DataSplitter(DummyDataContainer(shards, [None] * task.clients, None, 10))
    settings = {
        "model": network(task.model, task.initial()),
        "client": {
            "batch_size": task.batch,
            "local_epochs": task.epochs,
            "loss": nn.CrossEntropyLoss,
            "optimizer": {"name": "SGD", "lr": task.lr},
            "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1.0},
        },
        "server": {"weighted": True},
    }
    algorithm = FedAVG(task.clients, splitter, settings)
    algorithm.set_callbacks(_Rounds(clock))
    algorithm.run(task.rounds, eligible_perc=task.cohort / task.clients)
    return parameters_of(algorithm.server.model)
