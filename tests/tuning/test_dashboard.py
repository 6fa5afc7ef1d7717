"""Optuna's dashboard of a search: refused in one line, or served on the loopback interface."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from searches import search

from commands import Fedtide, fedtide, folder, shared_data
from fedtide.settings.params import Params
from waiting import until

__all__ = ["fedtide", "folder", "shared_data"]

Make = Callable[..., Params]


def test_without_the_package_it_is_one_line(fedtide: Fedtide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna_dashboard", None)
    called = fedtide("tune", "--dashboard")
    line = (
        "fedtide: --dashboard needs a package that is not installed (optuna_dashboard); pip install 'fedtide[tuning]'"
    )
    assert (called.status, called.out, called.err) == (2, [], [line])


def test_without_a_search_it_is_one_line(fedtide: Fedtide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtide.core.extras.find_spec", lambda name: True)
    called = fedtide("tune", "--dashboard", "--out", "nowhere")
    line = "fedtide: nowhere: no search here; run `fedtide tune`, or name its folder with --out"
    assert (called.status, called.out, called.err) == (2, [], [line])


def test_a_damaged_journal_is_one_line_and_nothing_is_changed(
    fedtide: Fedtide, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search may be running: its lock and the line that it is writing are left alone."""
    monkeypatch.setattr("fedtide.core.extras.find_spec", lambda name: True)
    (folder / "tuning").mkdir()
    journal, lock = folder / "tuning" / "tune-x.journal", folder / "tuning" / "tune-x.journal.lock"
    journal.write_bytes(b'{"op_code": 0, "worker_id": "a"\n{"op_code": ')
    lock.write_text("held")
    called = fedtide("tune", "--dashboard")
    line = (
        "fedtide: tuning/tune-x.journal: the record of the search is damaged (line 1); delete this file to search again, "
        "finished runs are reused"
    )
    assert (called.status, called.out, called.err) == (2, [], [line])
    journal.write_bytes(b'{"op_code": 77}\n{"op_code": ')
    assert fedtide("tune", "--dashboard").err == [line.replace("line 1", "AssertionError")]
    assert journal.read_bytes() == b'{"op_code": 77}\n{"op_code": '
    assert lock.read_text() == "held"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("optuna_dashboard") is None, reason="needs optuna-dashboard")
def test_it_shows_the_search(params: Make, tmp_path: Path) -> None:
    study = search(params({"trials": 1}), tmp_path).study
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "fedtide", "tune", "--dashboard", "--port", str(port)]
    with (tmp_path / "log").open("wb") as stream:
        served = subprocess.Popen(command, cwd=tmp_path, env=dict(os.environ), stdout=stream, stderr=stream)

    def studies() -> list[str] | None:
        assert served.poll() is None, (tmp_path / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/studies") as answer:
                return [item["study_name"] for item in json.load(answer)["study_summaries"]]
        except OSError:
            return None

    try:
        assert until(studies) == [study]
    finally:
        served.send_signal(signal.SIGINT)
        assert served.wait() == 130
