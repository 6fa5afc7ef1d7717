"""Simulated time and processes: threads of which one runs at a time, as a seed decides.

Every operation that another process can notice calls :meth:`Kernel.step` first: there the running process may be killed or
paused, or another one goes on. Time passes when nobody can run. The same seed gives the same schedule.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from fedtide.core import system

PAUSES = (3.0, 40.0, 125.0, 150.0, 400.0)
"""Seconds for which a process may be paused."""

_BEGIN = 1e6  # seconds on the clock
_STEPS = 20_000


class Killed(BaseException):
    """Unwinds the threads of a process that is dead; nothing that they still do has an effect."""


class Stuck(AssertionError):
    """Nobody finishes."""


class Process:
    """A process: its number, its machine, and what it sees of them (``here``)."""

    def __init__(self, number: int, host: str) -> None:
        self.number, self.host = number, host
        self.here: Any = None
        self.dead = False
        self.paused, self.asleep_until = 0.0, 0.0
        self.told = False  # to stop
        self.claim = 0
        self.outcome = ""


class _Thread:
    """A thread of a process; it runs while it has the baton."""

    def __init__(self, process: Process, wake: float) -> None:
        self.process, self.wake = process, wake
        self.baton = threading.Lock()
        self.baton.acquire()
        self.ended = False


class _Idle(threading.Thread):
    """Runs one simulated thread after another: starting a real one is slow."""

    pool: ClassVar[list[_Idle]] = []

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.work: Callable[[], None]
        self.ready = threading.Lock()
        self.ready.acquire()

    def run(self) -> None:
        while True:
            self.ready.acquire()
            self.work()

    @classmethod
    def start_with(cls, work: Callable[[], None]) -> None:
        if cls.pool:
            idle = cls.pool.pop()
        else:
            idle = cls()
            idle.start()
        idle.work = work
        idle.ready.release()

    def rest(self) -> None:
        self.pool.append(self)


class Kernel:
    """Runs one schedule.

    Args:
        seed: of all decisions.

    Attributes:
        faults: probability of a fault at a step. switches: probability that another thread goes on at a step.
        observer: looks at the disk while nobody runs.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now, self.steps = _BEGIN, 0
        self.faults = self.switches = 0.0
        self.story: list[str] = []
        self.processes: list[Process] = []
        self.on_death: Callable[[Process], None] = lambda _: None
        self._threads: list[_Thread] = []
        self._running: _Thread | None = None
        self._over = threading.Lock()
        self._over.acquire()
        self._error: BaseException | None = None
        self.observer: Process | None = None

    def tell(self, line: str) -> None:
        """Add to the story of this schedule."""
        self.story.append(f"{self.now - _BEGIN:7.1f} s  {line}")

    def new_process(self, host: str) -> Process:
        self.processes.append(Process(1 + len(self.processes), host))
        return self.processes[-1]

    def spawn(self, process: Process, work: Callable[[], None], delay: float = 0.0) -> None:
        """Start a thread of a process after some seconds."""
        thread = _Thread(process, self.now + delay)
        self._threads.append(thread)

        def run() -> None:
            thread.baton.acquire()
            try:
                self._check(thread)
                work()
            except Killed:
                pass
            except BaseException as error:
                self._error = self._error or error
            thread.ended = True
            self._threads.remove(thread)
            threading.current_thread().rest()  # type: ignore[attr-defined]
            self._next(None)

        _Idle.start_with(run)

    def run(self) -> None:
        """Until every thread has ended, or one has raised an error."""
        if self._threads:
            self._next(None)
            self._over.acquire()
        if self._error is not None:
            raise self._error

    @property
    def process(self) -> Process:
        """The running one."""
        if self.observer is not None:
            return self.observer
        assert self._running is not None
        return self._running.process

    def step(self) -> None:
        """A moment at which a fault, or another thread, may come in between."""
        if self.observer is not None:
            return
        thread = self._running
        assert thread is not None
        self._check(thread)
        self._count()
        self.now += 0.001
        draw = self.random.random()
        if draw < self.faults:
            self._fault(thread.process)
            self._switch(thread)
        elif draw < self.faults + self.switches:
            self._switch(thread)

    def sleep(self, seconds: float) -> None:
        thread = self._running
        assert thread is not None
        self._check(thread)
        self._count()
        thread.wake = self.now + seconds
        self._switch(thread)

    def wait(self, waiting: list[Any], seconds: float) -> None:
        """Sleep, but until :meth:`wake` at the longest."""
        waiting.append(self._running)
        self.sleep(seconds)
        waiting.clear()

    def wake(self, waiting: list[Any]) -> None:
        for thread in waiting:
            thread.wake = self.now

    def _count(self) -> None:
        self.steps += 1
        if self.steps > _STEPS:
            raise Stuck(f"nobody finishes within {_STEPS} steps")

    def _fault(self, process: Process) -> None:
        """Of this process, or of its machine."""
        kind, machine = self.random.random(), self.random.random() < 0.3
        hit = [each for each in self.processes if each.host == process.host and not each.dead] if machine else [process]
        what = f"machine {process.host}" if machine else f"process {process.number} on {process.host}"
        if kind < 0.3:
            for each in hit:
                each.dead = True
                self.on_death(each)
            self.tell(f"{what} is killed")
        elif kind < 0.4:
            process.told = True
            self.tell(f"process {process.number} on {process.host} is told to stop")
        else:
            seconds = self.random.choice(PAUSES)
            for each in hit:
                each.paused, each.asleep_until = self.now, self.now + seconds
            self.tell(f"{what} is paused for {seconds:.0f} s")

    def _check(self, thread: _Thread) -> None:
        if thread.process.dead or self._error is not None:
            raise Killed

    def _switch(self, thread: _Thread) -> None:
        self._next(thread)
        self._check(thread)

    def _next(self, thread: _Thread | None) -> None:
        """Pass the baton on, and wait for it."""
        if not self._threads:
            self._over.release()
            return
        chosen = self._chosen()
        if chosen is thread:
            return
        self._running = chosen
        system.here = chosen.process.here
        chosen.baton.release()
        if thread is not None:
            thread.baton.acquire()

    def _chosen(self) -> _Thread:
        ending = [thread for thread in self._threads if thread.process.dead or self._error is not None]
        if ending:
            return ending[0]
        times = [max(thread.wake, thread.process.asleep_until) for thread in self._threads]
        ready = [thread for thread, time in zip(self._threads, times, strict=True) if time <= self.now]
        if not ready:
            self.now = min(times)
            ready = [thread for thread, time in zip(self._threads, times, strict=True) if time <= self.now]
        return ready[int(self.random.random() * len(ready))] if len(ready) > 1 else ready[0]
