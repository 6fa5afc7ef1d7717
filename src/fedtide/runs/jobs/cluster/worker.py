"""What a Dask worker does for a command: each of its threads hands jobs to a child process, which it keeps for the next.

A child process, since runs handle signals in the main thread, and a run that dies must not take the worker with it. A worker
imports only what is light of fedtide: jobs, questions and results pass through it pickled.
"""

import asyncio
import contextlib
import multiprocessing
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field

from distributed import Reschedule, Worker, get_worker
from distributed.core import Status

from fedtide.runs.jobs.processes import how_it_ended

BEGAN, LEFT, ASKS = "began", "left", "asks"
"""Events of a job: it begins; it has left a worker without a result, for a reason; it asks a pickled question."""

PREEMPTION = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)
"""Signals that announce the end of a worker. SIGHUP and SIGINT are the terminal's, of workers on the user's own machine."""

_POLL = 0.2  # seconds until it is noticed that a job should stop
_REPORTING = 1.0  # seconds in which a closing worker reports the jobs that it gives back


class ProcessDied(Exception):
    """The process of a job has died, as the message says; Dask repeats the job."""


def do(command: str, program: bytes, number: int, job: bytes) -> bytes:
    """Do a pickled job in the calling thread's child process; its pickled result.

    Args:
        command: unique name, also the topic of its events. program: pickled, for the child process.

    Raises:
        ProcessDied: the process ended without a result. Reschedule: this worker has been told to stop.
    """
    return _host(get_worker()).do(command, program, number, job)


def stop(command: str, dask_worker: Worker) -> None:
    """Tell the jobs of a command to stop, and end its idle processes."""
    _host(dask_worker).stop(command)


def answer(command: str, number: int, content: bytes, dask_worker: Worker) -> None:
    """Pass the pickled answer to a question on."""
    if child := _host(dask_worker).calls.get((command, number)):
        child.send(content)


class _Child:
    """A child process and the pipe to it; it ends with its worker, after saving what it does."""

    def __init__(self, command: str, program: bytes, count: int, memory: int) -> None:
        self.command = command
        self.pipe, theirs = multiprocessing.Pipe()
        arguments = map(str, (theirs.fileno(), count, memory))
        words = [sys.executable, "-P", "-m", "fedtide.runs.jobs.cluster.child", *arguments]
        # Not by multiprocessing: Dask's workers are often daemons, which must have no children.
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()  # otherwise the end of the process is not noticed
        self.told = False
        self.send(program)

    def send(self, content: bytes) -> None:
        """Send to the process; if it is dead, its pipe says so at the next reading."""
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(content)

    def stop(self) -> None:
        if not self.told:
            self.told = True
            self._process.terminate()

    def close(self) -> int:
        """Wait for the end of the process; its exit code, negative for a signal."""
        self.pipe.close()
        return self._process.wait()


@dataclass
class _Host:
    """The child processes of a worker, by thread, and those that have a job."""

    worker: Worker
    calls: dict[tuple[str, int], _Child] = field(default_factory=dict)
    _children: dict[int, _Child] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)
    _leaving: asyncio.Task[None] | None = None

    def do(self, command: str, program: bytes, number: int, job: bytes) -> bytes:
        if self._leaving is not None:
            raise Reschedule
        child = self._child(command, program)
        self.calls[command, number] = child
        self._report(command, BEGAN, number, f"{socket.gethostname()}, worker {self.worker.name}")
        result = None
        try:
            child.send(job)
            result = self._result(command, number, child)
        except (EOFError, OSError):  # it has died
            pass
        finally:
            del self.calls[command, number]
        if result is not None and not child.told:
            return result
        del self._children[threading.get_ident()]
        code = child.close()
        if result is not None and self._leaving is None:  # the command is told what has become of its job
            return result
        if child.told or -code in PREEMPTION:
            self._report(command, LEFT, number, "its worker was told to stop")
            raise Reschedule
        self._report(command, LEFT, number, how_it_ended(code))
        raise ProcessDied(how_it_ended(code))

    def _result(self, command: str, number: int, child: _Child) -> bytes:
        """Pass questions on until the process has a result. If nobody waits for it any more, it is told to stop."""
        while True:
            if child.pipe.poll(_POLL):
                asks, content = child.pipe.recv()
                if not asks:
                    return bytes(content)
                self._report(command, ASKS, number, content)
            if self._leaving is not None or command in self._stopped:
                child.stop()
            if self._is_gone():
                child.stop()
                raise EOFError

    def stop(self, command: str) -> None:
        self._stopped.add(command)
        busy = list(self.calls.values())
        for thread, child in list(self._children.items()):
            if child.command == command and child not in busy:
                del self._children[thread]
                child.pipe.close()  # the process ends

    def watch_signals(self) -> None:
        """Give jobs back, then close the worker, when a signal announces its end."""
        loop = asyncio.get_running_loop()
        for number in PREEMPTION:
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # in the main thread only
                loop.add_signal_handler(number, self._leave, number)

    def _leave(self, number: int) -> None:
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._close(number))

    async def _close(self, number: int) -> None:
        self.worker.status = Status.closing_gracefully  # it is sent no more jobs
        while self.calls:
            await asyncio.sleep(_POLL)
        await asyncio.sleep(_REPORTING)
        await self.worker.close(reason=signal.Signals(number).name)

    def _is_gone(self) -> bool:
        """Whether the command is gone, or the scheduler has given the job to another worker."""
        if self.worker.status not in (Status.running, Status.paused, Status.closing_gracefully):
            return True
        task = self.worker.state.tasks.get(self.worker.get_current_task())
        return task is None or task.state in ("cancelled", "released", "forgotten")

    def _child(self, command: str, program: bytes) -> _Child:
        thread = threading.get_ident()
        child = self._children.get(thread)
        if child is not None and child.command != command:
            self._children.pop(thread).close()
            child = None
        if child is None:
            count = self.worker.state.nthreads
            memory = int(self.worker.memory_manager.memory_limit or 0) // count
            child = self._children[thread] = _Child(command, program, count, memory)
        return child

    def _report(self, command: str, *facts: object) -> None:
        self.worker.log_event(command, (*facts, self.worker.address))


_hosts: dict[str, _Host] = {}
_founding = threading.Lock()


def _host(worker: Worker) -> _Host:
    with _founding:
        if worker.id not in _hosts:
            host = _hosts[worker.id] = _Host(worker)
            worker.loop.add_callback(host.watch_signals)
        return _hosts[worker.id]
