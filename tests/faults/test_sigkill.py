import json
import signal

import pytest
from attempt import Attempt, Moment

from fedtide.algorithms.base import Algorithm
from fedtide.core import plugins
from fedtide.core.randomness import generator
from records import same_records
from support import clock, light

MOMENTS = [Moment(rows, number % 5) for number, rows in enumerate((0, 2, 4, 5, 6, 9, 10, 11, 13, 14))]
"""Before the first state, inside a session, around each session change, between saved states, in the last round."""

KINDS_OF_STATE = {
    "fedopt": "vectors of the server",
    "fedwcm": "numbers and histograms, columns of the history",
    "fedgen": "another model with its optimiser",
    "cfl_generative": "tensors that grow, synthetic samples",
}
"""An algorithm for each kind of state: killed at all moments. Memories of clients and server are FedSSG's, which
test_campaign.py kills."""


def has_more_state(algorithm):
    """Whether it keeps more than declared vectors; such an algorithm is killed at one moment, and like all others at all of
    them in the slow tests."""
    known = plugins.load(Algorithm, algorithm)
    return known.remembers or known.extra is not Algorithm.extra


def kill_and_compare(folder, algorithm, moments):
    """Kill a run at some moments, with changing intervals between saved states; its records equal those of a whole one."""
    settings = {**clock(algorithm), "algorithm": light(algorithm)}
    if "clock" in settings:  # these are of rounds
        settings |= {"local.momentum_scope": "round", "evaluation.models": ["cloud", "participants"]}
    chosen = [item for key, value in settings.items() for item in ("--set", f"{key}={json.dumps(value)}")]
    assert Attempt(folder, *chosen, name="whole").end() == 0
    for number, moment in enumerate(moments):
        attempt = Attempt(folder, *chosen, "--set", f"checkpoint.every={1 + number % 3}", moments=(moment,))
        assert attempt.end() == -signal.SIGKILL, attempt.lines
        assert not (folder / "runs/run/summary.json").exists()
    attempt = Attempt(folder, *chosen)
    assert attempt.end() == 0, attempt.lines
    same_records(folder / "runs/run", folder / "runs/whole")


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in KINDS_OF_STATE))
        for name in plugins.names("algorithms")
    ],
)
def test_ten_kills_change_nothing(folder, algorithm):
    kill_and_compare(folder, algorithm, MOMENTS)


@pytest.mark.parametrize(
    "algorithm", [name for name in plugins.names("algorithms") if name not in KINDS_OF_STATE and has_more_state(name)]
)
def test_a_kill_changes_nothing(folder, algorithm):
    draw = generator(0, f"kill of {algorithm}")
    kill_and_compare(folder, algorithm, [Moment(int(draw.integers(3, 14)), int(draw.integers(0, 5)))])


def test_kills_change_nothing_where_memories_are_on_disk(folder):
    """The mapped file dies with the process; drift memories, control variates and counts come from the saved state."""
    chosen = ("--set", "algorithm=fedssg")
    disk = (*chosen, "--set", "federation.memory=disk")
    assert Attempt(folder, *chosen, name="whole").end() == 0
    for rows, operation in ((4, 0), (8, 3)):
        assert Attempt(folder, *disk, moments=(Moment(rows, operation),)).end() == -signal.SIGKILL
    assert Attempt(folder, *disk).end() == 0
    same_records(folder / "runs/run", folder / "runs/whole")
