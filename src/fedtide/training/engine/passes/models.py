"""Operations on the clients' models beyond gradients and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedtide.core.array_types import Ints
from fedtide.training.engine.passes.inputs import InputGradient, Loss
from fedtide.training.resources.workers import Workers, WorkerState

Result = TypeVar("Result")


def with_input_gradients(
    workers: Workers,
    points: Tensor,
    b: Tensor,
    loss: Loss,
    prepare: Callable[[Tensor], Tensor],
    use: Callable[[int, Callable[[Tensor, Tensor], Tensor]], Result],
) -> list[Result]:
    """``use(row, gradient)`` for each of some models (points [C, d], b [q] as in evaluation mode), on the worker threads.

    ``gradient`` is that of ``loss`` with respect to samples [n, ...] with labels [n], which ``prepare`` maps to the network's
    inputs, differentiably.
    """
    of_inputs = InputGradient(workers.task, loss)

    def client(_: WorkerState, row: int) -> Result:
        def gradient(samples: Tensor, labels: Tensor) -> Tensor:
            with torch.enable_grad():
                samples = samples.detach().requires_grad_()
                inputs = prepare(samples)
            slope = of_inputs(points[row], b, inputs.detach(), labels)
            return torch.autograd.grad(inputs, samples, slope)[0]

        return use(row, gradient)

    return workers.map(client, range(len(points)))


def recompute_statistics(
    workers: Workers, points: Tensor, buffers: Tensor, shards: Sequence[Ints], batch: int
) -> Tensor:
    """Floating buffers [C, q] with BatchNorm statistics recomputed as means over batches of each client's samples.

    Other buffers are kept; a last batch of a single sample is left out.
    """
    renewed = buffers.clone()

    def client(worker: WorkerState, row: int) -> None:
        module, shard = worker.frozen("statistics"), torch.from_numpy(shards[row]).to(points.device)
        norms = [part for part in module.network.modules() if isinstance(part, _BatchNorm)]
        if not norms or len(shard) < 2:
            return
        module.load(points[row], buffers[row])
        for norm in norms:
            norm.train()
            norm.reset_running_stats()
            norm.momentum = None  # a cumulative average
        with torch.no_grad(), workers.task.mixed():
            for positions in torch.split(shard, batch):
                if len(positions) > 1:
                    module.network.outputs(workers.task.batch(positions)[0])
        renewed[row] = module.b

    workers.map(client, range(len(shards)))
    return renewed
