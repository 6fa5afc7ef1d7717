"""Writes into the pages what the package itself knows: plug-ins, settings, public names.

A line ``<!-- generated: plugins algorithms -->`` of a page is replaced by Markdown before the page is parsed:

* ``plugins KIND [DEPTH]``: a table of all plug-ins of a kind, then a section of heading level DEPTH (2) for each;
* ``settings``: all settings of ``params.yaml``, group by group, from their JSON Schema;
* ``python NAME ...``: the documentation of public names of the package.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

import fedtide
from fedtide.core import plugins
from fedtide.settings.experiment import Experiment

MARKER = re.compile(r"^<!-- generated: (\w+)(.*?) -->$", re.MULTILINE)
BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
TYPES = {"integer": "integer", "number": "number", "boolean": "`true` or `false`", "string": "text", "null": "`null`"}
PAGES = {"algorithms": "algorithms.md"}  # the page that describes a kind, where it is not plugins.md


# Docstrings


def markdown(docstring: str) -> str:
    """A docstring in Markdown: code spans are the same in both, indented blocks too; roles and tables are not."""
    text = re.sub(r":[\w:]+:`~?([^`]+)`", r"`\1`", docstring)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    return re.sub(r"^=+ =+$.*^=+ =+$", lambda table: f"```text\n{table[0]}\n```", text, flags=re.MULTILINE | re.DOTALL)


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|")


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table, followed by an empty line."""
    lines = [head, ["---"] * len(head), *([cell(text) for text in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


# Settings


def value(default: Any) -> str:
    """A default as one would write it in YAML."""
    if isinstance(default, dict):
        default = default.get("name", default)
    if default is None or isinstance(default, bool):
        return f"`{str(default).lower().replace('none', 'null')}`"
    if isinstance(default, list):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`" if default not in ("", {}) else "empty"


def plugin_kind(schema: dict[str, Any]) -> str | None:
    """The kind of plug-in that a setting chooses."""
    names = next((option["enum"] for option in schema.get("anyOf", ()) if "enum" in option), None)
    return next((kind for kind in plugins.KINDS if names == plugins.names(kind)), None)


def named_groups(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The groups of settings that a setting chooses from, by name, unless they are those of plug-ins."""
    options = () if plugin_kind(schema) else schema.get("anyOf", ())
    groups = [option for option in options if "const" in option.get("properties", {}).get("name", ())]
    return {option["properties"]["name"]["const"]: option for option in groups}


def allowed(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Type, bounds, choices and search range of a setting, in words."""
    if kind := plugin_kind(schema):
        return f"[{kind}]({PAGES.get(kind, 'plugins.md')}#{kind}-list)"
    if groups := named_groups(schema):
        return f"group; `name` is one of {', '.join(f'`{name}`' for name in groups)}"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(allowed(option, definitions) for option in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list; each: {allowed(schema['items'], definitions)}" if "items" in schema else "list"
    if schema.get("type") == "object" or "$ref" in schema:
        return "mapping"
    parts = [TYPES.get(schema.get("type", ""), "any value")]
    parts += [f"{sign} {schema[key]:g}" for key, sign in BOUNDS.items() if abs(schema.get(key, 2**63)) < 2**63]
    if tune := schema.get("tune"):
        scale = " on a log scale" if tune.get("log") else ""
        parts.append(f"tuned from {tune['low']:g} to {tune['high']:g}{scale}")
    return ", ".join(parts)


def resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The definition that a reference means."""
    return definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def rows(schema: dict[str, Any], definitions: dict[str, Any], prefix: str = "") -> Iterator[list[str]]:
    """Key, default, what is allowed and meaning of every setting of a group; groups inside it follow with their keys."""
    for name, item in schema.get("properties", {}).items():
        if name == "name":
            continue
        key = f"{prefix}{name}"
        default = value(item["default"]) if "default" in item else "required"
        yield [f"`{key}`", default, allowed(item, definitions), item.get("description", "")]
        for chosen, part in named_groups(item).items():
            for row in rows(part, definitions, f"{key}."):
                yield [*row[:3], f"`{chosen}`: {row[3]}"]


HEAD = ["setting", "default", "allowed", "meaning"]


def settings_table(schema: dict[str, Any], definitions: dict[str, Any], prefix: str = "") -> list[str]:
    """Table of a group's settings."""
    found = list(rows(schema, definitions, prefix))
    return table(HEAD, found) if found else ["No settings.", ""]


def settings() -> list[str]:
    """Top-level settings first, then one section for each group."""
    schema = Experiment.model_json_schema()
    definitions, properties = schema["$defs"], schema["properties"]
    groups = {name: item for name, item in properties.items() if "$ref" in item}
    single = {"properties": {name: item for name, item in properties.items() if name not in groups}}
    lines = ["## Top level", "", *settings_table(single, definitions)]
    for name, item in groups.items():
        group = resolved(item, definitions)
        lines += [f"(settings-{name})=", f"## {name}", "", markdown(group.get("description", "")), ""]
        lines += settings_table(group, definitions, f"{name}.")
    return lines


# Plug-ins


def describe(kind: str, name: str) -> list[str]:
    """Documentation, settings and, for algorithms, traffic and memories of one plug-in."""
    cls: Any = plugins.load(kind, name)
    schema = cls.Settings.model_json_schema()
    lines = [markdown(inspect.getdoc(cls) or ""), ""]
    if kind == "algorithms":
        a = cls(cls.Settings(name=name))  # what depends on settings is shown for the defaults
        vectors = {"sends down": a.down, "sends up": a.up, "server keeps": a.server, "client keeps": a.client}
        code = {
            way: ", ".join(f"`{getattr(vector, 'name', vector)}`" for vector in found) or "nothing"
            for way, found in vectors.items()
        }
        lines += table(list(code), [list(code.values())])
    return lines + settings_table(schema, schema.get("$defs", {}))


def catalog(kind: str, depth: str = "2") -> list[str]:
    """Table of contents of a kind, then its plug-ins."""
    names = plugins.names(kind)
    summaries = [[f"[{name}](#{kind}-{name})", plugins.summary(kind, name)] for name in names]
    lines = [f"({kind}-list)=", *(table(["name", "what it is"], summaries) if names else ["None is built in.", ""])]
    for name in names:
        lines += [f"({kind}-{name})=", f"{'#' * int(depth)} {name}", "", *describe(kind, name)]
    return lines


# Public names


def python(*names: str) -> list[str]:
    """Autodoc directives for public names of the package."""
    public = fedtide.__all__
    lines = ["```{eval-rst}"]
    for name in names:
        if name not in public:
            raise ExtensionError(f"fedtide.{name} is not public; fedtide.__all__ has {', '.join(public)}")
        found = getattr(fedtide, name)
        members = [] if hasattr(found, "model_fields") or not inspect.isclass(found) else ["   :members:"]
        lines += [f".. auto{'class' if inspect.isclass(found) else 'function'}:: fedtide.{name}", *members, ""]
    return [*lines, "```"]


WRITERS = {"plugins": catalog, "settings": settings, "python": python}


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the markers of a page."""
    source[0] = MARKER.sub(lambda found: "\n".join(WRITERS[found[1]](*found[2].split())), source[0])


def downloads(app: Sphinx, page: str, source: list[str]) -> None:
    """The changelog and files in ``results/`` and ``benchmarks/`` are no pages of the site: a link to one is a download."""
    source[0] = re.sub(r"\]\((?=(\.\./)+((results|benchmarks)/|CHANGELOG\.md))", "](path:", source[0])


def outdated(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Pages with markers: they depend on the package, not on their file alone."""
    return [page for page in env.found_docs if MARKER.search(env.doc2path(page).read_text(encoding="utf-8"))]


def readable(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """``|K|`` in a docstring is the size of a set, not a substitution; ``w, b: text`` names two attributes, no type."""
    for place, line in enumerate(lines):
        parts = re.sub(r"^\s+\w+(, \w+)+: ", lambda names: names[0].replace(", ", ","), line).split("``")
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
        lines[place] = "``".join(parts)


def short_signature(app: Sphinx, what: str, name: str, found: object, *rest: object) -> tuple[str, None] | None:
    """Settings are documented on a page of their own; no signature lists them all."""
    return ("", None) if hasattr(found, "model_fields") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", fill)
    app.connect("source-read", downloads)
    app.connect("env-get-outdated", outdated)
    app.connect("autodoc-process-docstring", readable, priority=400)
    app.connect("autodoc-process-signature", short_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
