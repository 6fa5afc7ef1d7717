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
    monkeypatch.setattr("fedtide.tuning.dashboard.find_spec", lambda name: None)
    called = fedtide("tune", "--dashboard")
    line = "fedtide: --dashboard: optuna-dashboard is not installed; pip install 'fedtide[tuning]'"
    assert (called.status, called.out, called.err) == (2, [], [line])


def test_without_a_search_it_is_one_line(fedtide: Fedtide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtide.tuning.dashboard.find_spec", lambda name: True)
    called = fedtide("tune", "--dashboard", "--out", "nowhere")
    line = "fedtide: nowhere: no search here; run `fedtide tune`, or name its folder with --out"
    assert (called.status, called.out, called.err) == (2, [], [line])


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
