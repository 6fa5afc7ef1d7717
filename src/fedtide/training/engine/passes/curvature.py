"""Diagonals of the Hessian and of the Fisher information of the clients' losses."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from fedtide.core.array_types import Ints
from fedtide.training.engine.gradient import Probe
from fedtide.training.resources.workers import Workers, WorkerState

FLOATS = 1 << 24
"""Most floats that per-sample gradients may take at once."""


def taylor(
    workers: Workers,
    points: Tensor,
    b: Tensor,
    shards: Sequence[Ints],
    batch: int,
    counts: Tensor,
    probes: Callable[[int], Iterable[Tensor]],
    first: int = 0,
) -> tuple[Tensor, Tensor]:
    """Gradient and ``sum_r v_r * (Hess v_r)``, [C, d - first] each, of each client's mean loss over all of its samples.

    With R Rademacher probes divided by sqrt(R) this is Hutchinson's estimate of the diagonal: unbiased, entry i with
    variance ``sum_{j != i} H_ij^2 / R``. With the rows of the identity matrix it is exact. Other arguments as those of
    :func:`fedtide.training.engine.passes.evaluation.full_gradient`.

    Args:
        probes: maps a client's row to its R probes [d - first]; called once for every batch, and used one after the other.
        first: both cover the parameters from this index on, where a tensor begins.
    """
    task = workers.task
    slopes, diagonals = torch.zeros(2, len(shards), points.shape[-1] - first, dtype=task.dtype, device=task.device)

    def client(worker: WorkerState, row: int) -> None:
        module, shard = worker.module, torch.from_numpy(shards[row]).to(task.device)
        module.load(points if points.dim() == 1 else points[row], b)
        module.network.eval()
        slots = [slot for slot in module.layout.parameters if slot.start >= first]
        parameters = [module.network.get_parameter(slot.name) for slot in slots]
        for start in range(0, len(shard), batch):
            inputs, labels = task.batch(shard[start : start + batch])
            with task.mixed():
                losses = task.objective.loss(module.network.outputs(inputs), labels, counts[row])
            gradients = torch.autograd.grad(losses.sum() / len(shard), parameters, create_graph=True)
            slopes[row].add_(torch.cat([part.detach().reshape(-1) for part in gradients]))
            for v in probes(row):
                parts = [v[slot.start - first : slot.stop - first].view(slot.shape) for slot in slots]
                products = torch.autograd.grad(
                    gradients, parameters, parts, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                diagonals[row].addcmul_(v, torch.cat([part.reshape(-1) for part in products]))

    workers.map(client, range(len(shards)))
    return slopes, diagonals


def unit_vectors(size: int, like: Tensor) -> Iterator[Tensor]:
    """The rows of the identity matrix, one after the other in the same memory."""
    vector = like.new_zeros(size)
    for place in range(size):
        vector[place] = 1
        yield vector
        vector[place] = 0


def fisher_diagonal(
    workers: Workers, points: Tensor, b: Tensor, shards: Sequence[Ints], group: int, counts: Tensor, first: int = 0
) -> Tensor:
    """Mean square [C, d - first] of the mean gradients of consecutive groups of ``group`` samples of each client.

    Groups of one sample give the diagonal of the empirical Fisher information (labels of the data). Other arguments as those
    of :func:`taylor`.
    """
    task = workers.task
    diagonals = torch.zeros(len(shards), points.shape[-1] - first, dtype=task.dtype, device=task.device)
    at_once = max(1, FLOATS // diagonals.shape[-1])

    def client(worker: WorkerState, row: int) -> None:
        module, shard = worker.module, torch.from_numpy(shards[row]).to(task.device)
        module.load(points if points.dim() == 1 else points[row], b)
        module.network.eval()
        probe = Probe(module.network)
        named = {f"network.{name}": value for name, value in module.layout.named(module.w).items()}
        starts = {f"network.{slot.name}": slot.start for slot in module.layout.parameters}
        parameters = {name: value for name, value in named.items() if starts[name] >= first}

        def loss(state: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
            with task.mixed():
                return task.objective.loss(functional_call(probe, named | state, (inputs,)), labels, counts[row]).mean()

        gradients = vmap(grad(loss), in_dims=(None, 0, 0))
        whole = len(shard) // group * group
        batches = [*torch.split(shard[:whole].view(-1, group), at_once), shard[whole:].unsqueeze(0)]
        groups = -(-len(shard) // group)
        for positions in batches:
            if positions.numel():
                squares = [
                    part.square().sum(0).reshape(-1) for part in gradients(parameters, *task.batch(positions)).values()
                ]
                diagonals[row].add_(torch.cat(squares), alpha=1 / groups)

    workers.map(client, range(len(shards)))
    return diagonals
