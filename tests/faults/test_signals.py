import json
import os
import pty
import signal
import sys
from pathlib import Path

import pytest
from attempt import Attempt, Moment, Process, rows_of

from fedtide.cli import reporter
from records import same_records
from small_runs import events
from terminals import HIDE, SHOW, bars, follow, lines
from waiting import until


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_stopped_run_saves_its_state_and_the_same_command_resumes_it(folder, number, status):
    assert Attempt(folder, name="whole").end() == 0
    attempt = Attempt(folder, "--json", moments=(Moment(4, 0, number),))
    assert attempt.end() == status
    summary = json.loads(next(line for line in attempt.lines if line.startswith("{")))
    done = rows_of(attempt.run)
    assert summary["state"] == "interrupted"
    assert summary["rounds"] == done
    assert 4 < done < 15
    assert (attempt.run / "state" / f"state-{done:08d}.pt").is_file()
    assert not (attempt.run / "summary.json").exists()
    again = Attempt(folder)
    assert again.end() == 0
    same_records(again.run, folder / "runs/whole")
    told = [(event["event"], event["round"]) for event in events(again.run) if event["event"] != "session"]
    assert told == [("interrupted", done), ("resumed", done), ("complete", 15)]


@pytest.mark.slow
def test_sigterm_before_the_first_round_is_not_lost(folder):
    attempt = Attempt(folder, moments=(Moment(0, 3, signal.SIGTERM),))
    assert attempt.end() == 143
    assert attempt.lines[-1] == "fedtide: interrupted"  # nothing is said to be saved
    assert not (attempt.run / "state").is_dir() or not list((attempt.run / "state").iterdir())
    assert not (attempt.run / "summary.json").exists()
    assert Attempt(folder).end() == 0


@pytest.mark.slow
def test_a_second_ctrl_c_ends_it_at_once(folder):
    assert Attempt(folder, name="whole").end() == 0
    twice = (Moment(4, 0, signal.SIGINT), Moment(4, 0, signal.SIGINT))
    assert Attempt(folder, moments=twice).end() == -signal.SIGINT
    again = Attempt(folder)
    assert again.end() == 0
    same_records(again.run, folder / "runs/whole")


def plain_terminal():
    """Make standard output, a terminal, that of this session; the server had none when it imported the console."""
    os.dup2(os.open(os.ttyname(1), os.O_RDWR), 0)
    reporter._console.is_interactive = True
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        os.environ.pop(name, None)
    os.environ["TERM"] = "xterm-256color"


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_with_a_bar(folder):
    """The line fits, the state is saved, and the cursor is visible."""
    name = "fedavg · average · seed 0"
    long = ["--set=scenario.rounds_per_session=500", "--set=evaluation.every=1"]

    def some_rounds(text):
        return any(int(bar[1]) > 20 and bar[6] not in (None, "-:--:--") for bar in bars(text[-2000:], name))

    screen, end = pty.openpty()
    process = Process(folder, ["run", *long], Path(os.ttyname(end)), before=plain_terminal)
    text = follow(screen, some_rounds, end)
    assert process.wait() == 130, text
    assert text.rfind(SHOW) >= text.rfind(HIDE)
    assert "Interrupted. Re-run" in text
    drawn = list(bars(text, name))
    assert {bar[2] for bar in drawn} == {"1500"}
    assert all(bar[3] for bar in drawn if int(bar[1]) > 0)
    assert max(len(line.replace("^C", "")) for line in lines(text) if "━" in line) <= 80


@pytest.mark.slow
@pytest.mark.parametrize(("before", "status"), [([], 129), (["nohup"], 143)])
def test_a_closed_terminal_stops_a_run_that_nohup_does_not_protect(folder, before, status):
    long = "--set=scenario.rounds_per_session=2000"
    command = [*before, sys.executable, "-m", "fedtide", "run", "--name", "run", long]
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may have been started with nohup
        os.chdir(folder)
        os.execvp(command[0], command)
    until(lambda: rows_of(folder / "runs/run") > 5)
    os.close(terminal)
    if before:
        done = rows_of(folder / "runs/run")
        until(lambda: rows_of(folder / "runs/run") > done + 5)
        os.kill(process, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == status
    done = rows_of(folder / "runs/run")
    assert (folder / "runs/run/state" / f"state-{done:08d}.pt").is_file()
