"""The report of runs that are still running: renewed as rounds come, and the runs are left alone."""

import signal
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedtide.cli.commands.watch import renew, served, signature
from fedtide.cli.options import listening
from fedtide.report.comparison import report, run_directories
from fedtide.settings.params import Params
from small_runs import execute
from waiting import free_port


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.mark.slow
def test_the_page_follows_the_runs(folder: Path, port: int, stop_after: Any) -> None:
    params, runs, out = Params.read("params.yaml", ["compare.seeds=[0, 1]"]), folder / "runs", folder / "out"
    directories = run_directories(params, runs)
    first, second = params.grid()

    def page() -> str:
        renew(out, lambda: report(params, runs, None, out, "fedtide watch"))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert answer.headers["Refresh"] == "7"
            return str(answer.read().decode())

    with served(out, port, every=7):
        assert "no runs to report" in page()
        before = signature(directories)
        execute(first, runs, callbacks=[stop_after(2)])
        stopped = signature(directories)
        assert stopped != before
        assert "did not finish: seed 0 in round 2" in page()
        assert signature(directories) == stopped
        execute(first, runs)
        execute(second, runs)
        assert signature(directories) != stopped
        assert "did not finish: seed" not in page()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/params.yaml")


def test_a_port_that_is_taken_is_one_line(fedtide: Any, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        called = fedtide("watch", "--port", str(port))
    assert called.refusal == f"--port {port}: Address already in use; use another port"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_a_report_makes_of_an_interruption_does_not_matter(
    fedtide: Any, monkeypatch, port, number, status
) -> None:
    def swallow(*_: object) -> None:
        with suppress(BaseException):
            signal.raise_signal(number)

    monkeypatch.setattr("fedtide.report.comparison.report", swallow)
    monkeypatch.setattr("os.nice", lambda _: 0)
    called = fedtide("watch", "--port", str(port))
    assert (called.status, called.err[-1]) == (status, "fedtide: interrupted")


@pytest.mark.parametrize("command", ["watch", "ui"])
@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_an_address_of_another_machine_is_one_line(fedtide: Any, folder: Path, command: str, host: str) -> None:
    (folder / "mlruns").mkdir()
    (folder / "mlruns" / "mlflow.db").touch()
    line = fedtide(command, "--host", host).refusal
    assert line.startswith(f"--host = '{host}': ")
    assert line.endswith("; use an address of this machine, such as 127.0.0.1 or 0.0.0.0")


def test_other_machines_are_let_in_with_a_warning(port: int, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert listening("localhost") == "127.0.0.1"
    assert capfd.readouterr().err == ""
    address = listening("0.0.0.0")
    assert capfd.readouterr().err.startswith("WARNING --host 0.0.0.0: the page has no password")
    (folder / "report.html").write_text("the report")
    with served(folder, port, 7, address), urllib.request.urlopen(f"http://127.0.0.2:{port}/") as answer:
        assert answer.read() == b"the report"
