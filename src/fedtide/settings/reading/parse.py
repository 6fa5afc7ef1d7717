"""From plain mappings to settings, or to a one-line error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from fedtide.core.errors import SettingsError, nearest, one_line, shortened
from fedtide.core.plugins import SettingsModel
from fedtide.settings.choices import group_at


def parse(
    model: type[SettingsModel],
    raw: Mapping[str, Any],
    source: str | Callable[[tuple[int | str, ...]], str] = "settings",
) -> Any:
    """Validate a plain mapping.

    Args:
        model: of the settings. raw: the mapping.
        source: where the mapping comes from, for messages; or a function from the path of a setting to where that comes from.

    Raises:
        SettingsError: one line: which key, which value, what is allowed.
    """
    try:
        return model.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        raise SettingsError(one_line(error, source, lambda place: _unknown(model, raw, place))) from None
    except TypeError as error:
        where = source if isinstance(source, str) else source(_unwritable(raw))
        raise SettingsError(f"{where}: {error}; use numbers, words, lists and mappings") from None
    except (RecursionError, ValueError) as error:
        raise SettingsError(f"{source if isinstance(source, str) else source(())}: {shortened(str(error))}") from None


def _unwritable(value: Any) -> tuple[int | str, ...]:
    """The path of the first item that has no JSON form."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        try:
            json.dumps({key: item})
        except TypeError:
            return (key, *_unwritable(item))
    return ()


def _unknown(model: type[SettingsModel], raw: Any, place: tuple[int | str, ...]) -> str:
    """Message for the unknown key at a path, with the nearest known one."""
    group, word = group_at(model, raw, place[:-1]), str(place[-1])
    problem = f"unknown key {shortened('.'.join(map(str, place)))!r}"
    return problem if group is None else nearest(problem, word, group.model_fields)
