"""The yardstick: federated averaging as a careful researcher writes it in an afternoon."""

import copy
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtide.core.randomness import generator
from fedtide.federation.types import Parts
from fedtide.training.engine.plan import step_count


class NaiveLoop:
    """One client after the other: a fresh module, a fresh optimizer, data resident as tensors, no data loader, one thread.

    Cohorts, batches and the initial model are those of ``world``, so both end with the same model up to rounding.

    Args:
        world: parts of a run whose data, timeline, cohorts and network are used; its engine is not.
        evaluate: test the model after every round.
    """

    def __init__(self, world: Parts, evaluate: bool = False) -> None:
        self.world, self.evaluate = world, evaluate
        self.model: nn.Module = copy.deepcopy(world.task.network).to(world.hardware.device, world.w0.dtype)

    def run(self, rounds: int, after_round: Callable[[], None]) -> None:
        """Run ``rounds`` rounds from the initial model on."""
        torch.set_num_threads(1)
        self.model.load_state_dict(self.world.task.network.state_dict())
        for t in range(rounds):
            self._round(t)
            if self.evaluate:
                self._test()
            after_round()

    def vector(self) -> Tensor:
        """The model's parameters, one after the other [d]."""
        return torch.cat([value.detach().reshape(-1) for value in self.model.parameters()])

    def _round(self, t: int) -> None:
        world, data, settings = self.world, self.world.data, self.world.settings
        here = world.timeline.at(t)
        drawn = world.participation.draw(here.clients, t, settings.seed)
        shards = {client: world.timeline.shards[client] for client in here.clients[drawn].tolist()}
        samples = sum(len(shard) for shard in shards.values())
        mean = {name: torch.zeros_like(value) for name, value in self.model.state_dict().items()}
        for client, shard in shards.items():
            model = copy.deepcopy(self.model).train()
            optimizer = torch.optim.SGD(model.parameters(), lr=settings.local.lr)
            for batch in self._batches(shard, t, client):
                optimizer.zero_grad()
                with world.task.mixed():
                    loss = cross_entropy(model(data.train_inputs[batch]), data.train_labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            for name, value in model.state_dict().items():
                mean[name] += value * (len(shard) / samples)
        self.model.load_state_dict(mean)

    def _batches(self, shard: NDArray[np.int64], t: int, client: int) -> Iterator[Tensor]:
        local, rng = self.world.settings.local, generator(self.world.settings.seed, "batches", t, client)
        left = step_count(len(shard), len(shard), local)
        while left > 0:
            order = torch.from_numpy(shard[rng.permutation(len(shard))]).to(self.world.hardware.device)
            batches = torch.split(order, local.batch_size)[:left]
            left -= len(batches)
            yield from batches

    def _test(self) -> float:
        data, size = self.world.data, self.world.settings.evaluation.batch_size
        right = 0
        self.model.eval()
        with torch.no_grad(), self.world.task.mixed():
            for inputs, labels in zip(
                torch.split(data.test_inputs, size), torch.split(data.test_labels, size), strict=True
            ):
                right += int((self.model(inputs).argmax(-1) == labels).sum())
        return right / len(data.test_labels)
