"""A folder of plug-ins for a test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtide.core import plugins, source


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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
    source.source_file.cache_clear()
