"""Executor for networks with running statistics: worker threads, each with a resident module and plain autograd."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedtide.training.engine.executors.executor import Advance, Executor
from fedtide.training.engine.flat import ResidentModule
from fedtide.training.engine.local import Cohort, Direction, GradientAt, NoStep, Term, Update, rows_of
from fedtide.training.engine.plan import batches_of
from fedtide.training.engine.task import Task
from fedtide.training.models.base import Outputs
from fedtide.training.resources.workers import Workers, WorkerState


class Resident(Executor):
    """One client at a time per worker; batches keep their exact size: padding would enter BatchNorm's statistics."""

    def __init__(self, task: Task, workers: Workers) -> None:
        self.task, self.workers = task, workers

    def begin(self, cohort: Cohort) -> Advance:
        done = 0

        def advance(last: int) -> None:
            nonlocal done
            first, done = done, last
            busy = [row for row, steps in enumerate(cohort.plan.steps) if steps > first]
            self.workers.map(lambda worker, row: self._client(worker, cohort, row, first, last), busy)

        return advance

    def _client(self, worker: WorkerState, cohort: Cohort, row: int, first: int, last: int) -> None:
        task, module, plan = self.task, worker.module, cohort.plan
        rows = slice(row, row + 1)
        update = Update(cohort, rows, task.local)
        terms = []
        for place, term in enumerate(cohort.terms):
            weight = rows_of(term.weight, rows)
            weight = weight.item() if isinstance(weight, Tensor) else weight
            if weight != 0:
                constants = {name: value[row] for name, value in term.constants.items()} | term.tensors
                terms.append((term, weight, self._references(worker, place, term, row, cohort.b), constants))
        module.load(cohort.W[row], cohort.buffers[row])
        module.network.train()
        w, g = module.w.unsqueeze(0), module.g.unsqueeze(0)
        total = torch.zeros((), dtype=task.dtype, device=task.device)
        for step in range(first, min(last, plan.steps[row])):
            place = plan.first[row] + step
            key, own = plan.keys[place], slice(plan.bounds[place], plan.bounds[place + 1])
            samples = task.batch(plan.samples[own], key)

            def loss(inputs: Tensor, labels: Tensor, key: Tensor) -> Tensor:
                module.set_key(int(key))
                with task.mixed():
                    outputs = module.network.outputs(inputs)
                    applied = [
                        (term, weight, _frozen_outputs(frozen, inputs), own) for term, weight, frozen, own in terms
                    ]
                    counts = cohort.label_counts[row]
                    return task.losses(outputs, labels, counts, applied, module.network.head, key).mean()

            def collect(samples: tuple[Tensor, Tensor] = samples, key: Tensor = key) -> Tensor:
                """Add the gradient of the samples' mean loss to that of the module, batch by batch; returns that loss."""
                inputs, labels = samples
                found = torch.zeros((), dtype=task.dtype, device=task.device)
                for part, apart in batches_of(len(labels), plan.batch):
                    value = loss(inputs[part], labels[part], key + apart)
                    share = (part.stop - part.start) / len(labels)
                    torch.autograd.backward(value if share == 1 else value * share)
                    found += value.detach() if share == 1 else value.detach() * share
                return found

            if cohort.direction is None:
                update.seed(g)
                value, moves = collect(), True
            else:
                value, moves = self._own_direction(cohort.direction, module, collect, rows)
            total += value
            if moves:
                update.step(w, g)
            if cohort.stop is not None and cohort.stop(row, step + 1, module.w, module.b):
                break
        cohort.W[row].copy_(module.w)
        cohort.buffers[row].copy_(module.b)
        cohort.losses[row] += total

    @staticmethod
    def _own_direction(
        direction: Direction, module: ResidentModule, collect: Callable[[], Tensor], rows: slice
    ) -> tuple[Tensor, bool]:
        """Write the algorithm's own direction into ``module.g``; returns a loss, as ``Rows`` does, and whether to step."""
        values: list[Tensor] = []
        here = module.w.clone().unsqueeze(0)

        def gradient(at: Tensor) -> Tensor:
            module.w.copy_(at.expand(1, -1)[0])
            module.g.zero_()
            statistics = module.b.clone()
            value = collect()
            if values:  # a batch counts once in the running statistics, however many gradients are taken on it
                module.b.copy_(statistics)
            values.append(value)
            return module.g.clone().unsqueeze(0)

        step, which = direction(gradient, here, rows), 0
        if isinstance(step, GradientAt):
            which = len(values) if step.point is here else 0
            found = gradient(step.point)
            step = found if step.minus is None else found - gradient(step.minus)
        module.w.copy_(here[0])
        if isinstance(step, NoStep):
            return values[0], False
        module.g.copy_(step[0])
        return values[which], True

    @staticmethod
    def _references(worker: WorkerState, place: int, term: Term, row: int, b: Tensor) -> dict[str, ResidentModule]:
        """The reference models of the term at a place in the list; terms may use the same names."""
        modules = {}
        for name, vector in term.references.items():
            modules[name] = worker.frozen(f"{place}.{name}")
            modules[name].load(vector[row] if vector.dim() == 2 else vector, term.buffers.get(name, b))
        return modules


def _frozen_outputs(modules: dict[str, ResidentModule], inputs: Tensor) -> dict[str, Outputs]:
    with torch.no_grad():
        return {name: module.network.outputs(inputs) for name, module in modules.items()}
