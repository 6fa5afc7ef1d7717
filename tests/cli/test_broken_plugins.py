"""Broken plug-ins: one line with file and line where one is used, a mark in lists, nothing elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

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
HOOKS = {
    "algorithms": {
        "finish": ("return r.w[:3]", "should return a tensor of shape [650], got [3]"),
        "finish_double": ("return r.w.double()", "should return torch.float32 on cpu, got torch.float64 on cpu"),
        "start": ("return r.W[:, 0]", "should return a tensor of shape [650] or [3, 650], got [3]"),
        "local": ("return Local(linear=r.w[1:])", "should return linear of shape [650] or [1, 650] or [3, 650], got [649]"),
        "terms": ("return [lambda batch: 0]", "should return Term, got function"),
        "record": ("return {'a': r.w}", "should return a tensor of shape [3, 1], got [650]"),
    },
}  # fmt: skip
READS = {
    "floats": ("'floats', 'vector', x, y.float(), x, y", "train_labels of type torch.int64 and shape [n], got torch.float32"),
    "missing": ("'missing', 'vector', x / 0 * 0, y, x, y", "finite inputs, got train sample 0 with one that is not"),
    "flat": ("'flat', 'image', x, y, x, y", "train_inputs of kind image, numbers [n, channels, height, width], got"),
}  # fmt: skip


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
            called = fedtide("run", "--set", f"{kind.removesuffix('s')}={name}")
            assert (called.status, called.out) == (2, [])
            (line,) = called.err
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


@pytest.mark.parametrize("hook", HOOKS["algorithms"])
def test_a_hook_that_breaks_its_contract(fedtide: Fedtide, folder: Path, own: Path, hook: str) -> None:
    body, wanted = HOOKS["algorithms"][hook]
    name = hook.split("_")[0]
    code = f"{ALGORITHM}class A(Algorithm):\n    'A.'\n    def {name}(self, r):\n        {body}\n"
    file = write(own, "algorithms", f"own_{hook}", code)
    called = fedtide("run", "-q", "--set", f"algorithm=own_{hook}")
    assert (called.status, called.out) == (2, [])
    (line,) = called.err
    assert line.startswith(f"fedtide: {file}:{5 if 'lambda' in line else 4}: ")
    assert wanted in line
    assert not list(folder.glob("runs/*/history.csv"))


@pytest.mark.parametrize("name", READS)
def test_data_that_cannot_be_trained_on(fedtide: Fedtide, folder: Path, own: Path, name: str) -> None:
    arguments, wanted = READS[name]
    file = write(own, "data", name, DATA.format(arguments))
    called = fedtide("run", "-q", "--set", f"data={{name: {name}, root: {folder}}}")
    assert (called.status, called.out) == (2, [])
    (line,) = called.err
    assert line.startswith(f"fedtide: {file}:6: read of {name} should return ")
    assert wanted in line


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


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        ("nn.Linear(64, 10)", "should return Network, got Linear"),
        ("_N()", "a network for samples of shape [1, 8, 8]"),
        ("_N( )", "a network with logits [2, 10] for 2 samples, got [2, 3]"),
    ],
)
def test_a_model_that_is_no_classifier(fedtide: Fedtide, folder: Path, own: Path, made: str, wanted: str) -> None:
    code = MODEL + CLASSIFIER.format(".flatten(1)" if " )" in made else "", made)
    file = write(own, "models", f"own_{len(made)}", code)
    called = fedtide("run", "-q", "--set", f"model=own_{len(made)}")
    assert (called.status, called.out) == (2, [])
    assert called.err[0].startswith(f"fedtide: {file}:")
    assert wanted in called.err[0]


@pytest.mark.parametrize("command", ["run", pytest.param("compare", marks=pytest.mark.slow)])
def test_a_crash_inside_a_plugin_is_one_line_with_its_place(
    fedtide: Fedtide, folder: Path, own: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"own_crash_{command}"
    code = f"{ALGORITHM}class A(Algorithm):\n    'A.'\n    def finish(self, r):\n        return self.no(r)\n"
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
