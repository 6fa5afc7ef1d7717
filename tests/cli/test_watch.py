"""The report of runs that are still running: renewed as rounds come, and the runs are left alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fedtide.cli.live_page import LivePage, served
from fedtide.core.storage.locks import held
from fedtide.report.comparison import report, run_directories
from fedtide.runs.display.progress import title
from fedtide.settings.params import Params
from small_runs import execute, stop_after
from waiting import until

__all__ = ["stop_after"]

TWO = ["compare.seeds=[0, 1]"]


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found: int = free.getsockname()[1]
        return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_page_follows_the_runs(folder: Path, port: int, stop_after: Any) -> None:
    params, runs = Params.read("params.yaml", TWO), folder / "runs"
    grid = params.grid()
    directories = dict(zip(map(title, grid), run_directories(params, runs), strict=True))
    first, second = directories
    built: list[Path] = []

    def build() -> Path:
        built.append(report(params, runs, None, folder / "out", "fedtide watch").page)
        return built[-1]

    page = LivePage(directories, build, every=0.0)

    def shown() -> tuple[str, bool]:
        text, goes_on = page.html()
        return text.partition('id="watch"')[2].partition("</aside>")[0], goes_on

    assert page.renew()
    text, goes_on = shown()
    assert goes_on
    assert "0 of 2 runs have ended." in text
    assert f"{first}: not started." in text
    assert "no runs to report" in text

    execute(grid[0], runs, callbacks=[stop_after(2)])
    before = contents(directories[first])
    page._next = 0.0  # it is time again
    assert page.renew()
    text, goes_on = shown()
    assert f"{first}: stopped, round 2 of 4, accuracy " in text
    with held(directories[first] / ".lock", "a process is working on it"):
        assert f"{first}: running, round 2 of 4, accuracy " in shown()[0]
    assert f"{second}: not started." in text
    assert "did not finish: seed 0 in round 2" in page.html()[0]
    assert contents(directories[first]) == before
    page._next = 0.0
    assert not page.renew(), "nothing has changed"

    for settings in grid:
        execute(settings, runs)
    page._next = 0.0
    assert shown()[1], "the newest report is older than the records"
    assert page.renew()
    assert len(built) == 2
    with served(page, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            html = answer.read().decode()
            assert answer.headers["Refresh"] is None
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/params.yaml")
    assert html == page.html()[0]
    assert "2 of 2 runs have ended." in html
    assert "did not finish: seed" not in html


def test_a_port_that_is_taken_is_one_line(fedtide: Any, port: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        called = fedtide("watch", "--port", str(port))
    wanted = f"fedtide: --port {port}: Address already in use; use another port"
    assert (called.status, called.out, called.err) == (2, [], [wanted])


@pytest.mark.slow
def test_the_command_until_ctrl_c(folder: Path, port: int) -> None:
    command = [sys.executable, "-m", "fedtide", "watch", "--port", str(port)]
    with (folder / "log").open("wb") as stream:
        watching = subprocess.Popen(command, env=dict(os.environ), stdout=stream, stderr=stream)

    def page() -> str:
        assert watching.poll() is None, (folder / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                assert answer.headers["Refresh"] == "10"
                return str(answer.read().decode())
        except OSError:
            return ""

    try:
        assert until(lambda: "no runs to report" in page())
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.wait() == 130
    assert (folder / "log").read_text().splitlines()[-1] == "fedtide: interrupted"
    assert not (folder / "runs").exists()
