"""Who plays the trials: this process, or several that are asked and answered over pipes."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
import traceback
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Protocol

import torch

from fedtide.core.errors import SettingsError
from fedtide.runs.callbacks import GracefulStop
from fedtide.runs.processes import stop_with_parent
from fedtide.tuning.trial import Ask, Outcome, Task, play


class Bench(Protocol):
    """Hands out trials and takes what comes of them; lives in one process, whoever plays."""

    def next(self) -> Task | None:
        """A trial to play, ``None`` if there is no more."""

    def ask(self, name: str, round_: int, value: float) -> bool:
        """Whether to give the trial ``name`` up, given its metric after a round."""

    def finish(self, name: str, outcome: Outcome) -> None:
        """Take the outcome of a trial."""

    def stop(self, number: int) -> None:
        """Hand out no more, because of a signal."""


def one_by_one(bench: Bench) -> None:
    """Play all trials in this process."""
    while (task := bench.next()) is not None:
        bench.finish(task.name, play(task, functools.partial(bench.ask, task.name)))


def side_by_side(bench: Bench, count: int) -> None:
    """Play all trials in ``count`` processes, which stop when this one does, however it ends.

    Ctrl-C and SIGTERM end the trials in progress after their round.

    Raises:
        SettingsError: a trial could not be played. RuntimeError: it failed, or its process died.
    """
    context = multiprocessing.get_context("spawn")
    processes: list[SpawnProcess] = []
    busy: dict[Connection, str] = {}
    with GracefulStop() as stop:
        try:
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs,), daemon=True)
                process.start()
                processes.append(process)
                theirs.close()  # otherwise the end of the process would go unnoticed
                _hand_out(bench, ours, busy)
            while busy:
                for connection in wait(list(busy), timeout=1.0):
                    _listen(bench, connection, busy, stop)  # type: ignore[arg-type]
                if stop.received is not None:
                    bench.stop(stop.received)
                    for process in processes:
                        process.terminate()
        finally:
            for process in processes:
                process.terminate()
                process.join()


def _hand_out(bench: Bench, connection: Connection, busy: dict[Connection, str]) -> None:
    task = bench.next()
    connection.send(task)
    if task is not None:
        busy[connection] = task.name


def _listen(bench: Bench, connection: Connection, busy: dict[Connection, str], stop: GracefulStop) -> None:
    """Answer one message of a process: a question, an outcome, or what went wrong."""
    name = busy[connection]
    try:
        message = connection.recv()
    except (EOFError, ConnectionResetError):
        if stop.received is None:
            raise RuntimeError(f"the process that played {name} died; the same command goes on from there") from None
        del busy[connection]
        return
    if isinstance(message, Exception):
        raise message
    if isinstance(message, Outcome):
        del busy[connection]
        bench.finish(name, message)
        _hand_out(bench, connection, busy)
    else:
        connection.send(bench.ask(name, *message))


def _serve(connection: Connection) -> None:
    """Play what is handed out, in a process of its own, until there is no more or nobody listens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches every process; a run in progress handles it itself
    stop_with_parent()
    torch.set_num_threads(1)

    def ask(round_: int, value: float) -> bool:
        connection.send((round_, value))
        return bool(connection.recv())

    with contextlib.suppress(EOFError, ConnectionError):
        while (task := connection.recv()) is not None:
            connection.send(_attempt(task, ask))


def _attempt(task: Task, ask: Ask) -> Outcome | Exception:
    try:
        return play(task, ask)
    except SettingsError as error:
        return error
    except Exception:  # told to the process that can show it
        return RuntimeError(f"{task.name} failed:\n{traceback.format_exc()}")
