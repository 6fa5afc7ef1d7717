"""The progress of runs that a script or a notebook has started."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fedtide.runs.display.progress import UNWATCHED, Watch

Log = Callable[[str], None]
_SECONDS = 0.25  # between updates of a line in a notebook


@contextmanager
def shown(log: Log | None) -> Iterator[Watch]:
    """What follows runs: ``log``, or by default bars in a terminal, lines in a notebook and nothing elsewhere."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if log is not None:
        yield Watch(log)
    elif _in_notebook():
        yield Watch(print, update=_cell())
    elif console.is_interactive:
        from fedtide.runs.display.bars import Bars

        with Bars(console) as bars:
            yield Watch(partial(console.print, markup=False, soft_wrap=True), bars)
    else:
        yield UNWATCHED


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def _cell() -> Log:
    """Writes a line into the cell's output, over the one before it."""
    ipython: Any = importlib.import_module("IPython.display")
    handle = ipython.display({"text/plain": ""}, raw=True, display_id=True)
    last = [0.0]

    def update(line: str) -> None:
        if time.monotonic() - last[0] >= _SECONDS:
            last[0] = time.monotonic()
            handle.update({"text/plain": line}, raw=True)

    return update
