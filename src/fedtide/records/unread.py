"""Records of runs for scripts, also where pandas is not installed, which no run needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from fedtide.core.errors import SettingsError
from fedtide.core.extras import line, missing

if TYPE_CHECKING:
    from fedtide.records.frames import Records


def _line() -> str:
    return line("report", "reading records", ["pandas"])


class Unread:
    """What a run returns instead of :class:`Records` without pandas; its files are all there.

    Attributes:
        directories: the run directories.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = tuple(directories)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # what Python looks for by itself
            raise AttributeError(name)
        raise SettingsError(f"{name}: {_line()}")

    def __repr__(self) -> str:
        return f"{', '.join(map(str, self.directories))}: {_line()}"


def records_of(directories: Sequence[Path]) -> Records:
    """The records of run directories as frames, or an :class:`Unread`; raises as :func:`fedtide.records.frames.load`."""
    if "pandas" in missing("data"):
        found: Any = Unread(directories)
        return cast("Records", found)
    from fedtide.records.frames import load  # takes long to import

    return load(directories)
