"""Features computed once, for runs in which nothing that produces them is trained."""

from __future__ import annotations

import copy
from dataclasses import replace

from torch import Tensor

from fedtide.settings.run import RunSettings
from fedtide.training.engine.flat import flatten
from fedtide.training.engine.passes.evaluation import features
from fedtide.training.engine.task import Task
from fedtide.training.models.base import Network
from fedtide.training.resources.workers import Workers
from fedtide.world.dataset import Split


class HeadAlone(Network):
    """The head of a network, on its features."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.head = copy.deepcopy(network.head)

    def features(self, inputs: Tensor) -> Tensor:
        return inputs

    def contrast(self, features: Tensor, logits: Tensor) -> Tensor:
        return logits


def on_fixed_features(task: Task, settings: RunSettings, synthetic: int) -> Task:
    """The same problem with the network's fixed features as the data, if these are the same in all rounds, else the task.

    The ``synthetic`` samples that the algorithm adds have no features yet.
    """
    if task.augmentation is not None or synthetic:
        return task
    w, b = flatten(task.network, task.dtype, task.device)
    workers = Workers(task, settings.engine.workers)
    splits: tuple[Split, ...] = ("train", "test")
    train, test = (
        features(workers, w, b, task.data.read(split, slice(None))[0], settings.evaluation.batch_size)
        for split in splits
    )
    workers.close()
    return replace(task, network=HeadAlone(task.network), data=task.data.with_features(train, test))
