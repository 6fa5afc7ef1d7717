"""Jobs, one after another in this process or several at once in worker processes, that fail one by one."""

import contextlib
import functools
import gc
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Protocol, TypeVar

import torch

from fedtide.core.discovery.faults import PluginCrash
from fedtide.core.errors import SettingsError
from fedtide.runs.jobs.cards import place
from fedtide.runs.jobs.processes import (
    begin_worker,
    current_folder_hidden,
    how_it_ended,
    main_module_hidden,
    worker_context,
)
from fedtide.runs.jobs.signals import StopSignals
from fedtide.training.resources.memory import available_bytes, share_memory

Job = TypeVar("Job")
Result = TypeVar("Result")
Taken = TypeVar("Taken", contravariant=True)

Ask = Callable[[Any], Any]  # asks the process that hands out the jobs; the answer is ``None`` if that process has ended
Work = Callable[[Job, Ask], Result]  # does a job
ATTEMPTS = 2
"""Attempts per job whose worker dies. One death may have a cause elsewhere, such as a lack of memory; a job that kills every
worker is given up."""

_POLL = 0.2  # seconds until a signal is noticed


@dataclass(frozen=True)
class Failure:
    """Why a job has no result: ``traceback`` is empty if the process died, ``refused`` says whether its input is bad."""

    message: str
    traceback: str = ""
    refused: bool = False


class Jobs(Protocol[Job, Taken]):
    """Hands out jobs and takes their results, in the process that the user started."""

    def next(self) -> Job | None:
        """The next job, ``None`` at the end."""

    def answer(self, job: Job, question: Any) -> Any:
        """Answer a question of a job in progress."""

    def begin(self, job: Job, place: str) -> None:
        """Note that a worker of a cluster starts a job; ``place`` names its host."""

    def repeat(self, job: Job, reason: str) -> None:
        """Note that a job restarts, since its process has ended."""

    def is_interrupted(self, result: Taken) -> bool:
        """Whether the job ended early, since its process was told to stop."""

    def finish(self, job: Job, end: Taken | Failure) -> None:
        """Take the result of a job, or the reason why there is none."""


def run_here(work: Work[Job, Result], jobs: Jobs[Job, Result]) -> None:
    """Do all jobs in this process, one after another."""
    gc.freeze()  # skip imported objects in later garbage collections
    try:
        while (job := jobs.next()) is not None:
            jobs.finish(job, _attempt(work, job, functools.partial(jobs.answer, job)))
    finally:
        gc.unfreeze()


def run_in_workers(work: Work[Job, Result], jobs: Jobs[Job, Result], count: int, per_card: int = 0) -> int | None:
    """Do all jobs in ``count`` processes, which stop when this one does, however it ends; the signal received, if any.

    A job whose process dies restarts in a new one; it has :data:`ATTEMPTS` attempts. Ctrl-C and SIGTERM are passed on to the
    jobs in progress, and no others start. ``work`` is importable, since its name is sent to the processes; ``per_card`` of them
    share a GPU, 0 to use none.
    """
    with StopSignals() as stop:
        pool = _Pool(work, jobs, stop, per_card)
        try:
            pool.run(count)
        finally:
            pool.close()
    return stop.received


def _attempt(work: Work[Job, Result], job: Job, ask: Ask) -> Result | Failure:
    try:
        return work(job, ask)
    except SettingsError as error:
        return Failure(str(error), refused=True)
    except OSError as error:  # of the machine, such as a full disk: its message names the file
        return Failure(str(error))
    except PluginCrash as error:  # names its place
        return Failure(str(error), traceback.format_exc())
    except (Exception, SystemExit) as error:  # a plug-in may do anything
        name, text = type(error).__name__, str(error).strip()
        return Failure(f"{name}: {text.splitlines()[0]}" if text else name, traceback.format_exc())


class _Worker(Generic[Job, Result]):
    """A process, the pipe to it, and the job it does."""

    def __init__(self, work: Work[Job, Result], count: int, memory: int, per_card: int) -> None:
        context = worker_context()
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, work, dict(os.environ), count, memory, per_card)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
        with main_module_hidden(), current_folder_hidden():
            self._process.start()
        theirs.close()  # otherwise the end of the process would go unnoticed
        self.job: Job
        self.attempt = 0
        self._told = False

    def begin(self, job: Job, attempt: int) -> None:
        self.job, self.attempt = job, attempt
        self.send(job)

    def send(self, message: Any) -> None:
        """Send to the process; if it is dead, its pipe says so at the next reading."""
        with contextlib.suppress(ConnectionError):
            self.pipe.send(message)

    def stop(self) -> None:
        if not self._told:
            self._told = True
            self._process.terminate()

    def close(self) -> str:
        """Wait for the end of the process, idle or told to stop; how it ended."""
        self.pipe.close()
        self.stop()
        self._process.join()
        return how_it_ended(self._process.exitcode or 0)


