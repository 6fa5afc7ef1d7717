import json
import signal

import pytest
from attempt import Attempt, Moment

from fedtide.core import plugins
from fedtide.core.randomness import generator
from fedtide.methods.algorithms.base import Algorithm
from fedtide.runs.check import check_run
from records import same_records
from support import light, needs

MOMENTS = [Moment(rows, number % 5) for number, rows in enumerate((0, 2, 4, 5, 6, 9, 10, 11, 13, 14))]
"""Before the first state, inside a session, around each session change, between saved states, in the last round."""

GROWING = ("cfl_generative", "fedgen")
"""They keep tensors that grow, synthetic samples, and another model with its optimizer: killed once; numbers, histograms and
columns of the history are FedWCM's, killed at all moments, memories of clients and server FedSSG's, which test_campaign.py
kills. That the state of every algorithm is whole is proven without a process by contract/test_rounds.py."""


def has_more_state(algorithm):
    """Whether it keeps more than declared vectors."""
    known = plugins.load(Algorithm, algorithm)
    return known.forget is not Algorithm.forget or known.extra is not Algorithm.extra


def kill_and_compare(folder, algorithm, moments):
    """Kill a run at some moments, with changing intervals between saved states; its records equal those of a whole one."""
    settings, known = {**needs(algorithm), "algorithm": light(algorithm)}, plugins.load(Algorithm, algorithm)
    if "mode" in settings:  # these are of rounds
        settings["evaluation.models"] = ["global", "participants"]
    if "mode" in settings or known.phases is not Algorithm.phases:
        settings["local.momentum_scope"] = "round"
    if known.optimizer == "plain_sgd":
        settings["local.momentum"] = 0.0
    chosen = [item for key, value in settings.items() for item in ("--set", f"{key}={json.dumps(value)}")]
    assert Attempt(folder, *chosen, name="whole").end() == 0
    for number, moment in enumerate(moments):
        attempt = Attempt(folder, *chosen, "--set", f"checkpoint.every={1 + number % 3}", moments=(moment,))
        assert attempt.end() == -signal.SIGKILL, attempt.lines
        assert not (folder / "runs/run/summary.json").exists()
    attempt = Attempt(folder, *chosen)
    assert attempt.end() == 0, attempt.lines
    same_records(folder / "runs/run", folder / "runs/whole")


def some(names, by_default):
    """Algorithms, all but a few of which are for the slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in by_default)) for name in names]


@pytest.mark.parametrize("algorithm", some(plugins.names("algorithms"), ("fedwcm",)))
def test_ten_kills_change_nothing(folder, algorithm):
    kill_and_compare(folder, algorithm, MOMENTS)


@pytest.mark.parametrize("algorithm", some(filter(has_more_state, plugins.names("algorithms")), GROWING[:1]))
def test_a_kill_changes_nothing(folder, algorithm):
    draw = generator(0, f"kill of {algorithm}")
    kill_and_compare(folder, algorithm, [Moment(int(draw.integers(3, 14)), int(draw.integers(0, 5)))])


def test_kills_change_nothing_where_memories_are_on_disk(folder):
    """The mapped file dies with the process; drift memories, control variates and counts come from the saved state."""
    chosen = ("--set", "algorithm=fedssg")
    disk = (*chosen, "--set", "client_state.storage=disk")
    assert Attempt(folder, *chosen, name="whole").end() == 0
    for rows, operation in ((4, 0), (8, 3)):
        assert Attempt(folder, *disk, moments=(Moment(rows, operation),)).end() == -signal.SIGKILL
    assert Attempt(folder, *disk).end() == 0
    same_records(folder / "runs/run", folder / "runs/whole")


def test_a_kill_between_the_end_and_the_removal_of_states_leaves_a_complete_run(folder):
    """Before the first state is removed, and between states and logs; the next call removes the rest."""
    (trace := folder / "trace").mkdir()
    whole = Attempt(folder, name="whole", trace=trace)
    assert whole.end() == 0
    operations = [json.loads(line) for line in (trace / "operations.jsonl").read_text().splitlines()]
    ended = max(number for _, number, _, path in operations if path.startswith("summary.json"))
    removed = {number: path for _, number, event, path in operations[ended:] if event == "os.remove"}
    removed = {number: path.removeprefix("state/") for number, path in removed.items() if path.startswith("state/")}
    states = ["state-00000015.pt", "state-00000012.pt", "rows-00000012.npys", "rows-00000015.npys"]
    assert list(removed.values()) == states
    for number in list(removed)[::2]:
        name = f"killed-{number}"
        attempt = Attempt(folder, name=name, moments=(Moment(operation=number),))
        assert attempt.end() == -signal.SIGKILL
        left = {path.name for path in (attempt.run / "state").iterdir()}
        assert left == set(states[states.index(removed[number]) :])
        assert check_run(attempt.run).state == "intact"
        again = Attempt(folder, name=name)
        assert again.end() == 0
        assert again.lines[0] == f"{name}: already complete, nothing to do"
        assert list((again.run / "state").iterdir()) == []
        same_records(again.run, whole.run)
