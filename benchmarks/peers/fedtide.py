"""fedtide itself: complete runs with Lightning and records; ``fedtide-naive`` is the plain PyTorch loop of the benchmarks."""

import tempfile
from dataclasses import replace
from pathlib import Path

import lightning as L
import numpy as np
import torch

from competitors import assembled, library
from fedtide.federation.types import Parts
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from naive import NaiveLoop
from peers.networks import parameters_of
from peers.task import Arrays, Clock, Task
from timing import RoundClock
from workloads import WORKLOADS, Workload

PACKAGES = ("fedtide", "torch", "lightning", "numpy")


class _Rounds(RoundClock):
    """Passes the rounds on to the clock that all contenders share, and keeps the final model."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.model: Arrays = []

    def tick(self) -> None:
        self.clock.tick()

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        parts = pl_module.parts
        shapes = [parameter.shape for parameter in parts.task.network.parameters()]
        pieces = pl_module.state.w.split([shape.numel() for shape in shapes])
        self.model = [piece.reshape(shape).numpy().copy() for piece, shape in zip(pieces, shapes, strict=True)]


def task_of(workload: Workload, folder: Path, timed: int) -> Task:
    """The task of a workload, with its files in ``folder`` once they are written."""
    return Task(
        folder=folder,
        name=workload.name,
        model=workload.model,
        clients=workload.clients,
        samples=workload.samples,
        cohort=workload.cohort,
        # Five steps of 128 are an epoch of W3's 640 samples.
        epochs=workload.local.get("epochs", 1),
        batch=workload.local["batch_size"],
        lr=0.001,
        timed=timed,
    )


def settings_of(task: Task) -> RunSettings:
    """Settings of the task's workload; the data are in the task's folder."""
    workload = replace(WORKLOADS[task.name], clients=task.clients, cohort=task.cohort)
    return Params(workload.raw(task.folder, task.rounds, engine={"accelerator": "cpu"})).run()


def write(task: Task, world: Parts) -> None:
    """Write a task's files: data, partition and initial model of a run."""
    shards = world.timeline.shards
    order = torch.from_numpy(np.concatenate([shards[client] for client in range(task.clients)]))
    inputs, labels = (
        values[order.to(values.device)].reshape(task.clients, task.samples, *values.shape[1:]).cpu().numpy()
        for values in (world.data.train_inputs, world.data.train_labels)
    )
    task.write(inputs, labels, parameters_of(world.task.network))


def run(task: Task, clock: Clock, variant: str) -> Arrays:
    """See ``contender.py``; variants: ``naive``."""
    settings = settings_of(task)
    if variant == "naive":
        loop = NaiveLoop(assembled(settings))
        loop.run(task.rounds, clock.tick)
        return parameters_of(loop.model)
    rounds = _Rounds(clock)
    with tempfile.TemporaryDirectory() as scratch:
        library(settings, Path(scratch))(rounds)
    return rounds.model
