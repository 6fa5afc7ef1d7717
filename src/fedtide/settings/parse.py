"""From plain mappings to settings, or to one line that says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, one_line
from fedtide.core.plugins import SettingsModel
from fedtide.settings.choices import Choice


def parse(model: type[SettingsModel], raw: Mapping[str, Any], source: str = "settings") -> Any:
    """Validate a plain mapping.

    Raises:
        SettingsError: one line: which key, which value, what is allowed.
    """
    try:
        return model.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        raise SettingsError(one_line(error, source, lambda place: _keys_at(model, raw, place))) from None
    except TypeError as error:
        raise SettingsError(f"{source}: {error}; use numbers, words, lists and mappings") from None


def _keys_at(model: type[SettingsModel], raw: Any, place: tuple[int | str, ...]) -> list[str]:
    """Keys known at the group that ``place`` (a path to an unknown key) lies in."""
    for part in place[:-1]:
        found = model.model_fields.get(str(part))
        raw = raw.get(part) if isinstance(raw, Mapping) else None
        if found is None:
            return []
        choice = next((item for item in found.metadata if isinstance(item, Choice)), None)
        if choice is not None:
            name = raw.get("name", choice.default) if isinstance(raw, Mapping) else choice.default
            model = plugins.load(choice.kind, name).Settings
        elif isinstance(found.annotation, type) and issubclass(found.annotation, SettingsModel):
            model = found.annotation
        else:
            return []
    return list(model.model_fields)
