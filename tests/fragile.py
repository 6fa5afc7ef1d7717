"""A user's algorithm that kills its own process, or raises: fixtures for tests of what goes on without it."""

from pathlib import Path

import pytest

CODE = '''
import os
import signal
from contextlib import suppress
from pathlib import Path

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Round
from fedtide.core.plugins import Tunable


class FragileSettings(AlgorithmSettings):
    how: str = "die"
    times: int = 1
    marks: str = ""
    strength: float = Tunable(0.5, low=0.1, high=1.0, description="of nothing")


class Fragile(Algorithm):
    """FedAvg that in its third round fails a number of times, counted by files."""

    Settings = FragileSettings
    settings: FragileSettings

    def finish(self, r: Round):
        if r.t == 2:
            for number in range(self.settings.times):
                with suppress(FileExistsError):  # of an earlier failure, perhaps just now in another process
                    (Path(self.settings.marks) / str(number)).touch(exist_ok=False)
                    if self.settings.how == "die":
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise ZeroDivisionError("the third round\\nis fragile")
        return r.average()
'''


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of marks, one for each failure; the algorithm ``fragile`` is found as a user's is."""
    root = tmp_path / "plugins"
    (root / "algorithms").mkdir(parents=True)
    (root / "algorithms" / "fragile.py").write_text(CODE)
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(root))
    return tmp_path / "marks"
