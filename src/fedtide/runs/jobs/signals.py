"""Ctrl-C, SIGTERM and SIGHUP while work is in progress that should be saved first."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from threading import Event
from types import FrameType
from typing import Any, Self

from fedtide.core.errors import SettingsError

HANGUP = signal.SIGHUP
"""A closed terminal, or a lost connection to it."""

_AGAIN = 0.05  # seconds between two looks for work to interrupt


def stop_signals() -> list[int]:
    """Signals that ask a command to stop; a hangup only if it is not ignored, as ``nohup`` demands."""
    return [signal.SIGINT, signal.SIGTERM, *([HANGUP] if signal.getsignal(HANGUP) != signal.SIG_IGN else [])]


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
def handled(handler: Any, numbers: Sequence[int] | None = None) -> Iterator[None]:
    """These signals, by default those that ask to stop, have a handler inside; only the main thread handles signals."""
    before: dict[int, Any] = {}
    with suppress(ValueError):  # in another thread
        for number in numbers or stop_signals():
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def ended_by_signals() -> AbstractContextManager[None]:
    """Inside, these signals end the process: while it waits for other processes in C++, no handler in Python is called."""
    return handled(signal.SIG_DFL)


class StopSignals:
    """Remembers Ctrl-C, SIGTERM and SIGHUP instead of ending the process; a second Ctrl-C ends the process at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._holding = ExitStack()

    def __enter__(self) -> Self:
        self.restore()
        return self

    def __exit__(self, *_: object) -> None:
        self._holding.close()

    def restore(self) -> None:
        """Take the signals, also back from a library that has replaced the handlers."""
        self._holding.enter_context(handled(self._handle))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received == signal.SIGINT == number:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        if number == HANGUP:
            leave_terminal()
        self.received = number


@contextmanager
def time_limit(seconds: float | None) -> Iterator[Event]:
    """Inside, work is interrupted as by Ctrl-C after so many seconds, None for no limit; the event says that time is over."""
    over = Event()
    if seconds is None:
        yield over
        return
    if not hasattr(signal, "SIGALRM"):
        raise SettingsError(f"a limit of {seconds:g} seconds: this system has no timer signals; leave it out")

    def handle(number: int, frame: FrameType | None) -> None:
        over.set()
        taker = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(taker, StopSignals) and taker.received is None:  # else nothing is in progress yet, or any more
            signal.raise_signal(signal.SIGINT)

    with handled(handle, [signal.SIGALRM]):
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
        try:
            yield over
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
