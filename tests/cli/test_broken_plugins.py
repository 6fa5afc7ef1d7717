"""Broken plug-ins: one line with file and line where one is used, a mark in lists, nothing elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import Fedtide

ALGORITHM = "from fedtide.methods.algorithms.base import Algorithm, Local, Term\n"
MODEL = "from torch import nn\nfrom fedtide.training.models.base import Model, Network\n"
DATA = """import torch
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
class D(DatasetPlugin):
    "Four vectors."
    def read(self, raw):
        x, y = torch.rand(8, 2), torch.tensor([0, 1] * 4)
        return Dataset({}, num_classes=2, digest="")
"""
UNUSABLE = {
    "algorithms": {
        "syntax": (b"def f(:\n", ":1: SyntaxError: "),
        "imports": (b"import os\nimport no_such_module\n", ":2: ModuleNotFoundError: No module named 'no_such_module'"),
        "raises": (b"\n\n1 / 0\n", ":3: ZeroDivisionError: division by zero"),
        "exits": (b"import sys\nsys.exit(0)\n", ":2: it ends the program (SystemExit: 0)"),
        "binary": (bytes(range(256)), ": SyntaxError: "),
        "empty": (b"", ": must define exactly one public plug-in class, a subclass of Algorithm; found 0"),
        "two": (ALGORITHM.encode() + b"class A(Algorithm): ...\nclass B(Algorithm): ...\n", "found 2 (A in line 2, B in"),
        "foreign": (MODEL.encode() + b"class M(Model): ...\n", "a subclass of Algorithm; found 0 (M in line 3)"),
        "unset": (
            ALGORITHM.encode() + b"class A(Algorithm):\n    Settings = None\n",
            ":2: A requires a nested class Settings(",
        ),
    },
    "models": {
        "bare_net": (MODEL.encode() + b"class N(nn.Module): ...\n", "a subclass of Model; found 0 (N in line 3)"),
        "hookless": (MODEL.encode() + b"class M(Model): ...\n", ":3: M does not define build"),
    },
}  # fmt: skip
CLASSIFIER = """
class _N(Network):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 3)
    def features(self, inputs):
        return inputs{}
class M(Model):
    def build(self, shape, classes, vocabulary):
        return {}
