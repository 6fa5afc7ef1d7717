"""One schedule of commands that all want to finish the same run, on machines that share a folder but no lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from command import execute
from disk import Disk, SimPath
from filelock import Timeout
from judge import Judge
from kernel import Kernel, Process, Stuck

from fedtide.core import system

PATIENCE = 1200.0
"""Seconds in which an undisturbed command finishes the run, whatever was left."""


class Here(system.System):
    """What a simulated process sees of its machine."""

    def __init__(self, kernel: Kernel, process: Process, held: dict[tuple[str, str], Process]) -> None:
        self.kernel, self._process, self._held = kernel, process, held
        self.host = process.host
        self.fences: dict[Any, Callable[[], None]] = {}

    @property
    def process(self) -> int:
        return self._process.number

    def is_alive(self, process: int) -> bool:
        return any(p.number == process and p.host == self.host and not p.dead for p in self.kernel.processes)

    def time(self) -> float:
        return self.kernel.now

    def monotonic(self) -> float:
        return self.kernel.now

    def sleep(self, seconds: float) -> None:
        self.kernel.sleep(seconds)

    def date(self) -> str:
        return "today"

    def token(self) -> str:
        return f"{self.kernel.random.getrandbits(64):016x}"

    def lock(self, path: Any) -> Any:
        return _MachineLock(self, (self.host, str(path)))

    def touch(self, path: SimPath) -> None:
        self.kernel.step()
        path.disk.touch(path.disk.find(str(path)))

    def sync(self, path: SimPath) -> None:
        self.kernel.step()

    def repeat(self, action: Callable[[], None], seconds: float) -> Callable[[], None]:
        stopped = []

        def work() -> None:
            while True:
                self.kernel.sleep(seconds)
                if stopped:
                    return
                action()

        self.kernel.spawn(self._process, work)
        return lambda: stopped.append(True)


class _MachineLock:
    """A lock of an operating system: between the processes of one machine, given up by a process that dies."""

    def __init__(self, here: Here, key: tuple[str, str]) -> None:
        self._here, self._key = here, key

    @property
    def is_locked(self) -> bool:
        return self._here._held.get(self._key) is self._here._process

    def acquire(self, timeout: float = -1) -> None:
        here = self._here
        deadline = here.monotonic() + timeout if timeout >= 0 else float("inf")
        here.kernel.step()
        while self._key in here._held:
            if here.monotonic() >= deadline:
                raise Timeout(self._key[1])
            here.kernel.sleep(min(7.0, max(0.01, deadline - here.monotonic())))
        here._held[self._key] = here._process

    def release(self) -> None:
        self._here.kernel.step()
        self._here._held.pop(self._key, None)


@dataclass
class Outcome:
    """What came of a schedule: what did not hold, its story, and how often something happened."""

    seed: int
    problems: list[str]
    story: list[str]
    steps: int
    counts: Counter[str]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {'; '.join(self.problems)}", *self.story])


def simulate(seed: int, here: Callable[..., Here] = Here, fenced: bool = True) -> Outcome:
    """Run the schedule of a seed. ``here``: a variant of the machines; ``fenced``: writes of old owners are problems."""
    kernel = Kernel(seed)
    draw = kernel.random
    kernel.faults, kernel.switches = draw.choice((0.0, 0.004, 0.01, 0.02)), draw.choice((0.02, 0.1, 0.4))
    disk = SimPath.disk = Disk(kernel, lag=draw.choice((0.0, 0.0, 5.0, 60.0)))
    judge = Judge(kernel, disk, fenced)
    held: dict[tuple[str, str], Process] = {}
    kernel.on_death = lambda process: [held.pop(key) for key, by in list(held.items()) if by is process]
    hosts = [f"host{number}" for number in range(draw.choice((2, 2, 3)))]

    def start(delay: float, wait: bool) -> Process:
        process = kernel.new_process(draw.choice(hosts))
        process.here = here(kernel, process, held)
        kernel.spawn(process, lambda: execute(kernel, process, judge, wait), delay)
        return process

    before = system.here
    try:
        for _ in range(draw.choice((2, 3, 4))):
            start(draw.choice((0.0, 0.0, 5.0, 130.0, 260.0)) + draw.random(), wait=draw.random() < 0.7)
        try:
            kernel.run()
            kernel.faults, began, ended = 0.0, kernel.now, "complete"
            while not judge.is_finished() and ended in ("complete", "taken over") and kernel.now - began < PATIENCE:
                last = start(130.0, wait=True)
                kernel.run()
                ended = last.outcome
            if not judge.is_finished():
                judge.problems.append(f"an undisturbed command does not finish the run, it ends: {ended}")
        except Stuck as error:
            judge.problems.append(str(error))
        kernel.observer = kernel.new_process("judge")
        system.here = here(kernel, kernel.observer, held)
        problems = judge.problems or judge.verdict()
    finally:
        system.here = before
    counts = Counter("killed" if each.dead else each.outcome.partition(":")[0] for each in kernel.processes[:-1])
    counts["take-overs"] = judge.take_overs
    return Outcome(seed, problems, kernel.story, kernel.steps, counts)
