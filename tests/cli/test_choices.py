"""What can be chosen: lists, descriptions, help and the schema of the settings file."""

import json
from pathlib import Path

import pytest
import typer
import yaml

from fedtide.cli.main import app
from fedtide.core import plugins
from fedtide.settings.experiment import Experiment
from fedtide.settings.reading.references import REFERENCES

SHIPPED = Path(__file__).parents[2] / "params.yaml"
COMMANDS = sorted(typer.main.get_command(app).commands)


@pytest.mark.parametrize("kind", [*plugins.KINDS, "datasets", "algorithm", "dataset", "initializers", "scenario"])
def test_list(fedtide, kind):
    called = fedtide("list", kind, "--json")
    assert called.status == 0
    rows = json.loads(called.out[-1])
    assert rows
    for row in rows:
        assert row.keys() >= {"name", "summary"}
        assert row["summary"].strip().endswith((".", ")"))
        assert "\n" not in row["summary"]
    if kind in plugins.KINDS:
        references = [name for name in REFERENCES if name not in plugins.names(kind)] if kind == "algorithms" else []
        assert [row["name"] for row in rows] == plugins.names(kind) + references
        table = fedtide("list", kind)
        assert all(row["name"] in " ".join(table.out) for row in rows)


@pytest.mark.parametrize("kind", plugins.KINDS)
def test_show_names_every_setting(fedtide, kind):
    for name in plugins.names(kind):
        called = fedtide("show", kind, name)
        assert called.status == 0
        settings = called.out[called.out.index("Settings") :]
        fields = plugins.load(kind, name).Settings.model_fields
        for key in fields.keys() - {"name"}:
            (line,) = [line for line in settings if line.startswith(f"  {key} = ")]
            assert fields[key].description in line
        if kind == "algorithms":
            (down,) = [line for line in settings if line.startswith("  down: ")]
            (up,) = [line for line in settings if line.startswith("  up:")]
            assert down.split(":")[1].split(", ")
            assert up.split(":")[1].strip()


def test_show_gives_bounds_search_range_and_traffic(fedtide):
    text = "\n".join(fedtide("show", "algorithm", "scaffold").out)
    assert "server_lr = 1.0  (>= 0, searched in [0.1, 1.5])  server step size" in text
    assert "option = II  (one of I, II)" in text
    assert "  down: w, c\n  up:   W, c_k\n  kept by the server: c\n  kept by each client: c_k" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help(fedtide, command):
    called = fedtide(command, "--help")
    assert called.status == 0
    assert f"fedtide {command}" in called.out[1] + called.out[0]


def test_help_without_a_command_names_all_of_them(fedtide):
    text = "\n".join(fedtide("--help").out)
    assert all(command in text for command in COMMANDS)


def accepts(schema, value, root):
    """Whether a JSON Schema (the part of the language that settings need) accepts a value."""
    if "$ref" in schema:
        target = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return accepts(target, value, root)
    kinds = {
        "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
        "null": type(None),
    }  # fmt: skip
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return False
    if "anyOf" in schema and not any(accepts(option, value, root) for option in schema["anyOf"]):
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        if any(key not in value for key in schema.get("required", ())):
            return False
        for key, item in value.items():
            inner = known.get(key, others)
            if inner is False or (isinstance(inner, dict) and not accepts(inner, item, root)):
                return False
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return False
        return all(accepts(schema.get("items", {}), item, root) for item in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (
            schema.get("minimum", value) <= value <= schema.get("maximum", value)
            and value > schema.get("exclusiveMinimum", value - 1)
            and value < schema.get("exclusiveMaximum", value + 1)
        )
    return not isinstance(value, str) or len(value) >= schema.get("minLength", 0)


@pytest.fixture(scope="module")
def schema():
    return Experiment.model_json_schema()


def test_the_schema_is_printed(schema, fedtide):
    assert json.loads("\n".join(fedtide("schema").out)) == json.loads(json.dumps(schema))


def test_the_schema_documents_every_setting(schema):
    def references(node):
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for item in node.values():
                yield from references(item)
        if isinstance(node, list):
            for item in node:
                yield from references(item)

    assert schema["properties"].keys() == Experiment.model_fields.keys()
    assert all("description" in item for item in schema["properties"].values())
    assert {reference.removeprefix("#/$defs/") for reference in references(schema)} <= schema["$defs"].keys()


def test_the_schema_accepts_the_shipped_settings(schema):
    shipped = yaml.safe_load(SHIPPED.read_text())
    assert accepts(schema, shipped, schema)
    for key, item in shipped.items():
        assert accepts(schema["properties"][key], item, schema)


@pytest.mark.parametrize(
    "wrong",
    ["locl: {lr: 1}", "local: {learning_rate: 1}", "local: {lr: 0}", "local: {lr: fast}", "algorithm: fedprx",
     "algorithm: {name: fedprox, nu: 1}", "algorithm: {name: fedprox, mu: -1}", "compare: {seeds: []}",
     "compare: {seeds: [-1]}", "scenario: {name: sessions, num_devices: 0}", "engine: {precision: fp8}", "seed: 1.5"],
)  # fmt: skip
def test_the_schema_refuses_what_the_program_refuses(schema, fedtide, folder, wrong):
    assert not accepts(schema, yaml.safe_load(wrong), schema)
    (folder / "wrong.yaml").write_text(wrong)
    assert fedtide("run", "--params", "wrong.yaml").status == 2


def test_the_shipped_settings_are_valid(fedtide, folder, shared_data):
    overrides = ("--set", f"data.root={shared_data}", "--set", "tracking.mlflow=false")
    called = fedtide("download", "--params", str(SHIPPED), *overrides)
    assert (called.status, called.err) == (0, [])
