"""Files that one process at a time holds."""

import json
import os
import socket
import subprocess
import sys

import pytest
from filelock import FileLock

from fedtide.core.errors import SettingsError
from fedtide.core.locks import held

REFUSAL = "x: another process is working on it"


def refused(lock):
    with pytest.raises(SettingsError) as caught, held(lock, REFUSAL):
        pass
    return str(caught.value)


def test_a_refused_process_learns_who_holds_the_file(tmp_path):
    lock = tmp_path / ".lock"
    with held(lock, REFUSAL):
        facts = json.loads((tmp_path / ".lock.owner").read_text())
        assert refused(lock) == f"{REFUSAL} (process {os.getpid()} on {socket.gethostname()} since {facts['since']})"
    assert {path.name for path in tmp_path.iterdir()} <= {".lock"}
    with held(lock, REFUSAL):
        pass


def test_what_a_dead_process_left_is_not_taken_for_the_owner(tmp_path):
    lock = tmp_path / ".lock"
    script = "import os, sys, pathlib\nfrom fedtide.core.locks import held\n"
    script += "with held(pathlib.Path(sys.argv[1]), ''):\n    os.kill(os.getpid(), 9)\n"
    assert subprocess.run([sys.executable, "-c", script, str(lock)], check=False).returncode == -9
    assert (tmp_path / ".lock.owner").exists()
    with FileLock(str(lock)):  # held by a program that does not say who it is
        assert refused(lock) == REFUSAL
    with held(lock, REFUSAL):
        assert f"process {os.getpid()} " in refused(lock)


@pytest.mark.parametrize("content", ["", "[]", '{"process": 1}', "\xff"])
def test_an_unreadable_owner_is_not_named(tmp_path, content):
    with held(tmp_path / ".lock", REFUSAL):
        (tmp_path / ".lock.owner").write_bytes(content.encode("latin-1"))
        assert refused(tmp_path / ".lock") == REFUSAL
