"""Settings that name a plug-in and hold its settings: ``{name: scaffold, server_lr: 0.5}``, or just the name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, SerializeAsAny
from pydantic_core import CoreSchema

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.core.plugins import PluginSettings


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with its definitions inlined: inside a larger schema, its references would point to the wrong root."""
    definitions = {f"#/$defs/{name}": part for name, part in schema.pop("$defs", {}).items()}

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(item) for item in part]
        if not isinstance(part, dict):
            return part
        if part.get("$ref") in definitions:
            return inline(definitions[part["$ref"]])
        return {key: inline(value) for key, value in part.items() if key != "discriminator"}

    inlined: dict[str, Any] = inline(schema)
    return inlined


class Choice:
    """Validates ``{name: ..., ...}`` (or just a name) with the settings class of the plug-in it names."""

    def __init__(self, kind: str, default: str) -> None:
        self.kind, self.default = kind, default

    def __call__(self, value: Any) -> Any:
        if isinstance(value, PluginSettings):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, Mapping):
            raise SettingsError(f"should be a name or a mapping with `name`, got {value!r}")
        name = value.get("name", self.default)
        if not isinstance(name, str):
            raise SettingsError(f"name should be a word, got {name!r}")
        cls = plugins.load(self.kind, name)
        return cls.Settings.model_validate_json(json.dumps({**value, "name": name}), strict=True)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        options, names = [], [name for name in plugins.names(self.kind) if not plugins.unusable(self.kind, name)]
        for name in names:
            schema = _inlined(plugins.load(self.kind, name).Settings.model_json_schema())
            schema["properties"]["name"] = {"const": name}
            if name == self.default:  # which is meant where no name is given
                schema["required"] = [key for key in schema.get("required", ()) if key != "name"]
            options.append(schema)
        return {"anyOf": [{"enum": names}, *options]}


class ChoiceOrNone(Choice):
    """The same, or ``none``."""

    def __call__(self, value: Any) -> Any:
        return None if value in (None, "none", {"name": "none"}) else super().__call__(value)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [*super().__get_pydantic_json_schema__(core, handler)["anyOf"], {"enum": [None, "none"]}]}


def one_of(union: Any, default: str | None = None) -> Any:
    """Annotation of a field with one of several groups of settings, by name; a mapping without one has the ``default``."""
    kinds = get_args(union)
    names = [kind.model_fields["name"].default for kind in kinds]

    def validate(value: Any) -> Any:
        if isinstance(value, kinds):
            return value
        if value is None and "none" in names:  # YAML's null is read as the word
            value = "none"
        value = {"name": value} if isinstance(value, str) else value
        name = value.get("name", default) if isinstance(value, Mapping) else None
        if not isinstance(name, str):
            raise SettingsError(f"should be {', '.join(names)}, or a mapping with one of them as its name")
        if name not in names:
            raise SettingsError(nearest(f"unknown name {shortened(name)!r}", name, names))
        return {**value, "name": name}

    return Field(discriminator="name"), BeforeValidator(validate)


def choice(kind: str, default: str) -> Any:
    """Annotation of a field with the settings of a plug-in of a kind; without a name, of ``default``."""
    validator = Choice(kind, default)
    return BeforeValidator(validator), validator


def choice_field(default: str, description: str) -> Any:
    """A field whose default is a plug-in, by name."""
    return Field(default, description=description, validate_default=True)


WeightingChoice = Annotated[SerializeAsAny[PluginSettings], *choice("weighting", "samples")]
UplinkChoice = Annotated[SerializeAsAny[PluginSettings], *choice("uplink", "")]
_downlink = ChoiceOrNone("uplink", "")
DownlinkChoice = Annotated[SerializeAsAny[PluginSettings] | None, BeforeValidator(_downlink), _downlink]
AggregationChoice = Annotated[SerializeAsAny[PluginSettings], *choice("aggregation", "mean")]
AttackChoice = Annotated[SerializeAsAny[PluginSettings], *choice("attack", "none")]
SelectionChoice = Annotated[SerializeAsAny[PluginSettings], *choice("selection", "dynacomm")]
