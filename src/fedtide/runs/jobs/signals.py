"""Ctrl-C, SIGTERM and SIGHUP while work is in progress that should be saved first."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

HANGUP: int | None = getattr(signal, "SIGHUP", None)
"""A closed terminal, or a lost connection to it; not on every system."""


def stop_signals() -> list[int]:
    """Signals that ask a command to stop; a hangup only if it is not ignored, as ``nohup`` demands."""
    caught = [] if HANGUP is None or signal.getsignal(HANGUP) == signal.SIG_IGN else [HANGUP]
    return [signal.SIGINT, signal.SIGTERM, *caught]


def leave_terminal() -> None:
    """After a hangup: print to nowhere, where a terminal that is gone would raise an error."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream)
            os.close(nowhere)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, these signals end the process: while it waits for other processes in C++, no handler in Python is called."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class StopSignals:
    """Remembers Ctrl-C, SIGTERM and SIGHUP instead of ending the process; a second Ctrl-C ends the process at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in stop_signals():
            try:
                self._before[number] = signal.signal(number, self._handle)
            except ValueError:  # signals are handled in the main thread only
                return self
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def restore(self) -> None:
        """Take the signals back from a library that has replaced the handlers."""
        for number in self._before:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received == signal.SIGINT == number:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        if number == HANGUP:
            leave_terminal()
        self.received = number
