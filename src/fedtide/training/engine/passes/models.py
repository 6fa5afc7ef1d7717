"""Operations on the clients' models beyond gradients and scores."""

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.func import functional_call, grad
from torch.nn.modules.batchnorm import _BatchNorm

from fedtide.core.array_types import Ints
from fedtide.training.engine.flat import Layout
from fedtide.training.engine.task import Task
from fedtide.training.programs.program import trace_plain
from fedtide.training.programs.traces import Traced
from fedtide.training.resources.workers import Workers, WorkerState

Result = TypeVar("Result")
Loss = Callable[[Tensor, Tensor], Tensor]  # (logits [n, L], labels [n]) -> a number


def _input_gradient(task: Task, loss: Loss) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Gradient [n, ...] of a loss with respect to prepared inputs of the network in evaluation mode, from a traced program.

    A function of parameters [d], floating buffers [q], inputs [n, ...] and labels [n].
    """
    network = copy.deepcopy(task.network).to(task.device, task.dtype).eval()
    layout = Layout(network)
    names = [slot.name for slot in (*layout.parameters, *layout.buffers)]

    def of_inputs(*arguments: Tensor) -> Tensor:
        *values, inputs, labels = arguments
        state = dict(zip(names, values, strict=True))

        def value(at: Tensor) -> Tensor:
            with task.mixed():
                return loss(functional_call(network, state, (at,)), labels)

        found: Tensor = grad(value)(inputs)
        return found

    traced = Traced(of_inputs, ("inputs", network, loss, task.autocast), trace_plain)
    return lambda w, b, inputs, labels: traced(*layout.named(w, b).values(), inputs, labels)


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
    of_inputs = _input_gradient(workers.task, loss)

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

    Other buffers, and statistics of constant layers, are kept; a last batch of a single sample is left out.
    """
    renewed = buffers.clone()

    def client(worker: WorkerState, row: int) -> None:
        module, shard = worker.frozen("statistics"), torch.from_numpy(shards[row]).to(points.device)
        sent = {slot.name for slot in module.layout.buffers}
        parts = module.network.named_modules()
        norms = [part for name, part in parts if isinstance(part, _BatchNorm) and f"{name}.running_mean" in sent]
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
