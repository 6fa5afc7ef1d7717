"""Settings that name one of several groups of settings: ``{name: scaffold, server_lr: 0.5}``, or just the name."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, SerializeAsAny
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.core.plugins import PluginSettings, SettingsModel


class Choice:
    """Annotation of a field: its value is validated with the settings class of the name that it has.

    Args:
        options: a kind of plug-ins, or settings classes (one, or a union) whose ``name`` is a literal.
        default: the name that is meant where a mapping has none; None if it has to have one.
        optional: whether the value may be None, or the word ``none``.
    """

    def __init__(self, options: Any, default: str | None = None, *, optional: bool = False) -> None:
        self.kind = options if isinstance(options, str) else ""
        classes: tuple[type[SettingsModel], ...] = () if self.kind else get_args(options) or (options,)
        self.classes = {name: cls for cls in classes for name in get_args(cls.model_fields["name"].annotation)}
        self.default, self.optional = default, optional

    @property
    def names(self) -> list[str]:
        return plugins.names(self.kind) if self.kind else list(self.classes)

    @property
    def common(self) -> frozenset[str]:
        return plugins.common_settings(self.kind) if self.kind else frozenset()

    def settings(self, name: str) -> type[SettingsModel]:
        """The settings class of a name; a SettingsError if there is none."""
        if self.kind:
            plugin: type[SettingsModel] = plugins.load(self.kind, name).Settings
            return plugin
        if name not in self.classes:
            raise SettingsError(nearest(f"unknown name {shortened(name)!r}", name, self.classes))
        return self.classes[name]

    def name_in(self, value: Any) -> str | None:
        """The name that a setting has; None if there is none."""
        name = value.get("name", self.default) if isinstance(value, Mapping) else value
        return name if isinstance(name, str) else None

    def chosen(self, value: Any) -> type[SettingsModel] | None:
        """The settings class of what a setting has, or means if it is not given; None if there is no such class."""
        name = self.default if value is None else self.name_in(value)
        try:
            return self.settings(name) if name else None
        except SettingsError:
            return None

    def validate(self, value: Any) -> Any:
        """The settings that a name or a mapping stands for."""
        if isinstance(value, SettingsModel):
            return value
        if self.optional and value in (None, "none", {"name": "none"}):
            return None
        if value is None and "none" in self.classes:  # YAML's null is read as the word
            value = "none"
        if (name := self.name_in(value)) is None:
            wanted = ", ".join(self.classes) or f"the name of a plug-in in {self.kind}"
            raise SettingsError(
                f"should be {wanted}, or a mapping with one of them as its name, got {shortened(repr(value))}"
            )
        given = value if isinstance(value, Mapping) else {}
        return self.settings(name).model_validate_json(json.dumps({**given, "name": name}), strict=True)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.validate, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = [name for name in self.names if not (self.kind and plugins.broken(self.kind, name, imported=True))]
        options = []
        for name in names:
            schema = dict(handler.resolve_ref_schema(handler(self.settings(name).__pydantic_core_schema__)))
            schema["properties"] = {**schema["properties"], "name": {"const": name}}
            named = [] if name == self.default else ["name"]
            schema["required"] = [*named, *(key for key in schema.get("required", ()) if key != "name")]
            options.append(schema)
        nothing = [{"enum": [None, "none"]}] if self.optional or "none" in self.classes else []
        return {"anyOf": [{"enum": names}, *options, *nothing]}


def choice_field(default: str, description: str) -> Any:
    """A field whose default is a plug-in, by name."""
    return Field(default, description=description)


def choice_of(field: FieldInfo | None) -> Choice | None:
    """The choice that a field is; None if it is another field."""
    return next((item for item in field.metadata if isinstance(item, Choice)), None) if field else None


def kind_of(field: FieldInfo) -> str | None:
    """The kind of the plug-in, or of the plug-ins in a list, that a field chooses; None if it is another field."""
    inner = [item for part in get_args(field.annotation) for item in getattr(part, "__metadata__", ())]
    found = next((item for item in (*field.metadata, *inner) if isinstance(item, Choice)), None)
    return found.kind or None if found else None


def plugins_in(settings: SettingsModel) -> Iterator[tuple[str, str]]:
    """Kind and name of every plug-in that settings choose, at any depth."""
    for name, field in type(settings).model_fields.items():
        value, kind = getattr(settings, name), kind_of(field)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, SettingsModel):
                if kind is not None and isinstance(item, PluginSettings):
                    yield kind, item.name
                yield from plugins_in(item)


def group_at(model: type[SettingsModel], raw: Any, path: Sequence[int | str]) -> type[SettingsModel] | None:
    """The class of the settings at a path below those of a class, as they are given; None if there is no such group."""
    group: type[SettingsModel] | None = model
    for key in path:
        field = group.model_fields.get(str(key)) if group else None
        raw = raw.get(key) if isinstance(raw, Mapping) else None
        if (choice := choice_of(field)) is not None:
            group = choice.chosen(raw)
        else:
            kind = field.annotation if field else None
            group = kind if isinstance(kind, type) and issubclass(kind, SettingsModel) else None
    return group


WeightingChoice = Annotated[SerializeAsAny[PluginSettings], Choice("weighting", "samples")]
UplinkChoice = Annotated[SerializeAsAny[PluginSettings], Choice("uplink")]
DownlinkChoice = Annotated[SerializeAsAny[PluginSettings] | None, Choice("uplink", optional=True)]
AggregationChoice = Annotated[SerializeAsAny[PluginSettings], Choice("aggregation", "mean")]
AttackChoice = Annotated[SerializeAsAny[PluginSettings], Choice("attacks", "none")]
EraseChoice = Annotated[SerializeAsAny[PluginSettings], Choice("erasers")]
SelectionChoice = Annotated[SerializeAsAny[PluginSettings], Choice("selection", "dynacomm")]
