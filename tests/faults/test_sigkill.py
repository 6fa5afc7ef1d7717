import json
import signal

import pytest
from attempt import Attempt, Moment
from records import same_records

from fedtide.core import plugins
from fedtide.core.randomness import generator
from support import light

ROUNDS = 15
KILLS = 10


@pytest.mark.parametrize("algorithm", plugins.names("algorithms"))
def test_ten_kills_change_nothing(folder, algorithm):
    chosen = ("--set", f"algorithm={json.dumps(light(algorithm))}")
    assert Attempt(folder, *chosen, name="whole").end() == 0
    rng = generator(0, f"kills of {algorithm}")
    for rows in sorted(rng.integers(0, ROUNDS, KILLS)):
        moment = Moment(int(rows), int(rng.integers(0, 5)))
        attempt = Attempt(folder, *chosen, "--set", f"checkpoint.every={rng.integers(1, 4)}", moments=(moment,))
        assert attempt.end() == -signal.SIGKILL, attempt.lines
        assert not (folder / "runs/run/summary.json").exists()
    attempt = Attempt(folder, *chosen)
    assert attempt.end() == 0, attempt.lines
    same_records(folder / "runs/run", folder / "runs/whole")


def test_kills_change_nothing_where_memories_are_on_disk(folder):
    """The mapped file dies with the process; drift memories, control variates and counts come from the saved state."""
    chosen = ("--set", "algorithm=fedssg")
    disk = (*chosen, "--set", "federation.memory=disk")
    assert Attempt(folder, *chosen, name="whole").end() == 0
    for rows, operation in ((4, 0), (8, 3)):
        assert Attempt(folder, *disk, moments=(Moment(rows, operation),)).end() == -signal.SIGKILL
    assert Attempt(folder, *disk).end() == 0
    same_records(folder / "runs/run", folder / "runs/whole")
