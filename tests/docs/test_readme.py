"""What README.md and CONTRIBUTING.md show works: example plug-ins run, commands parse, links lead somewhere."""

import importlib
import json
import math
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from fedtide.cli.main import app
from fedtide.core import plugins
from fedtide.settings.params import Params

ROOT = Path(__file__).parents[2]
DOCUMENTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")}
TEXT = "\n".join(DOCUMENTS.values())
CHOSEN_BY = {
    "algorithms": "algorithm", "data": "data", "exchange": "exchange", "initialisation": "initialiser",
    "models": "model", "objectives": "objective", "participation": "participation", "partitions": "partition",
    "scenarios": "scenario", "weighting": "algorithm.weighting",
}  # fmt: skip
EXAMPLES = re.findall(r"```python\n(# (\w+)/(\w+)\.py\n.*?)```", TEXT, re.DOTALL)
BLOCKS = "\n".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = sorted({
    *re.findall(r"^(fedtide .*)$", BLOCKS, re.MULTILINE), *re.findall(r"`(fedtide [^`]+)`", TEXT)
})  # fmt: skip


@pytest.fixture
def own_plugins(tmp_path, monkeypatch):
    """A folder of plug-ins, forgotten afterwards."""
    root = tmp_path / "own"
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(root))
    loaded = set(sys.modules)
    yield root
    for kind in plugins.KINDS:
        package = importlib.import_module(f"fedtide.{kind}")
        package.__path__[:] = [path for path in package.__path__ if not path.startswith(str(root))]
        for name in [name for name in sys.modules if name not in loaded and name.startswith(f"{package.__name__}.")]:
            if (sys.modules[name].__file__ or "").startswith(str(root)):
                delattr(package, name.rpartition(".")[2])
                del sys.modules[name]


def test_the_readme_shows_an_algorithm():
    assert [kind for _, kind, _ in EXAMPLES].count("algorithms") >= 1


@pytest.mark.parametrize(("code", "kind", "name"), EXAMPLES, ids=[f"{kind}-{name}" for _, kind, name in EXAMPLES])
def test_an_example_is_listed_described_and_played(own_plugins, fedtide, code, kind, name):
    (own_plugins / kind).mkdir(parents=True)
    (own_plugins / kind / f"{name}.py").write_text(code)
    rows = {row["name"]: row["summary"] for row in json.loads(fedtide("list", kind, "--json").out[-1])}
    assert rows[name]
    described = "\n".join(fedtide("show", kind, name).out)
    settings = plugins.load(kind, name).Settings
    assert settings.model_fields["name"].default == name
    assert all(key in described for key in settings.model_fields.keys() - {"name"})
    called = fedtide("run", "--json", "--set", f"{CHOSEN_BY[kind]}={name}")
    assert called.status == 0, called.err
    told = json.loads(called.out[-1])
    assert told["state"] == "complete"
    assert math.isfinite(told["final_accuracy"])


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_parses(line):
    words = shlex.split(line, comments=True)
    for part in [list(words[start:]) for start, word in enumerate(words) if word == "fedtide"]:
        end = next((place for place, word in enumerate(part) if word in ("&&", "|", ";")), len(part))
        name, *arguments = part[1:end]
        command = typer.main.get_command(app).commands[name]
        with command.make_context(name, list(arguments)) as context:
            given = context.params
        if given.get("overrides") and given["params"] == Path("params.yaml"):
            Params.read(ROOT / "params.yaml", given["overrides"])


def test_commands_were_found():
    assert {line.split()[1] for line in COMMANDS} >= {"run", "compare", "report", "tune", "list", "show"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    targets = re.findall(r"\]\(([^)#:]+)\)", DOCUMENTS[document])
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert missing == []


def test_make_targets_exist():
    made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`", TEXT)) | set(re.findall(r"^make ([a-z]+)", BLOCKS, re.MULTILINE))
    assert {"repro", "test"} <= named <= made
