"""One line of progress: rewritten in a terminal, now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

_LOG_SECONDS = 10.0


@contextmanager
def line_of_progress(console: Console, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """A function that shows the latest line: live in a terminal, at most every ten seconds elsewhere."""
    if quiet:
        yield None
    elif console.is_terminal:
        with Status("starting", console=console) as status:
            yield status.update
    else:
        last = [time.monotonic()]

        def log(line: str) -> None:
            if time.monotonic() - last[0] >= _LOG_SECONDS:
                last[0] = time.monotonic()
                console.print(line, markup=False, soft_wrap=True)

        yield log
