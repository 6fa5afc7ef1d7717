"""A callback that ends a command's time, as its limit would: a fixture for tests of ``--seconds``."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CODE = """
import os
import signal

import lightning as L

rounds = 0


class Alarm(L.Callback):
    \"\"\"The time is over in every so many rounds of this process, while the command is named.\"\"\"

    def __init__(self, every):
        self.every = every

    def on_train_epoch_end(self, trainer, pl_module):
        global rounds
        rounds += 1
        if rounds % self.every == 0 and "COMMAND" in os.environ:
            os.kill(int(os.environ["COMMAND"]), signal.SIGALRM)
"""


@pytest.fixture
def alarm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The setting of runs whose limit, far too long, ends in every so many rounds: ``alarm.format(5)``."""
    (folder / "alarm.py").write_text(CODE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("COMMAND", str(os.getpid()))
    yield "engine.callbacks=[{{path: 'alarm:Alarm', arguments: {{every: {}}}}}]"
    sys.modules.pop("alarm", None)
