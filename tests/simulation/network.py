"""A simulated Dask cluster: a scheduler, workers with a child process each, and messages that are late or come twice.

The pool of the command and the host of each worker are the package's own. What Dask does is a few rules: a task goes to a free
worker; when a worker is gone, its task goes to another one; after four lost workers it is given up.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from queue import Empty
from types import SimpleNamespace
from typing import Any

from distributed.core import Status
from kernel import Kernel, Process

from fedtide.runs.jobs.cluster import worker as dask_worker

GIVEN_UP = 4
"""Workers that may be lost with a task."""

_LOST = 30.0  # seconds until the scheduler takes a silent worker for lost


class KilledWorker(Exception):
    """As Dask's."""


class Pipe:
    """One end of a pipe between processes of a machine; it ends when its other process does."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self.messages, self._waiting = kernel, list[Any](), list[Any]()
        self.other: Pipe
        self.owner: Process | None = None
        self.closed = False

    @classmethod
    def pair(cls, kernel: Kernel) -> tuple[Pipe, Pipe]:
        one, two = cls(kernel), cls(kernel)
        one.other, two.other = two, one
        return one, two

    def send(self, message: Any) -> None:
        self._kernel.step()
        if self._is_cut():
            raise BrokenPipeError
        self.other.messages.append(message)
        self._kernel.wake(self.other._waiting)

    send_bytes = send

    def poll(self, seconds: float) -> bool:
        end = self._kernel.now + seconds
        while not self.messages and not self._is_cut() and self._kernel.now < end:
            self._kernel.wait(self._waiting, seconds)
        return bool(self.messages) or self._is_cut()

    def recv(self) -> Any:
        while not self.poll(20.0):
            pass
        if not self.messages:
            raise EOFError
        return self.messages.pop(0)

    recv_bytes = recv

    def close(self) -> None:
        self.closed = True

    def _is_cut(self) -> bool:
        owner = self.other.owner
        return self.other.closed or self.closed or (owner is not None and (owner.dead or bool(owner.outcome)))


class Child:
    """The child process of a worker, as :class:`fedtide.runs.jobs.cluster.worker._Child`."""

    def __init__(self, command: str, kernel: Kernel, process: Process, serve: Callable[[Process, Pipe], None]) -> None:
        self.command, self.told, self._kernel, self._process = command, False, kernel, process
        self.pipe, theirs = Pipe.pair(kernel)
        self.pipe.owner, theirs.owner = kernel.process, process
        kernel.spawn(process, lambda: serve(process, theirs))

    def send(self, content: bytes) -> None:
        try:
            self.pipe.send(content)
        except BrokenPipeError:
            return

    def stop(self) -> None:
        self.told = self._process.told = True

    def close(self) -> int:
        self.pipe.close()
        while not self._process.dead and not self._process.outcome:
            self._kernel.sleep(1.0)
        return -9 if self._process.dead else 0


class Host(dask_worker._Host):
    """The package's own host of a worker, with simulated child processes."""

    def __init__(self, worker: Any, start: Callable[[str], Child]) -> None:
        super().__init__(worker)
        self._start = start

    def _child(self, command: Any) -> Any:
        thread = dask_worker.threading.get_ident()
        if thread not in self._children:
            self._children[thread] = self._start(command.name)
        return self._children[thread]


class Future:
    """Of a task; ``status`` as Dask's."""

    def __init__(self, dask: Dask, number: int, arguments: tuple[Any, ...]) -> None:
        self.dask, self.number, self.arguments = dask, number, arguments
        self.status, self.value, self.losses = "pending", None, 0
        self.place: Worker | None = None
        self.done: Callable[[Future], None] = lambda _: None

    def add_done_callback(self, call: Callable[[Future], None]) -> None:
        self.done = call

    def result(self, timeout: float) -> Any:
        return self.value

    def exception(self) -> Exception:
        return KilledWorker()

    def cancel(self) -> None:
        self.end("cancelled")

    def end(self, status: str, value: Any = None) -> None:
        if self.status == "pending":
            self.status, self.value = status, value
            self.dask.message(lambda: self.done(self))


class Worker:
    """A worker with one thread, in a process of its own; what :class:`Host` needs of Dask's."""

    def __init__(self, dask: Dask, process: Process, start: Callable[[Process, str], Child]) -> None:
        self.dask, self.process, self.name, self.address = dask, process, process.number, f"tcp://{process.number}"
        self.status, self.task = Status.running, None
        self.state = SimpleNamespace(tasks={}, nthreads=1)
        self.host = Host(self, lambda command: start(process, command))

    def is_there(self) -> bool:
        """Whether the scheduler has it, and rightly."""
        return self.status is Status.running and not self.process.dead and not self.process.outcome

    def get_current_task(self) -> Any:
        return self.task

    def log_event(self, topic: str, event: Any) -> None:
        if self.status is Status.running:
            self.dask.message(lambda: self.dask.topic(topic, event), repeats=True)

    def work(self) -> None:
        """Main function of the thread."""
        kernel = self.dask.kernel
        while self.status is Status.running and not self.process.told and not self.dask.over:
            if (future := self.dask.take(self)) is None:
                kernel.sleep(5.0)
                continue
            self.task = future.number
            self.state.tasks = {future.number: SimpleNamespace(state="executing")}
            value = self.host.do(*future.arguments)
            if future.place is self and self.status is Status.running:
                future.end("finished", value)
            self.task = None
        for child in self.host._children.values():
            child.pipe.close()
        self.process.outcome = self.process.outcome or "closed"


