"""``FEDTIDE_PLUGINS`` may change within a process: only the folders that it names now count."""

from pathlib import Path
from typing import Any

import pytest

from fedtide.core import plugins
from fedtide.core.discovery import source
from fedtide.core.errors import SettingsError

ALGORITHM = '''from fedtide import Algorithm
from fedtide.methods.algorithms._moved_helper import STEP


class Moved(Algorithm):
    """Averages."""

    step = STEP
'''


def written(root: Path, step: int) -> Path:
    (root / "algorithms").mkdir(parents=True)
    (root / "algorithms" / "moved.py").write_text(ALGORITHM)
    (root / "algorithms" / "_moved_helper.py").write_text(f"STEP = {step}\n")
    return root


def test_a_plugin_of_this_name_in_another_folder_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, files = [], []
    for step in (1, 2):
        monkeypatch.setenv("FEDTIDE_PLUGINS", str(written(tmp_path / str(step), step)))
        found: Any = plugins.load("algorithms", "moved")
        steps.append(found.step)
        files.append(source.source_file("fedtide.methods.algorithms._moved_helper"))
    assert steps == [1, 2]
    assert files == [tmp_path / str(step) / "algorithms" / "_moved_helper.py" for step in (1, 2)]
    monkeypatch.delenv("FEDTIDE_PLUGINS")
    assert "moved" not in plugins.names("algorithms")
    with pytest.raises(SettingsError, match="unknown name 'moved' in algorithms"):
        plugins.load("algorithms", "moved")
