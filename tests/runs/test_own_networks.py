"""Runs of a network of the user's: what is in the run key, what is recorded, which status bad input has."""

import importlib.metadata
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fedtide.runs.open_run import run_key
from fedtide.settings.params import Params
from small_runs import events

NETS = """
import torchvision
from torch import nn

from .parts import WIDTH


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        import own_extra
        self.stack = nn.Sequential(nn.Flatten(), nn.LazyLinear(WIDTH), nn.ReLU(), nn.Dropout(0.5))
        self.fc = nn.Linear(WIDTH, classes)

    def forward(self, x):
        return self.fc(self.stack(x))
"""
FILES = {
    "own_package/__init__.py": "",
    "own_package/nets.py": NETS,
    "own_package/parts.py": "WIDTH = 5  # units\n",
    "own_package/other.py": "NOBODY = 'imports this'\n",
    "own_extra.py": "VALUE = 1\n",
}
MODEL = {"name": "module", "path": "own_package.nets:Net"}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Writes the package, with other contents where given, into a new folder, which becomes the working directory."""
    known, count = set(sys.path), iter(range(100))

    def write(contents: dict[str, str] | None = None) -> Path:
        root = tmp_path / f"copy{next(count)}"
        for name, text in {**FILES, **(contents or {})}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        monkeypatch.chdir(root)
        sys.path[:] = [path for path in sys.path if path in known]
        return root

    yield write
    sys.path[:] = [path for path in sys.path if path in known]
    for name in [name for name in sys.modules if name.startswith(("own_package", "own_extra"))]:
        del sys.modules[name]


def key(**model: Any) -> str:
    data: Any = SimpleNamespace(digest="of the data")
    return run_key(Params({"model": {**MODEL, **model}}).run(), data)


def test_sources_that_are_imported_are_in_the_key(written: Any) -> None:
    written()
    before = key()
    assert "own_package.nets" not in sys.modules  # nothing is imported for it
    written({"own_package/parts.py": "# Other words.\nWIDTH = 5\n", "own_package/other.py": "NOBODY = 2\n"})
    assert key() == before
    changes = ("own_package/parts.py", "WIDTH = 6"), ("own_extra.py", "VALUE = 2"), ("own_package/__init__.py", "X = 1")
    for name, text in changes:
        written({name: text})
        assert key() != before, name


def test_the_content_of_weights_is_in_the_key_and_their_path_is_not(written: Any) -> None:
    root = written()
    for name, value in (("a.pt", 0.0), ("b.pt", 1.0)):
        torch.save({"fc.bias": torch.tensor(value)}, root / name)
    (root / "c.pt").write_bytes((root / "a.pt").read_bytes())
    none, a, b, c = (key(weights=name) for name in (None, "a.pt", "b.pt", "c.pt"))
    assert a == c
    assert len({none, a, b}) == 3
    with pytest.raises(ValueError, match=r"model module: no file d\.pt"):
        key(weights="d.pt")


@pytest.mark.slow
def test_a_run_of_the_command_line(written: Any, folder: Path, fedtide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is found in the working directory; versions are recorded; bad input is one line and status 2."""
    root = written()
    (root / "params.yaml").write_text((folder / "params.yaml").read_text())
    chosen = ["--set", "model={name: module, path: 'own_package.nets:Net', freeze: [stack]}"]
    called = fedtide("run", "--json", *chosen)
    assert called.status == 0, called.err
    assert any(line.startswith("60 parameters") for line in called.err)
    summary = json.loads(called.out[-1])
    directory = root / "runs" / summary["run_key"]
    (versions,) = [event["versions"] for event in events(directory, "libraries")]
    assert versions["torch"] == importlib.metadata.version("torch")
    assert "torchvision" in versions
    model = torch.load(directory / "model.pt", weights_only=True)
    assert set(model) == {"stack.1.weight", "stack.1.bias", "fc.weight", "fc.bias"}
    for bad in ("own_package.nest:Net", "own_package.nets:Ent"):
        assert bad in fedtide("run", "--json", "--set", f"model={{name: module, path: '{bad}'}}").refusal
    assert len(list((root / "runs").glob("fedavg*"))) == 1
