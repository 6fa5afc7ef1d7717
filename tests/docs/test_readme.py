"""What README.md, CONTRIBUTING.md and the guides show works: example plug-ins run, commands parse, links lead somewhere."""

import csv
import json
import math
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

import fedtide as package
from fedtide.core import plugins
from support import light

ROOT = Path(__file__).parents[2]
FILES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "benchmarks/peers.md")
    ),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/reports").glob("*.md")),
]
DOCUMENTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
GUIDES = (
    *(
        "README.md",
        "CONTRIBUTING.md",
        "docs/start.md",
        "docs/compare_methods.md",
        "docs/own_data.md",
        "docs/own_method.md",
    ),
    *("docs/concepts.md", "docs/extend.md", "docs/extend_algorithms.md", "docs/extend_worlds.md"),
    *("docs/extend_data.md", "docs/extend_server.md"),
)
TEXT = "\n".join(DOCUMENTS[name] for name in GUIDES)
CHOSEN_BY = {
    "aggregation": "aggregation={}", "attacks": "attack={{name: {}, share: 0.5}}",
    "algorithms": "algorithm={}", "data": "data={}", "communication": "communication={}",
    "initializers": "initializer={}", "models": "model={}", "objectives": "objective={}",
    "participation": "participation={}", "partitions": "partition={}", "scenarios": "scenario={{name: {}}}",
    "selection": "communication={{name: intervals, selection: {}}}", "uplink": "uplink=[{}]",
    "detectors": "detector={}", "drift": "drift={}", "weighting": "algorithm={{name: fedavg, weighting: {}}}",
    "erasers": "erase=[{{name: {}, clients: [1], at: {{session: 2}}}}]",
}  # fmt: skip
EXAMPLES = {
    f"{kind}-{name}": (code, kind, name)
    for code, kind, name in re.findall(r"```python\n(# (\w+)/(\w+)\.py\n.*?)```", TEXT, re.DOTALL)
}
BLOCKS = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)).replace("\\\n", "")
COMMANDS = sorted({
    *re.findall(r"^(fedtide .*)$", BLOCKS, re.MULTILINE), *re.findall(r"`(fedtide [a-z][^`A-Z]*)`", TEXT)
})  # fmt: skip
PUBLIC = package.__all__
PYTHON = re.findall(r"```python\n(import fedtide\n.*?)```", TEXT, re.DOTALL)


def test_every_kind_of_plugin_is_shown():
    assert {kind for _, kind, _ in EXAMPLES.values()} == set(plugins.KINDS) == set(CHOSEN_BY)


@pytest.mark.parametrize(("code", "kind", "name"), EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_is_listed_described_and_run(own, fedtide, code, kind, name):
    (own / kind).mkdir(parents=True)
    (own / kind / f"{name}.py").write_text(code)
    rows = {row["name"]: row["summary"] for row in json.loads(fedtide("list", kind, "--json").out[-1])}
    assert rows[name]
    described = "\n".join(fedtide("show", kind, name).out)
    settings = plugins.load(kind, name).Settings
    assert settings.model_fields["name"].default == name
    assert all(key in described for key in settings.model_fields.keys() - {"name"})
    called = fedtide("run", "--json", "--set", CHOSEN_BY[kind].format(name))
    assert called.status == 0, called.err
    summary = json.loads(called.out[-1])
    assert summary["state"] == "complete"
    assert math.isfinite(summary["final_accuracy"])


@pytest.mark.slow
def test_clients_and_times_of_an_own_dataset_are_those_of_the_run(own, fedtide):
    code, kind, name = EXAMPLES["data-visits"]
    (own / kind).mkdir(parents=True)
    (own / kind / f"{name}.py").write_text(code)
    (line,) = (line for line in COMMANDS if f"data={name}" in line)
    called = fedtide("run", "--json", *shlex.split(line)[2:])
    assert called.status == 0, called.err
    (history,) = Path("runs").glob("*/history.csv")
    rows = list(csv.DictReader(history.open()))
    assert [row["session"] for row in rows] == [str(month) for month in range(1, 8) for _ in range(2)]
    assert {row["present"] for row in rows} == {"3"}


@pytest.mark.slow
def test_a_network_that_exists_already_is_trained(folder, fedtide, monkeypatch):
    (code,) = re.findall(r"```python\n(# nets\.py\n.*?)```", DOCUMENTS["docs/extend_data.md"], re.DOTALL)
    (folder / "nets.py").write_text(code)
    monkeypatch.setattr(sys, "path", list(sys.path))
    runpy.run_path(str(folder / "nets.py"), run_name="__main__")
    sizes = []
    lines = [line for line in COMMANDS if "nets:Net" in line]
    for line in lines:
        words = shlex.split(line)[2:]
        little = [word.replace("=creff", f"={json.dumps(light('creff'))}") for word in words]
        called = fedtide("run", "--json", *little)
        assert called.status == 0, called.err
        sizes += [int(line.split()[0]) for line in called.err if " parameters; " in line]
    assert sorted(sizes) == [170, 202, 714]  # the head; with the norm; all, of 32 channels
    del sys.modules["nets"]


def test_the_lines_of_python_run(folder, capsys):
    first, *others = PYTHON
    assert set(others) <= {first}
    names: dict[str, object] = {}
    exec(first, names)
    assert list(names["result"].runs.state) == ["complete"]
    assert list(names["frames"].runs.state) == ["complete"]
    assert "fedavg" in capsys.readouterr().out


def test_the_python_reference_has_every_public_name():
    named = re.findall(r"<!-- generated: python (.*) -->", DOCUMENTS["docs/python.md"])
    assert sorted(" ".join(named).split()) == sorted(set(PUBLIC) - {"__version__"})


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", DOCUMENTS[document])
    folder = (ROOT / document).parent
    assert [target for target in targets if not (folder / target).exists()] == []