class _Pool(Generic[Job, Result]):
    """Workers that have a job, and the jobs to restart."""

    def __init__(self, work: Work[Job, Result], jobs: Jobs[Job, Result], stop: StopSignals, per_card: int) -> None:
        self._work, self._jobs, self._stop, self._per_card = work, jobs, stop, per_card
        self._busy: dict[Connection, _Worker[Job, Result]] = {}
        self._again: list[tuple[Job, int]] = []

    def run(self, count: int) -> None:
        """Until all jobs have ended, or, after a signal, those in progress."""
        memory = available_bytes(torch.device("cpu")) // count
        while True:
            while len(self._busy) < count and (found := self._next()) is not None:
                try:
                    worker = _Worker(self._work, count, memory, self._per_card)
                except (EOFError, ConnectionError):  # the next start begins another server
                    self._lost(*found, "the server that starts its process has ended")
                else:
                    self._begin(worker, *found)
            if not self._busy:
                return
            for pipe in wait(list(self._busy), _POLL):
                self._receive(self._busy[pipe])  # type: ignore[index]
            if self._stop.received is not None:
                for worker in self._busy.values():
                    worker.stop()

    def close(self) -> None:
        """End all processes; jobs in progress are told to stop."""
        for worker in self._busy.values():
            worker.stop()
        for worker in self._busy.values():
            worker.close()

    def _next(self) -> tuple[Job, int] | None:
        if self._stop.received is not None:
            return None
        if self._again:
            return self._again.pop(0)
        job = self._jobs.next()
        return None if job is None else (job, 1)

    def _begin(self, worker: _Worker[Job, Result], job: Job, attempt: int) -> None:
        self._busy[worker.pipe] = worker
        worker.begin(job, attempt)

    def _receive(self, worker: _Worker[Job, Result]) -> None:
        """Handle a question, the end of a job, or the death of a process."""
        try:
            asked, content = worker.pipe.recv()
        except (EOFError, OSError):
            del self._busy[worker.pipe]
            self._lost(worker.job, worker.attempt, worker.close())
            return
        message = pickle.loads(content)
        if asked:
            worker.send(self._jobs.answer(worker.job, message))
            return
        del self._busy[worker.pipe]
        by_others = self._stop.received is None and not isinstance(message, Failure)
        if by_others and self._jobs.is_interrupted(message):
            worker.close()
            self._lost(worker.job, worker.attempt, "its process was told to stop")
            return
        self._jobs.finish(worker.job, message)
        if (found := self._next()) is None:
            worker.close()
        else:
            self._begin(worker, *found)

    def _lost(self, job: Job, attempt: int, reason: str) -> None:
        """Restart a job whose process has ended, or did not start, or give it up."""
        if self._stop.received is not None:
            return
        if attempt < ATTEMPTS:
            self._jobs.repeat(job, reason)
            self._again.append((job, attempt + 1))
        else:
            self._jobs.finish(job, Failure(f"{reason}, at each of {ATTEMPTS} attempts"))


def serve(
    connection: Connection, work: Work[Any, Any], environment: dict[str, str], count: int, memory: int, per_card: int
) -> None:
    """Main function of one of ``count`` worker processes: do the jobs it is sent until the pipe is closed.

    It receives pickled jobs and answers; it sends pairs: whether it asks a question, and the pickled question, or the pickled
    result or :class:`Failure` of the job. They are pickled, since what passes them on may be unable to import their classes.
    ``memory``: bytes that it may use.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; a job in progress handles it itself
    begin_worker(environment)
    share_memory(per_card or count, memory)

    def ask(question: Any) -> Any:
        try:
            connection.send((True, pickle.dumps(question)))
            return connection.recv()
        except (EOFError, OSError):  # nobody waits for the result any more
            signal.raise_signal(signal.SIGTERM)
            return None

    def unpacked(content: bytes, ask: Ask) -> Any:
        return work(pickle.loads(content), ask)  # the import of a plug-in may fail

    with contextlib.suppress(EOFError, OSError), place(per_card):
        while True:
            connection.send((False, pickle.dumps(_attempt(unpacked, connection.recv_bytes(), ask))))
