"""YAML as people write it: ``1e-3`` is a number, ``0012`` and ``12:30`` are words, and keys are unique."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from fedtide.core.errors import SettingsError

_EXPONENT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")
"""A number of YAML 1.2 that is a word in YAML 1.1, which PyYAML reads."""


_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*|0b[01_]+|0x[0-9a-fA-F_]+)$")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with YAML 1.2's numbers, and dates as words; a duplicate key is an error.

    YAML 1.1 takes ``0012`` for 10 and ``12:30`` for 750; here they are words, which may be names.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.MarkedYAMLError(problem=f"duplicate key {key!r}", problem_mark=key_node.start_mark)
                seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


def read_value(text: str) -> Any:
    """The value that a YAML text stands for; raises a YAMLError, or a RecursionError if it is nested too deeply."""
    return yaml.load(text, _Loader)


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds; a SettingsError if it is something else."""
    try:
        raw = read_value(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        line = " ".join(str(error).replace('in "<unicode string>", ', "").split())
        raise SettingsError(f"{path} is not YAML: {line}") from None
    except RecursionError:
        raise SettingsError(f"{path} is not a settings file: it is nested too deeply") from None
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise SettingsError(f"{path} should be a mapping of settings, got {type(raw).__name__}")
    return raw