class Dask:
    """The client that a command has, with the scheduler behind it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.status, self.over = kernel, "running", False
        self.workers: list[Worker] = []
        self._futures: list[Future] = []
        self.net = kernel.new_process("network")
        self._sent: list[Callable[[], Any]] = []
        self.topic: Callable[[str, Any], None] = lambda topic, event: None
        self.net.here = None

    def message(self, deliver: Callable[[], Any], repeats: bool = False) -> None:
        """Deliver in the order of sending, up to seconds late, perhaps twice."""
        if self.status != "running":
            return
        draw = self.kernel.random
        for _ in range(2 if repeats and draw.random() < 0.1 else 1):
            self._sent.append(deliver)
            self.kernel.spawn(self.net, lambda: self._sent.pop(0)(), draw.choice((0.01, 0.3, 3.0)))

    def lose(self) -> None:
        """The scheduler is gone."""
        if not self.over:
            self.kernel.tell("the scheduler is gone")
            self.leave()

    def leave(self) -> None:
        """The command is gone: nobody waits for a task."""
        self.status, self.over = "closed", True
        for worker in self.workers:
            worker.state.tasks = {}

    def take(self, worker: Worker) -> Future | None:
        """A task for a free worker."""
        self.look()
        waiting = [future for future in self._futures if future.status == "pending" and future.place is None]
        if not waiting or self.status != "running":
            return None
        waiting[0].place = worker
        return waiting[0]

    def look(self) -> None:
        """Take workers that are silent or dead for lost, and give their tasks to others."""
        for worker in self.workers:
            process, now = worker.process, self.kernel.now
            silent = process.asleep_until > now and now - process.paused > _LOST
            if worker.status is Status.running and (process.dead or process.outcome or silent):
                self.kernel.tell(f"the scheduler takes worker {worker.name} for lost")
                worker.status, worker.state.tasks = Status.closed, {}
                for future in self._futures:
                    if future.place is worker and future.status == "pending":
                        future.place, future.losses = None, future.losses + 1
                        if future.losses >= GIVEN_UP:
                            future.end("error")

    # What the pool calls.

    def subscribe_topic(self, name: str, handler: Callable[[Any], None]) -> None:
        self.topic = lambda topic, event: handler((None, event))

    def unsubscribe_topic(self, name: str) -> None:
        self.topic = lambda topic, event: None

    def nthreads(self) -> dict[str, int]:
        self.look()
        return {worker.address: 1 for worker in self.workers if worker.status is Status.running}

    def submit(self, function: Any, command: Any, number: int, job: bytes, pure: bool) -> Future:
        self._futures.append(Future(self, len(self._futures), (command, number, job)))
        return self._futures[-1]

    def run(self, function: Any, *arguments: Any, workers: Any = None, on_error: str = "raise") -> dict[str, Any]:
        """Call a function on workers, in their processes, and wait for them."""
        self.kernel.sleep(self.kernel.random.choice((0.01, 0.5)))
        name = {dask_worker.question: "question", dask_worker.answer: "answer", dask_worker.stop: "stop"}[function]
        asked = [worker for worker in self.workers if worker.is_there() and workers in (None, [worker.address])]
        found: dict[str, Any] = {}

        def call(worker: Worker) -> None:
            found[worker.address] = getattr(worker.host, name)(*arguments)

        for worker in asked:
            self.kernel.spawn(worker.process, functools.partial(call, worker))
        while any(worker.is_there() and worker.address not in found for worker in asked):
            self.kernel.sleep(0.5)
            self.look()
        return dict(found)


class Inbox:
    """A queue between the network and the pool."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._items, self._waiting = kernel, list[Any](), list[Any]()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._kernel.wake(self._waiting)

    def get(self, timeout: float) -> Any:
        if not self._items:
            self._kernel.wait(self._waiting, timeout)
        if not self._items:
            raise Empty
        return self._items.pop(0)


def serve(work: Callable[[Any, Any], Any], process: Process, pipe: Pipe, attempt: Callable[..., Any]) -> None:
    """As :func:`fedtide.runs.jobs.jobs.serve`, whose signals a simulated process does not have."""

    def ask(question: Any) -> Any:
        try:
            pipe.send((True, pickle.dumps(question)))
            return pickle.loads(pipe.recv())
        except (EOFError, OSError):
            process.told = True
            return None

    try:
        while True:
            pipe.send((False, pickle.dumps(attempt(work, pickle.loads(pipe.recv()), ask))))
    except (EOFError, OSError):
        process.outcome = "closed"
