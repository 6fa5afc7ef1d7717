"""Bad input generated from the JSON Schema of the settings file: every key with values that the schema refuses."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_choices import accepts

from commands import Fedtide
from fedtide.core.errors import SettingsError
from fedtide.core.randomness import generator
from fedtide.settings.experiment import Experiment
from fedtide.settings.params import Params

ODD = (
    None,
    True,
    -1,
    10**30,
    -1.5,
    "",
    "x" * 10_000,
    "ünïcødé \u202e\U0001f40c",
    [],
    [[]],
    {},
    {"no_such_key": 1},
    "1",
)
SAMPLE = 40


@cache
def whole_schema() -> dict[str, Any]:
    """Of the settings file."""
    return Experiment.model_json_schema()


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without a reference at its top."""
    return whole_schema()["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def keys(
    schema: dict[str, Any], place: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]]:
    """Path and schema of every setting, and what else must be there: the name of the plug-in that has it, and what it needs."""
    for key, inner in schema.get("properties", {}).items():
        part = resolved(inner)
        yield (*place, key), part, {}
        if "properties" in part:
            yield from keys(part, (*place, key))
        for option in part.get("anyOf", ()):
            if name := option.get("properties", {}).get("name", {}).get("const"):
                wanted = {other: option["properties"][other] for other in option.get("required", ())}
                needed = {other: part["minimum"] for other, part in wanted.items() if "minimum" in part}
                for path, own, _ in keys(option, (*place, key)):
                    yield path, own, {**needed, "name": name}


def bounds(schema: dict[str, Any]) -> list[Any]:
    """Numbers just outside the bounds of a setting."""
    options = [schema, *schema.get("anyOf", ())]
    below = [item[bound] - 1 for item in options for bound in ("minimum", "exclusiveMinimum") if bound in item]
    above = [item[bound] + 1 for item in options for bound in ("maximum", "exclusiveMaximum") if bound in item]
    return below + above


@cache
def cases() -> list[tuple[str, dict[str, Any], str]]:
    """Name, settings and a key that the message names; settings that the schema accepts are left out."""
    found = []
    for path, schema, beside in keys(whole_schema()):
        if path[-1] == "name":
            continue
        for value in (*ODD, *bounds(schema)):
            node: Any = value
            for depth in range(len(path) - 1, -1, -1):
                node = {path[depth]: node}
            if beside:
                node[path[0]] = {**beside, **node[path[0]]}
            if not accepts(schema, value, whole_schema()):
                found.append((f"{'.'.join(path)} of {beside.get('name', '')} = {value!r:.30}", node, path[-1]))
        if len(path) == 1:
            found.append((f"{path[0]}x", {f"{path[0]}x": 1}, f"{path[0]}x"))
    order = generator(0, "bad input").permutation(len(found))
    return [found[place] for place in order]


def refused(fedtide: Fedtide, folder: Path, settings: dict[str, Any], key: str) -> str | None:
    """What is wrong with the program's answer, if anything."""
    (folder / "given.yaml").write_text(json.dumps(settings))
    before = {path for path in folder.rglob("*") if "data" not in path.parts}
    called = fedtide("run", "-q", "--params", "given.yaml")
    after = {path for path in folder.rglob("*") if "data" not in path.parts}
    if called.status != 2 or len(called.err) != 1 or called.out or after - before - {folder / "runs"}:
        return f"{called.status} {called.err[-1:]} {after - before}"
    named = key in called.err[0] or (key in ("algorithm", "initializer") and "label: " in called.err[0])
    return None if named and len(called.err[0]) < 3000 else called.err[0]


def check(fedtide: Fedtide, folder: Path, chosen: list[tuple[str, dict[str, Any], str]]) -> None:
    found = {name: problem for name, settings, key in chosen if (problem := refused(fedtide, folder, settings, key))}
    assert not found, "\n".join(f"{name}: {problem}" for name, problem in found.items())


@pytest.mark.slow
def test_a_sample_of_bad_settings(fedtide: Fedtide, folder: Path) -> None:
    check(fedtide, folder, cases()[:SAMPLE])


@pytest.mark.slow
def test_every_bad_setting_is_refused_when_it_is_read() -> None:
    assert len(cases()) > 5000
    for name, settings, _ in cases():
        with pytest.raises(SettingsError) as caught:
            Params(settings, name)
        assert "\n" not in str(caught.value)
