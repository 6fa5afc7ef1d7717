"""Ctrl-C and SIGTERM while work is in progress that should be saved first."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self


class StopSignals:
    """Remembers Ctrl-C and SIGTERM instead of ending the process; a second Ctrl-C ends the process at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
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
        self.received = number
