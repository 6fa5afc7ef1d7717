"""Running the trials of a search: in this process, or in several that are served over pipes."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import traceback
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol

from fedtide.core.errors import SettingsError
from fedtide.runs.callbacks import GracefulStop
from fedtide.runs.processes import begin_worker, main_module_hidden, worker_context
from fedtide.tuning.trial import Outcome, ShouldPrune, Task, run_trial


class TrialQueue(Protocol):
    """Hands out trials and takes their outcomes; lives in one process, wherever trials run."""

    def next(self) -> Task | None:
        """The next trial, ``None`` at the end."""

    def should_prune(self, name: str, round_: int, value: float) -> bool:
        """Whether to prune the trial ``name``, given its metric after a round."""

    def finish(self, name: str, outcome: Outcome) -> None:
        """Take the outcome of a trial."""

    def stop(self, number: int) -> None:
        """Hand out no more trials, because of a signal."""


def run_sequentially(queue: TrialQueue) -> None:
    """Run all trials in this process."""
    gc.freeze()  # skip imported objects in later garbage collections
    try:
        while (task := queue.next()) is not None:
            queue.finish(task.name, run_trial(task, functools.partial(queue.should_prune, task.name)))
    finally:
        gc.unfreeze()


def run_in_parallel(queue: TrialQueue, count: int) -> None:
    """Run all trials in ``count`` processes, which stop when this one does, however it ends.

    Ctrl-C and SIGTERM end the trials in progress after their round.

    Raises:
        SettingsError: a trial has bad settings. RuntimeError: a trial failed, or its process died.
    """
    context, environment = worker_context(), dict(os.environ)
    processes: list[BaseProcess] = []
    busy: dict[Connection, str] = {}
    with GracefulStop() as stop:
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                worker = context.Process(target=_serve, args=(theirs, environment), daemon=True)
                with main_module_hidden():
                    worker.start()
                processes.append(worker)
                theirs.close()  # otherwise the end of the process is not noticed
                _hand_out(queue, ours, busy)
            while busy:
                ready = wait(list(busy), timeout=1.0)
                for connection in [item for item in busy if item in ready]:
                    _receive(queue, connection, busy, stop)
                if stop.received is not None:
                    queue.stop(stop.received)
                    for process in processes:
                        process.terminate()
        finally:
            for process in processes:
                process.terminate()
                process.join()


def _hand_out(queue: TrialQueue, connection: Connection, busy: dict[Connection, str]) -> None:
    task = queue.next()
    connection.send(task)
    if task is not None:
        busy[connection] = task.name


def _receive(queue: TrialQueue, connection: Connection, busy: dict[Connection, str], stop: GracefulStop) -> None:
    """Handle one message of a process: a metric to judge, an outcome, or an error."""
    name = busy[connection]
    try:
        message = connection.recv()
    except (EOFError, ConnectionResetError):
        if stop.received is None:
            raise RuntimeError(f"the process of {name} died; the same command continues from there") from None
        del busy[connection]
        return
    if isinstance(message, Exception):
        raise message
    if isinstance(message, Outcome):
        del busy[connection]
        queue.finish(name, message)
        _hand_out(queue, connection, busy)
    else:
        connection.send(queue.should_prune(name, *message))


def _serve(connection: Connection, environment: dict[str, str]) -> None:
    """Main function of a worker process: run the trials it is sent until there are no more or the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; a run in progress handles it itself
    begin_worker(environment)

    def should_prune(round_: int, value: float) -> bool:
        connection.send((round_, value))
        return bool(connection.recv())

    with contextlib.suppress(EOFError, ConnectionError):
        while (task := connection.recv()) is not None:
            connection.send(_attempt(task, should_prune))


def _attempt(task: Task, should_prune: ShouldPrune) -> Outcome | Exception:
    try:
        return run_trial(task, should_prune)
    except SettingsError as error:
        return error
    except Exception:  # raised again by the process that the user started
        return RuntimeError(f"{task.name} failed:\n{traceback.format_exc()}")
