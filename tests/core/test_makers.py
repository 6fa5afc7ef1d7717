"""What an import path in a settings file may call."""

import sys
from pathlib import Path

import pytest
from torch import nn

from fedtide.core.discovery.imports import make, maker_of
from fedtide.core.errors import SettingsError

MODULE = """
from __future__ import annotations

import functools
import subprocess
from subprocess import check_output

from torch import nn


class Net(nn.Linear):
    pass


def unannotated(size):
    return nn.Linear(size, 2)


def annotated(size) -> nn.Linear:
    return nn.Linear(size, 2)


def of_checkers(size) -> OnlyForTypeCheckers:
    return nn.Linear(size, 2)


def other(size) -> int:
    raise AssertionError("called")


bound = functools.partial(subprocess.check_output, ["touch", "called"])
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a module of the user's."""
    (tmp_path / "own_makers.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "own_makers", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("subprocess:check_output", "; this one is not annotated to return it, so call it in a function of your own"),
        ("own_makers:subprocess.check_output", "; this one is not annotated"),
        ("subprocess:Popen", ", got the class Popen"),
        ("own_makers:other", ", got a function that returns int"),
        ("own_makers:bound", ", got partial"),
        ("fedtide.core.discovery.imports:named", "; this one is not annotated"),
    ],
)
def test_what_does_not_say_that_it_makes_such_a_thing_is_refused_and_not_called(
    path: str, reason: str, folder: Path
) -> None:
    with pytest.raises(SettingsError) as refusal:
        make(path, {"args": ["touch", "called"]}, nn.Module, "model")
    prefix = f"model.path = {path!r}: should be a class or function that makes a torch.nn.Module"
    assert str(refusal.value).startswith(prefix + reason)
    assert not (folder / "called").exists()


@pytest.mark.parametrize("name", ["unannotated", "annotated", "of_checkers"])
def test_the_users_own_functions_need_no_annotation(name: str) -> None:
    assert isinstance(make(f"own_makers:{name}", {"size": 3}, nn.Module, "model"), nn.Linear)


@pytest.mark.parametrize("path", ["own_makers:Net", "torch.nn:Linear", "torchvision.models:resnet18"])
def test_classes_and_annotated_functions_of_libraries_are_makers(path: str) -> None:
    assert callable(maker_of(path, nn.Module, "model.path"))
