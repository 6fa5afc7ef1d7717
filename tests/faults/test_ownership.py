import signal
import socket

import pytest
from attempt import Attempt, Moment

from records import same_records

ALGORITHM = '''
from fedtide.methods.algorithms.base import Algorithm, Round


class Mine(Algorithm):
    """Somebody's own."""

    def finish(self, r: Round):
        return r.average()
'''


@pytest.mark.slow
def test_two_processes_never_work_on_the_same_run(folder):
    assert Attempt(folder, name="whole").end() == 0
    first = Attempt(folder, moments=(Moment(3, 0, signal.SIGSTOP),))
    first.wait_for(3)
    second = Attempt(folder)
    assert second.end() == 2
    (line,) = second.lines
    holder = f"process {first.process} on {socket.gethostname()} since 2"
    assert line.startswith(f"fedtide: runs/run: another process is working on this run ({holder}")
    first.resume()
    assert first.end() == 0
    same_records(first.run, folder / "runs/whole")


@pytest.mark.slow
def test_a_run_never_continues_with_other_code(folder):
    (folder / "algorithms").mkdir()
    code = folder / "algorithms/mine.py"
    code.write_text(ALGORITHM)
    mine = ("--set", "algorithm=mine")
    assert Attempt(folder, *mine, moments=(Moment(4, 0, signal.SIGTERM),)).end() == 143
    code.write_text(ALGORITHM + "        # a comment is no other code\n")
    assert Attempt(folder, *mine, moments=(Moment(7, 0, signal.SIGTERM),)).end() == 143
    code.write_text(ALGORITHM.replace("r.average()", "2 * r.average() - r.w"))
    changed = Attempt(folder, *mine)
    assert changed.end() == 2
    (line,) = changed.lines
    assert "the run was started with other code or data: mine-average-s0-" in line


@pytest.mark.slow
@pytest.mark.parametrize("place", ["runs", "runs/run", "runs/run/state"])
def test_a_file_in_the_place_of_a_folder_is_refused(folder, place):
    there = folder / place
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text("somebody's notes")
    attempt = Attempt(folder)
    assert attempt.end() == 2
    (line,) = attempt.lines
    assert place in line
    assert there.read_text() == "somebody's notes"
