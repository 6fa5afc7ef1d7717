"""Processes that share the clients of a round; threads stand in for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.algorithms.base import Round
from fedtide.core.plugins import PluginSettings
from fedtide.exchange.base import Exchange, Schedule
from fedtide.federation.federation import Federation
from fedtide.federation.ranks import Ranks
from support import closest, federation, run_rounds, settings, steady, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (5, 1, 8, 3, 4)
LOCAL = {"amount": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.5, "momentum_scope": "client"}


class Sum:
    """An all-reduce between threads."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.parts: list[Tensor] = [torch.zeros(0)] * size

    def of(self, rank: int) -> Callable[[Tensor], None]:
        """The operation as rank ``rank`` calls it."""

        def add(tensor: Tensor) -> None:
            self.parts[rank] = tensor.clone()
            self.barrier.wait()
            total = torch.stack(self.parts).sum(0)
            self.barrier.wait()
            tensor.copy_(total)

        return add


class Halfway(Exchange):
    """Everybody averages after the first step too."""

    def schedule(self, r: Round) -> Schedule:
        """See :meth:`Exchange.schedule`."""
        return Schedule([(1, list(range(len(r.ids))))])


def member(algorithm: Any, executor: str, ranks: Ranks, local: dict[str, Any]) -> Federation:
    """One process."""
    chosen = settings(algorithm=algorithm, local=local, engine={"executor": executor, "workers": 1})
    fed = federation(chosen, steady(SIZES, 3), vectors())
    fed.parts.hardware = replace(fed.parts.hardware, ranks=ranks)
    fed.parts.exchange = Halfway(PluginSettings(name="halfway"))
    return fed


@pytest.mark.parametrize("size", [2, 7])
@pytest.mark.parametrize("executor", ["threads", "stacked"])
@pytest.mark.parametrize(
    ("algorithm", "local"),
    [
        ("scaffold", LOCAL),
        ("sharp", LOCAL),
        ("contrast", LOCAL),
        ("fedavg", {**LOCAL, "momentum": 0, "optimiser": "adam"}),
    ],
    ids=["scaffold", "sharp", "contrast", "adam"],
)
def test_any_number_of_processes_gives_the_same_run(
    algorithm: str, local: dict[str, Any], executor: str, size: int
) -> None:
    """Also more processes than clients; memories written in the steps, velocities and averages inside the round included."""
    tolerance = 0.0 if executor == "threads" else 1e-13  # other chunks may round differently
    alone, records = run_rounds(member(algorithm, executor, Ranks(), local))
    reduce = Sum(size)
    members = [member(algorithm, executor, Ranks(rank, size, reduce.of(rank)), local) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        for state, others in pool.map(run_rounds, members):
            assert closest(alone.w, state.w) <= tolerance
            for name, rows in alone.memory.items():
                assert closest(rows, state.memory[name]) <= tolerance, name
            for record, other in zip(records, others, strict=True):
                assert record.row["train_loss"] == pytest.approx(other.row["train_loss"], abs=1e-13)
