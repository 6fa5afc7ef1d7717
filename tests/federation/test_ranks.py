"""Processes that share the clients of a round; threads stand in for them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.core.plugins import PluginSettings
from fedtide.federation.assembly.hardware import Group
from fedtide.federation.federation import Federation
from fedtide.methods.algorithms.base import Algorithm, Round
from fedtide.methods.communication.base import Communication, Schedule
from matrix import matrix
from support import closest, federation, needs, run_rounds, settings, steady, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (5, 1, 8, 3, 4)
LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.2, "momentum": 0.5, "momentum_scope": "client"}


class Threads:
    """What the processes of a group share.

    Attributes:
        sent: numbers that a process has passed on.
    """

    def __init__(self, size: int) -> None:
        self.size, self.sent = size, 0
        self.barrier = threading.Barrier(size, timeout=60)
        self.parts: list[Tensor] = [torch.zeros(0)] * size

    def member(self, rank: int) -> Group:
        """The group as process ``rank`` sees it."""
        return Member(self, rank)


class Member(Group):
    """A thread of a group."""

    def __init__(self, threads: Threads, rank: int) -> None:
        self.threads, self.rank, self.size = threads, rank, threads.size

    def sum_in_place(self, tensor: Tensor) -> None:
        """See :class:`Group`."""
        self.threads.parts[self.rank] = tensor.clone()
        self.threads.barrier.wait()
        total = torch.stack(self.threads.parts).sum(0)
        self.threads.sent += tensor.numel() if self.rank == 0 else 0
        self.threads.barrier.wait()
        tensor.copy_(total)

    def in_turn(self, total: Tensor, add: Callable[[Tensor], None]) -> None:
        """See :class:`Group`."""
        for rank in range(self.size):
            if rank == self.rank:
                total.copy_(self.threads.parts[0] if rank else total)
                add(total)
                self.threads.parts[0] = total.clone()
                self.threads.sent += total.numel()
            self.threads.barrier.wait()
        total.copy_(self.threads.parts[0])
        self.threads.barrier.wait()


class Halfway(Communication):
    """Everybody averages after the first step too."""

    def schedule(self, r: Round) -> Schedule:
        """See :meth:`Exchange.schedule`."""
        return Schedule([(1, list(range(len(r.ids))))])


def member(
    algorithm: Any, executor: str, group: Group, local: dict[str, Any], communication: bool = True, **values: Any
) -> Federation:
    """One process."""
    chosen = settings(algorithm=algorithm, local=local, engine={"executor": executor, "workers": 1}, **values)
    fed = federation(chosen, steady(SIZES, 3), vectors())
    fed.parts.hardware = replace(fed.parts.hardware, group=group)
    if communication:
        fed.parts.communication = Halfway(PluginSettings(name="halfway"))
    return fed


def compare(
    algorithm: Any, executor: str, size: int, local: dict[str, Any], communication: bool, **values: Any
) -> Threads:
    """Runs of one process and of several are the same: models, memories, server vectors, losses, drift."""
    tolerance = 0.0 if executor == "threads" else 1e-13  # other chunks may round differently
    alone, records = run_rounds(member(algorithm, executor, Group(), local, communication, **values))
    threads = Threads(size)
    members = [
        member(algorithm, executor, threads.member(rank), local, communication, **values) for rank in range(size)
    ]
    with ThreadPoolExecutor(size) as pool:
        for state, others in pool.map(run_rounds, members):
            assert closest(alone.w, state.w) <= tolerance
            for mine, its in ((alone.memory, state.memory), (alone.server, state.server)):
                for name, rows in mine.items():
                    assert closest(rows, its[name]) <= tolerance, name
            for record, other in zip(records, others, strict=True):
                for column in ("train_loss", "drift"):
                    assert record.row[column] == pytest.approx(other.row[column], abs=1e-13)
    return threads


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "executor", "size"),
    matrix(["scaffold", "sharp", "contrast", "fedavg"], ["threads", "stacked"], [2, 7]),
)
def test_any_number_of_processes_gives_the_same_run(algorithm: str, executor: str, size: int) -> None:
    """Also more processes than clients; memories written in the steps, moments and averages inside the round included."""
    local = {**LOCAL, "momentum": 0, "optimizer": "adam"} if algorithm == "fedavg" else LOCAL
    compare(algorithm, executor, size, local, communication=True)


@pytest.mark.parametrize("response", ["reset_memories", "reset_model", "start_session"])
def test_every_process_responds_to_the_same_alarms(response: str) -> None:
    detector = {"name": "after", "losses": 1, "least": 1.1, "watch": "clients", "share": 0.4, "response": response}
    compare("scaffold", "threads", 2, LOCAL, communication=True, detector=detector)
    _, records = run_rounds(member("scaffold", "threads", Group(), LOCAL, detector=detector))
    assert records[0].row["alarm"] == 1
    assert any(record.row["alarmed_clients"] not in (0, len(SIZES)) for record in records)


ADDING = [name for name in plugins.names("algorithms") if "sums" in plugins.load(Algorithm, name).admits]


@pytest.mark.parametrize("algorithm", ADDING)
def test_sums_are_enough_where_an_algorithm_says_so(algorithm: str) -> None:
    """The rows of other processes are NaN, so none is read; models are sent for each sum, not for each client."""
    size, rounds, local = 3, 3, {"epochs": 1, "batch_size": 1, "lr": 0.1}
    threads = compare(algorithm, "threads", size, local, communication=False, **needs(algorithm))
    vector = size * (4 * (5 + 1) + 3 * (4 + 1) if needs(algorithm) else 3 * (5 + 1))  # d in each process
    losses_and_distances = 2 * len(SIZES) * rounds
    sums, rest = divmod(threads.sent - losses_and_distances, rounds * vector)
    assert sums in range(1, 4)
    assert rest == 0
    assert sums == 1 or algorithm not in ("fedavg", "fedprox")
