"""What can be chosen: lists, descriptions, help and the schema of the settings file."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from fedtide.core import plugins
from fedtide.settings.experiment import Experiment
from fedtide.settings.reading.references import REFERENCES

SHIPPED = Path(__file__).parents[2] / "params.yaml"


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
        for way in ("  down: ", "  up:") if kind == "algorithms" else ():
            (line,) = [line for line in settings if line.startswith(way)]
            assert line.partition(":")[2].strip()


def test_show_gives_bounds_search_range_and_traffic(fedtide):
    text = "\n".join(fedtide("show", "algorithm", "scaffold").out)
    assert "server_lr = 1.0  (>= 0, searched in [0.1, 1.5])  server step size" in text
    assert "option = II  (one of I, II)" in text
    assert "  down: w, c\n  up:   W, c_k\n  kept by the server: c\n  kept by each client: c_k" in text


def accepts(schema, value, root):
    """Whether a part of a JSON Schema, whose definitions are at its root, accepts a value."""
    return Draft202012Validator({**schema, "$defs": root["$defs"]}).is_valid(value)


@pytest.fixture(scope="module")
def schema():
    return Experiment.model_json_schema()


@pytest.mark.slow
def test_the_schema_is_printed(schema, fedtide):
    assert json.loads("\n".join(fedtide("schema").out)) == json.loads(json.dumps(schema))


def test_the_schema_accepts_the_shipped_settings(schema):
    shipped = yaml.safe_load(SHIPPED.read_text())
    assert accepts(schema, shipped, schema)
    for key, item in shipped.items():
        assert accepts(schema["properties"][key], item, schema)
