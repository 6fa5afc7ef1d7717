"""Reading a pickle without running it: plain containers, text and numbers only."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError

_PLAIN = (str, int, float, bool, type(None))


class _PlainUnpickler(pickle.Unpickler):
    """Refuses every class and function by name, and every reference to objects outside the file."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside the file")


def load_plain(path: Path) -> Any:
    """The content of a pickle made of dict, list, tuple, str, int, float, bool and None; nothing else is constructed.

    Raises:
        SettingsError: the file is no pickle, or holds or names anything else.
    """
    try:
        with path.open("rb") as stream:
            content = _PlainUnpickler(stream).load()
        _check(content)
    except OSError as error:
        raise SettingsError(f"scenario.file = {str(path)!r} cannot be read: {error.strerror}") from None
    except Exception as error:  # a damaged pickle fails in any way at all
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SettingsError(f"{path} is not a pickle of plain containers, text and numbers: {reason}") from None
    return content


def _check(content: Any) -> None:
    todo, seen = [content], set[int]()
    while todo:
        item = todo.pop()
        if type(item) in (dict, list, tuple):
            if id(item) not in seen:  # a list may hold itself
                seen.add(id(item))
                todo.extend([*item.keys(), *item.values()] if isinstance(item, dict) else item)
        elif type(item) not in _PLAIN:
            raise pickle.UnpicklingError(f"it holds a {type(item).__name__}")
