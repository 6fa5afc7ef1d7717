"""A new capability of rounds is a kind of plug-ins and a feature: two lines in files that there are.

A throw-away one is added to a copy of the project: updates are damped by a plug-in, and what is lost of them is kept by the
client and added to its next update. ``damping/checks.py`` then tests it in the copy.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = {
    "methods/damping/__init__.py": '"""Dampers of updates."""\n',
    "methods/damping/base.py": '''"""What a damper is."""

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor

from fedtide.core.plugins import Plugin


class Damper(Plugin):
    """Says what arrives of an update."""

    kind: ClassVar[str] = "damping"

    @abstractmethod
    def damped(self, D: Tensor) -> Tensor:
        """What arrives of updates [C, d]."""
''',
    "methods/damping/none.py": '''"""No damping."""

from torch import Tensor

from fedtide.methods.damping.base import Damper


class Nothing(Damper):
    """Updates arrive as they are."""

    def damped(self, D: Tensor) -> Tensor:
        return D
''',
    "methods/damping/scale.py": '''"""Damping by a factor."""

from pydantic import Field
from torch import Tensor

from fedtide.core.plugins import PluginSettings
from fedtide.methods.damping.base import Damper


class Scale(Damper):
    """Updates arrive times a factor."""

    class Settings(PluginSettings):
        name: str = "scale"
        factor: float = Field(0.5, gt=0, le=1, description="the factor")

    settings: Settings

    def damped(self, D: Tensor) -> Tensor:
        return self.settings.factor * D
''',
    "federation/features/damping.py": '''"""What arrives is damped; what is lost of it is kept by the client."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtide.core import plugins
from fedtide.methods.damping.base import Damper
from fedtide.training.engine.flat import Layout
from fedtide.federation.types import Chosen, Feature, RoundContext
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


class Damping(Feature):
    """``D <- damped(D + lost)``, and ``lost`` is the rest."""

    name = "damping"
    updates = rowwise = True

    def __init__(self, chosen: Chosen) -> None:
        self.damper = plugins.create(Damper, chosen.settings.damping)

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        if chosen.settings.mode.name == "async":
            return "damping: mode: async may use two results of a client at once; use mode: sync"
        return None

    def rows(self, chosen: Chosen, layout: Layout) -> dict[str, int]:
        return {"damping.lost": layout.size}

    def after(self, r: RoundContext) -> None:
        whole = r.received - r.started + r.memory["damping.lost"]
        arrives = self.damper.damped(whole)
        r.memory["damping.lost"] = whole - arrives
        r.received = r.started + arrives
        r.notes[self.name] = torch.linalg.vector_norm(whole - arrives, dim=1, keepdim=True)

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        return {"lost": r.notes[self.name]}
''',
}
LINES = {
    "settings/run.py": (
        "    local: LocalSettings = ",
        '    damping: Annotated[SerializeAsAny[PluginSettings], Choice("damping", "none"), OMIT_DEFAULT] = choice_field(\n'
        '        "none", "how updates are damped"\n    )\n',
    ),
    "federation/assembly/choose.py": (
        "        Uplink(chosen.links) if chosen.links else None,",
        '        Damping(chosen) if s.damping.name != "none" else None,\n',
    ),
}
IMPORT = "from fedtide.federation.features.damping import Damping\n"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of a copy of the project with the new kind."""
    source = tmp_path_factory.mktemp("extended") / "src"
    package = source / "fedtide"
    shutil.copytree(
        TESTS.parent / "src", source, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name, text in FILES.items():
        path = package / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for name, (place, line) in LINES.items():
        path = package / name
        text = path.read_text()
        assert text.count(place) == 1
        path.write_text(text.replace(place, line + place))
    chooser = package / "federation/assembly/choose.py"
    text = chooser.read_text()
    first = "from fedtide.federation.features.detection import"
    chooser.write_text(text.replace(first, IMPORT + first))
    return source


@pytest.mark.slow
def test_a_new_kind_and_its_feature_do_all_that_a_capability_does(extended: Path) -> None:
    paths = os.pathsep.join([str(extended), str(TESTS)])
    options = ("-q", "-n", "0", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, str(TESTS / "contract/damping/checks.py")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
