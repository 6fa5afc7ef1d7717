import json
import signal

import pytest
from attempt import Attempt, Moment

from fedtide.core.randomness import generator
from fedtide.runs.check import check_run
from records import same_records
from support import light, needs

MOMENTS = [Moment(rows, number % 5) for number, rows in enumerate((0, 2, 4, 5, 6, 9, 10, 11, 13, 14))]
"""Before the first state, inside a session, around each session change, between saved states, in the last round."""

GROWING = ("cfl_generative", "fedgen")
"""They keep tensors that grow, synthetic samples, and another model with its optimizer. That the state of every algorithm is
whole is proven without a process by contract/test_rounds.py; test_campaign.py kills FedSSG, with memories of clients."""


def kill_and_compare(folder, algorithm, moments):
    """Kill a run at some moments, with changing intervals between saved states; its records equal those of a whole one."""
    settings = {**needs(algorithm), "algorithm": light(algorithm)}
    chosen = [item for key, value in settings.items() for item in ("--set", f"{key}={json.dumps(value)}")]
    assert Attempt(folder, *chosen, name="whole").end() == 0
    for number, moment in enumerate(moments):
        attempt = Attempt(folder, *chosen, "--set", f"checkpoint.every={1 + number % 3}", moments=(moment,))
        assert attempt.end() == -signal.SIGKILL, attempt.lines
        assert not (folder / "runs/run/summary.json").exists()
    attempt = Attempt(folder, *chosen)
    assert attempt.end() == 0, attempt.lines
    same_records(folder / "runs/run", folder / "runs/whole")


@pytest.mark.slow
def test_ten_kills_change_nothing(folder):
    kill_and_compare(folder, "fedwcm", MOMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", GROWING)
def test_a_kill_changes_nothing(folder, algorithm):
    draw = generator(0, f"kill of {algorithm}")
    kill_and_compare(folder, algorithm, [Moment(int(draw.integers(3, 14)), int(draw.integers(0, 5)))])


@pytest.mark.slow
def test_kills_change_nothing_where_memories_are_on_disk(folder):
    """The mapped file dies with the process; drift memories, control variates and counts come from the saved state."""
    chosen = ("--set", "algorithm=fedssg")
    disk = (*chosen, "--set", "client_state.storage=disk")
    assert Attempt(folder, *chosen, name="whole").end() == 0
    for rows, operation in ((4, 0), (8, 3)):
        assert Attempt(folder, *disk, moments=(Moment(rows, operation),)).end() == -signal.SIGKILL
    assert Attempt(folder, *disk).end() == 0
    same_records(folder / "runs/run", folder / "runs/whole")


@pytest.mark.slow
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
