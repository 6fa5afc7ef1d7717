"""Errors that come from plug-ins, in one line with the file and the line they come from."""

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError, shortened

TRACEBACK = "FEDTIDE_TRACEBACK"
"""Environment variable: if set, the command line shows the whole traceback of an error that it reports in one line."""


class PluginError(SettingsError):
    """A plug-in's file cannot be used, or a hook returned something that violates its contract."""


class PluginCrash(RuntimeError):
    """A hook of a user's plug-in raised an exception, which is this one's cause."""


def describe_fault(error: BaseException, folders: Sequence[Path], file: Path | None = None) -> str | None:
    """``file:line: in function: Type: message`` of the innermost frame of an exception in some folders.

    Without such a frame it is the line of a syntax error there, or ``file``, or the result is ``None``.
    """
    what = shortened(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    if isinstance(error, SystemExit):
        what = f"it ends the program (SystemExit: {error.code})"
    if isinstance(error, SyntaxError) and error.filename and _inside(error.filename, folders):
        line = f":{error.lineno}" if error.lineno else ""
        return f"{error.filename}{line}: {type(error).__name__}: {shortened(error.msg)}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _inside(frame.filename, folders)]
    if frames:
        where = "" if frames[-1].name == "<module>" else f"in {frames[-1].name}: "
        return f"{frames[-1].filename}:{frames[-1].lineno}: {where}{what}"
    return None if file is None else f"{file}: {what}"


def location(function: Any) -> str:
    """``file:line: name `` of a function or method."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: {function.__name__} " if code else ""


def broken_contract(plugin: Any, hook: str, problem: str) -> PluginError:
    """The error of a hook whose result violates its contract; names the line where it is defined."""
    name = getattr(plugin.settings, "name", type(plugin).__name__)
    return PluginError(f"{location(getattr(type(plugin), hook, None)) or f'{hook} '}of {name} should return {problem}")


def _inside(file: str, folders: Sequence[Path]) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in folders)
