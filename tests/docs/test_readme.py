"""What README.md, CONTRIBUTING.md and the guides show works: example plug-ins run, commands parse, links lead somewhere."""

import json
import math
import re

import pytest
from printed_commands import PAGES, ROOT

import fedtide as package
from fedtide.core import plugins

OTHERS = ("CHANGELOG.md", "benchmarks/README.md", "benchmarks/peers.md")
DOCUMENTS = PAGES | {name: (ROOT / name).read_text(encoding="utf-8") for name in OTHERS}
GUIDES = ("start", "compare_methods", "own_data", "own_method", "concepts")
EXTENSIONS = ("extend", "extend_algorithms", "extend_worlds", "extend_data", "extend_server")
SHOWN = ("README.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in (*GUIDES, *EXTENSIONS)))
TEXT = "\n".join(DOCUMENTS[name] for name in SHOWN)
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
