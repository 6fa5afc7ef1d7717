"""Files that one process at a time holds."""

import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from filelock import FileLock

from fedtide.core.errors import SettingsError
from fedtide.core.storage.locks import held
from waiting import until

REFUSAL = "x: another process is working on it"
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+"
NO_LOCKS = (
    "import errno, fcntl\ndef flock(*_): raise OSError(errno.ENOLCK, 'No locks available')\nfcntl.flock = flock\n"
)


def refused(lock):
    with pytest.raises(SettingsError) as caught, held(lock, REFUSAL):
        pass
    return str(caught.value)


def holder(lock, end, before=""):
    """A process that holds a lock, says so, and then waits (``end`` is empty) or does something else."""
    script = f"{before}import os, sys, pathlib, time\nfrom fedtide.core.storage.locks import held\n"
    script += "with held(pathlib.Path(sys.argv[1]), ''):\n    print(flush=True)\n"
    script += f"    {end or 'time.sleep(600)'}\n"
    process = subprocess.Popen([sys.executable, "-c", script, str(lock)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"\n"
    return process


@pytest.fixture
def no_locks(monkeypatch):
    """Stands in for a file system without locks: calls that take one are refused."""

    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_refused_process_learns_who_holds_the_file(tmp_path):
    lock = tmp_path / ".lock"
    process = holder(lock, "")
    named = re.escape(f"{REFUSAL} (process {process.pid} on {socket.gethostname()} since ")
    assert re.fullmatch(f"{named}{DATE}\\)", refused(lock))
    process.kill()
    process.wait()
    with held(lock, REFUSAL):
        assert f"process {os.getpid()} " in refused(lock)
    assert {path.name for path in tmp_path.iterdir()} <= {".lock"}


def test_what_a_dead_process_left_is_not_taken_for_the_owner(tmp_path):
    lock = tmp_path / ".lock"
    assert holder(lock, "os.kill(os.getpid(), 9)").wait() == -signal.SIGKILL
    assert (tmp_path / ".lock.owner").exists()
    with FileLock(str(lock)):  # held by a program that does not say who it is
        assert refused(lock) == REFUSAL
    with held(lock, REFUSAL):
        assert f"process {os.getpid()} " in refused(lock)
    assert {path.name for path in tmp_path.iterdir()} <= {".lock"}


def test_a_process_outlasts_the_folder_of_a_refused_owner(tmp_path):
    """Which removes all that there is, also the lock that others wait for."""
    lock, taken = tmp_path / "run" / ".lock", threading.Event()
    lock.parent.mkdir()

    def owner():
        with held(lock, REFUSAL):
            taken.set()
            time.sleep(0.2)
            shutil.rmtree(lock.parent)

    thread = threading.Thread(target=owner)
    thread.start()
    taken.wait()
    with held(lock, REFUSAL, -1):
        thread.join()
        assert refused(lock).startswith(REFUSAL)
    with held(lock, REFUSAL):
        assert f"process {os.getpid()} " in refused(lock)


@pytest.mark.slow
@pytest.mark.usefixtures("no_locks")
def test_without_locks_the_note_decides_and_the_refusal_says_what_to_delete(tmp_path):
    lock, note = tmp_path / ".lock", tmp_path / ".lock.owner"
    note.write_text("7\nelsewhere\n")
    advice = f"; the file system does not support locks; if that process is dead, delete {note}"
    named = re.escape(f"{REFUSAL} (process 7 on elsewhere since ")
    for timeout in (0, -1):  # nobody knows whether it is alive
        with pytest.raises(SettingsError) as caught, held(lock, REFUSAL, timeout):
            pass
        assert re.fullmatch(f"{named}{DATE}\\){re.escape(advice)}", str(caught.value))
    note.unlink()
    with held(lock, REFUSAL):
        assert refused(lock).endswith(advice)
    assert not note.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_live_process_is_respected_and_a_dead_one_of_this_machine_is_not(tmp_path):
    lock = tmp_path / ".lock"
    process = holder(lock, "", before=NO_LOCKS)
    assert refused(lock).startswith(f"{REFUSAL} (process {process.pid} on {socket.gethostname()} since ")
    process.kill()
    process.wait()
    with held(lock, REFUSAL):
        assert f"process {os.getpid()} " in refused(lock)
    assert not (tmp_path / ".lock.owner").exists()


@pytest.mark.slow
def test_of_many_processes_one_holds_the_lock(tmp_path):
    """Each appends two lines while it holds it; with and without locks of the operating system."""
    script = "import pathlib, sys\nfrom fedtide.core.storage.locks import Lock\nfolder = pathlib.Path(sys.argv[1])\n"
    script += "for number in range(20):\n    lock = Lock(folder / '.lock')\n    while not lock.acquire(1): pass\n"
    script += (
        "    for word in 'ab':\n        with (folder / 'x').open('a') as file: file.write(word)\n    lock.release()\n"
    )
    for name, before in (("with", ""), ("without", NO_LOCKS)):
        folder = tmp_path / name
        folder.mkdir()
        command = [sys.executable, "-c", before + script, str(folder)]
        processes = [subprocess.Popen(command) for _ in range(3)]
        assert [process.wait() for process in processes] == [0, 0, 0]
        until((folder / "x").exists)
        assert (folder / "x").read_text() == "ab" * 60
