"""What a Dask worker does for a command: each of its threads hands jobs to a child process, which it keeps for the next.

A child process, since runs handle signals in the main thread, and a run that dies must not take the worker with it. This
module is all that a worker imports of fedtide; jobs, questions and results pass through it pickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import pickle
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from distributed import Worker, get_worker
from distributed.core import Status

BEGAN, ASKS = "began", "asks"
"""Events of a job: it begins; it has a question, see :func:`question`."""

ENDED, STOPPED, DIED = "ended", "stopped", "died"
"""How a job has left a worker: with a pickled result; given back, since its process was told to stop; its process died."""

NOBODY = pickle.dumps(None)
"""The answer if nobody is there to give one."""

PREEMPTION = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGINT") if hasattr(signal, name)
)
"""Signals that announce the end of a worker. SIGHUP and SIGINT are the terminal's, of workers on the user's own machine."""

_POLL = 0.2  # seconds until it is noticed that a job should stop
_REPORTING = 1.0  # seconds in which a closing worker reports the jobs that it gives back


@dataclass(frozen=True)
class Command:
    """A command: its unique name, also the topic of its events; pickled :class:`fedtide.runs.jobs.cluster.child.Program`."""

    name: str
    program: bytes


def do(command: Command, number: int, job: bytes) -> tuple[str, Any]:
    """Do a pickled job in the calling thread's child process; how it has left this worker, and the result or the reason."""
    return _host(get_worker()).do(command, number, job)


def stop(command: str, dask_worker: Worker) -> None:
    """Tell the jobs of a command to stop, also those that would begin later, and end its idle processes."""
    _host(dask_worker).stop(command)


def question(command: str, number: int, dask_worker: Worker) -> bytes | None:
    """The pickled question of a job, ``None`` if it is gone or has been asked for before."""
    return _host(dask_worker).question(command, number)


def answer(command: str, number: int, content: bytes, dask_worker: Worker) -> None:
    """Pass the pickled answer on."""
    _host(dask_worker).answer(command, number, content)


class _Child:
    """A child process and the pipe to it; it ends with its worker, after saving what it does."""

    def __init__(self, command: Command, count: int, memory: int) -> None:
        self.command = command.name
        self.pipe, theirs = multiprocessing.Pipe()
        arguments = map(str, (theirs.fileno(), count, memory))
        program = [sys.executable, "-P", "-m", "fedtide.runs.jobs.cluster.child", *arguments]
        # Not by multiprocessing: Dask's workers are often daemons, which must have no children.
        self._process = subprocess.Popen(program, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        theirs.close()  # otherwise the end of the process is not noticed
        self.told = False
        self.send(command.program)

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
class _Call:
    """A job in progress."""

    child: _Child
    question: bytes | None = None
    asks: bool = False
    _replying: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, content: bytes) -> None:
        """Answer the question of the child process, once."""
        with self._replying:
            asks, self.asks = self.asks, False
        if asks:
            self.child.send(content)


@dataclass
class _Host:
    """The child processes of a worker, by thread, and the jobs in progress."""

    worker: Worker
    calls: dict[tuple[str, int], _Call] = field(default_factory=dict)
    _children: dict[int, _Child] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)
    _closing: bool = False
    _leaving: asyncio.Task[None] | None = None

    def do(self, command: Command, number: int, job: bytes) -> tuple[str, Any]:
        if self._is_stopped(command.name):
            return STOPPED, "its worker was told to stop"
        child = self._child(command)
        self.calls[command.name, number] = call = _Call(child)
        self._report(command.name, BEGAN, number, f"{socket.gethostname()}, worker {self.worker.name}")
        try:
            child.send(job)
            return self._follow(command.name, number, call)
        finally:
            del self.calls[command.name, number]

    def stop(self, command: str) -> None:
        self._stopped.add(command)
        busy = [call.child for call in self.calls.values()]
        for thread, child in list(self._children.items()):
            if child.command == command and child not in busy:
                del self._children[thread]
                child.pipe.close()  # the process ends

    def question(self, command: str, number: int) -> bytes | None:
        if (call := self.calls.get((command, number))) is None:
            return None
        found, call.question = call.question, None
        return found

    def answer(self, command: str, number: int, content: bytes) -> None:
        if call := self.calls.get((command, number)):
            call.reply(content)

    def watch_signals(self) -> None:
        """Give jobs back, then close the worker, when a signal announces its end."""
        loop = asyncio.get_running_loop()
        for number in PREEMPTION:
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # in the main thread only
                loop.add_signal_handler(number, self._close_soon, number)

    def _close_soon(self, number: int) -> None:
        if not self._closing:
            self._closing = True
            self._leaving = asyncio.get_running_loop().create_task(self._close(number))

    async def _close(self, number: int) -> None:
        self.worker.status = Status.closing_gracefully  # it is sent no more jobs
        while self.calls:
            await asyncio.sleep(_POLL)
        await asyncio.sleep(_REPORTING)
        await self.worker.close(reason=signal.Signals(number).name)

    def _is_stopped(self, command: str) -> bool:
        return self._closing or command in self._stopped or self._is_gone()

    def _is_gone(self) -> bool:
        """Whether nobody waits for the result: the command is gone, or the scheduler has given the job to another worker."""
        if self.worker.status not in (Status.running, Status.paused, Status.closing_gracefully):
            return True
        task = self.worker.state.tasks.get(self.worker.get_current_task())
        return task is None or task.state in ("cancelled", "released", "forgotten")

    def _child(self, command: Command) -> _Child:
        thread = threading.get_ident()
        child = self._children.get(thread)
        if child is not None and child.command != command.name:
            self._children.pop(thread).close()
            child = None
        if child is None:
            count = self.worker.state.nthreads
            memory = int(self.worker.memory_manager.memory_limit or 0) // count
            child = self._children[thread] = _Child(command, count, memory)
        return child

    def _follow(self, command: str, number: int, call: _Call) -> tuple[str, Any]:
        """Pass questions on until the end of the job or of its process."""
        child = call.child
        while True:
            try:
                if child.pipe.poll(_POLL):
                    asks, content = child.pipe.recv()
                    if not asks:
                        if child.told:
                            self._children.pop(threading.get_ident()).close()
                        return ENDED, content
                    call.question, call.asks = content, True
                    self._report(command, ASKS, number)
            except (EOFError, OSError):
                del self._children[threading.get_ident()]
                code = child.close()
                return (STOPPED if child.told or -code in PREEMPTION else DIED), code
            if not child.told and self._is_stopped(command):
                child.stop()
            if self._is_gone():
                call.reply(NOBODY)  # else its process would wait for ever

    def _report(self, command: str, *facts: Any) -> None:
        self.worker.log_event(command, (*facts, self.worker.address))


_hosts: dict[str, _Host] = {}
_founding = threading.Lock()


def _host(worker: Worker) -> _Host:
    with _founding:
        if worker.id not in _hosts:
            host = _hosts[worker.id] = _Host(worker)
            worker.loop.add_callback(host.watch_signals)
        return _hosts[worker.id]