"""


def hook(name: str, body: str) -> str:
    """An algorithm with a hook."""
    return f"{ALGORITHM}class A(Algorithm):\n    'A.'\n    def {name}(self, r):\n        {body}\n"


def net(made: str, flattened: str = "") -> str:
    """A model that builds this network."""
    return MODEL + CLASSIFIER.format(flattened, made)


def read(samples: str) -> str:
    """A dataset of these samples."""
    return DATA.format(samples)


WRONG = [
    ("algorithms", hook("finish", "return r.w[:3]"), "should return a tensor of shape [650], got [3]"),
    ("algorithms", hook("finish", "return r.w.double()"), "torch.float32 on cpu, got torch.float64 on cpu"),
    ("algorithms", hook("start", "return r.W[:, 0]"), "a tensor of shape [650] or [3, 650], got [3]"),
    ("algorithms", hook("local", "return Local(linear=r.w[1:])"), "of shape [650] or [1, 650] or [3, 650], got [649]"),
    ("algorithms", hook("terms", "return [lambda batch: 0]"), "should return Term, got function"),
    ("algorithms", hook("record", "return {'a': r.w}"), "should return a tensor of shape [3, 1], got [650]"),
    ("data", read("'a', 'vector', x, y.float(), x, y"), "train_labels of type torch.int64 and shape [n], got torch.float32"),
    ("data", read("'a', 'vector', x / 0 * 0, y, x, y"), "finite inputs, got train sample 0 with one that is not"),
    ("data", read("'a', 'image', x, y, x, y"), "train_inputs of kind image, numbers [n, channels, height, width], got"),
    ("models", net("nn.Linear(64, 10)"), "should return Network, got Linear"),
    ("models", net("_N()"), "a network for samples of shape [1, 8, 8]"),
    ("models", net("_N()", ".flatten(1)"), "a network with logits [2, 10] for 2 samples, got [2, 3]"),
]  # fmt: skip


def write(own: Path, kind: str, name: str, content: str | bytes) -> Path:
    file = own / kind / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


@pytest.mark.slow
def test_a_file_that_cannot_be_used_is_one_line_where_it_is_used_and_a_mark_elsewhere(
    fedtide: Fedtide, folder: Path, own: Path
) -> None:
    for kind, files in UNUSABLE.items():
        for name, (content, _) in files.items():
            write(own, kind, name, content)
    for kind, files in UNUSABLE.items():
        listed = fedtide("list", kind, "--json")
        assert listed.status == 0
        rows = {row["name"]: row["summary"] for row in json.loads(listed.out[-1])}
        for name, (_, wanted) in files.items():
            file = str(own / kind / f"{name}.py")
            assert rows[name].startswith(f"broken: {file}")
            assert wanted in rows[name]
            line = fedtide("run", "--set", f"{kind.removesuffix('s')}={name}").refusal
            assert file in line
            assert wanted in line
        assert all(not rows[name].startswith("broken") for name in rows.keys() - files.keys())
    schema = fedtide("schema")
    assert schema.status == 0
    assert len([line for line in schema.err if "not listed: " in line]) == sum(map(len, UNUSABLE.values()))
    names = json.loads("\n".join(schema.out))["properties"]["algorithm"]["anyOf"][0]["enum"]
    assert "fedavg" in names
    assert not set(names) & UNUSABLE["algorithms"].keys()
    assert fedtide("run", "-q").status == 0


def test_brackets_of_a_docstring_are_listed_as_they_are(fedtide: Fedtide, folder: Path, own: Path) -> None:
    write(own, "algorithms", "red", f"{ALGORITHM}class A(Algorithm):\n    'Pulls [bold]all[/red] :fire: [/].'\n")
    called = fedtide("list", "algorithms")
    assert called.status == 0, called
    assert any("Pulls [bold]all[/red] :fire: [/]." in line for line in called.out)


@pytest.mark.parametrize(("kind", "code", "wanted"), WRONG, ids=[wanted for *_, wanted in WRONG])
def test_what_a_plugin_returns_wrongly_is_one_line_with_its_place(
    fedtide: Fedtide, folder: Path, own: Path, kind: str, code: str, wanted: str, request: Any
) -> None:
    name = f"own_{request.node.callspec.indices['wanted']}"
    file = write(own, kind, name, code)
    chosen = f"{{name: {name}, root: {folder}}}" if kind == "data" else name
    line = fedtide("run", "-q", "--set", f"{kind.removesuffix('s')}={chosen}").refusal
    place = {"algorithms": ":4: ", "data": f":6: read of {name} should return ", "models": ":"}[kind]
    assert line.startswith(f"{file}{':5: ' if 'lambda' in line else place}")
    assert wanted in line
    assert not list(folder.glob("runs/*/history.csv"))


@pytest.mark.parametrize("command", ["run", pytest.param("compare", marks=pytest.mark.slow)])
def test_a_crash_inside_a_plugin_is_one_line_with_its_place(
    fedtide: Fedtide, folder: Path, own: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"own_crash_{command}"
    code = hook("finish", "return self.no(r)")
    file = write(own, "algorithms", name, code + "    def no(self, r):\n        raise ValueError('no\\nway')\n")
    settings = ("--set", f"algorithm={name}", "--set", f"compare.algorithms=[{name}]")
    called = fedtide(command, *settings)
    assert called.status == 1
    assert f"{file}:7: in no: ValueError: no way" in called.err[-1]
    assert not [line for line in called.err if line.startswith("Traceback")]
    if command == "run":
        monkeypatch.setenv("FEDTIDE_TRACEBACK", "1")
        again = fedtide(command, *settings)
        assert again.status == 1
        assert [line for line in again.err if line.startswith("Traceback")]
        assert any("in finish" in line for line in again.err)
