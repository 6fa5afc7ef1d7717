"""Ctrl-C and SIGTERM at moments when no run is in progress: one line that claims nothing, and the signal's exit status."""

import signal
import subprocess
import sys

import pytest

from fedtide.runs import execution
from fedtide.runs.compare import compare
from fedtide.runs.mlflow import callback as mirroring
from fedtide.runs.mlflow.store import Store
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import CompareSettings
from fedtide.settings.params import Params
from waiting import until

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
WHILE_IMPORTING = """
import os, sys

number, module = int(sys.argv[1]), sys.argv[2]

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Finder())
from fedtide.cli.main import main
sys.argv[1:] = ["run"]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("module", "number", "status"), [("torch._C", *SIGNALS[0]), ("yaml", *SIGNALS[1])])
def test_while_a_command_imports(folder, module, number, status):
    command = [sys.executable, "-c", WHILE_IMPORTING, str(int(number)), module]
    called = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (called.returncode, called.stdout, called.stderr) == (status, "", "fedtide: interrupted\n")


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_in_a_command(fedtide, monkeypatch, number, status):
    before = [signal.getsignal(number) for number, _ in SIGNALS]
    monkeypatch.setattr("fedtide.world.storage.prepared.load_data", lambda settings: signal.raise_signal(number))
    monkeypatch.setattr("fedtide.runs.open_run.load_data", lambda settings: signal.raise_signal(number))
    called = fedtide("run")
    assert (called.status, called.out, called.err) == (status, [], ["fedtide: interrupted"])
    assert [signal.getsignal(number) for number, _ in SIGNALS] == before


@pytest.mark.slow
def test_after_the_last_run_nothing_was_interrupted(folder):
    settings = Params.read(folder / "params.yaml").run()

    def ended(summary):
        signal.raise_signal(signal.SIGTERM)

    summaries, stopped = compare([settings], Workspace(folder / "runs"), CompareSettings(workers=1), ended=ended)
    assert ([summary["state"] for summary in summaries], stopped) == (["complete"], None)


@pytest.mark.slow
def test_the_upload_of_a_complete_run_is_not_interrupted(folder, monkeypatch):
    upload = mirroring.upload

    def late(*arguments):
        signal.raise_signal(signal.SIGINT)
        upload(*arguments)

    monkeypatch.setattr(mirroring, "upload", late)
    settings = Params.read(folder / "params.yaml").run()
    summary = execution.execute(settings, Workspace(folder / "runs", None, folder / "mlruns", "fedtide"))
    (run,) = Store(folder / "mlruns", "fedtide").runs("")
    assert (summary["state"], run.info.status) == ("complete", "FINISHED")


SERVED = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
SERVING = f"""
import sys
from fedtide.cli.exits import guarded
from fedtide.cli.commands.ui import serve
guarded(lambda: sys.exit(serve([sys.executable, "-c", {SERVED!r}], {{}})))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_servers_end_with_the_command_that_started_them(number):
    with subprocess.Popen([sys.executable, "-c", SERVING], stdout=subprocess.PIPE, text=True) as command:
        server = int(command.stdout.readline())
        command.send_signal(number)
        assert command.wait() == (-number if number == signal.SIGKILL else 128 + number)
        until(lambda: not is_alive(server))


def is_alive(process):
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    ).stdout
    return bool(state.strip()) and not state.startswith("Z")
