from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fedtide import plugins

# Tiny tensors: a second intra-op thread costs more than it brings. (The folder of this file is also what makes
# ``support`` importable from every test.)
torch.set_num_threads(1)

DROP_IN = Path(__file__).parent / "drop_in"


@pytest.fixture
def drop_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The plug-ins of ``tests/drop_in``, found the way a user's are."""
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(DROP_IN))
    yield
    for kind in plugins.KINDS:
        path = importlib.import_module(f"fedtide.{kind}").__path__
        path[:] = [folder for folder in path if not folder.startswith(str(DROP_IN))]
