"""Files that one process at a time holds."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest
from filelock import FileLock

from fedtide.core import system
from fedtide.core.errors import SettingsError, TakenOver
from fedtide.core.files import part_suffix, replacing, write_text
from fedtide.core.locks import STALE, held, is_held_elsewhere
from fedtide.records.marks import GrowingFiles
from waiting import until

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
    host = part_suffix().rsplit("-", 1)[0]
    for name in (".lock.owner", ".lock.owner.aside"):
        (tmp_path / f"{name}{host}-{2**30}.part").touch()  # of another one, which was killed while it took the lock
    with FileLock(str(lock)):  # held by a program that does not say who it is
        assert refused(lock) == REFUSAL
    with held(lock, REFUSAL):
        assert f"process {os.getpid()} " in refused(lock)
    assert {path.name for path in tmp_path.iterdir()} <= {".lock"}


@pytest.mark.parametrize("content", ["", "[]", '{"process": 1}', "\xff"])
def test_an_unreadable_owner_is_not_named(tmp_path, content):
    with held(tmp_path / ".lock", REFUSAL):
        (tmp_path / ".lock.owner").write_bytes(content.encode("latin-1"))
        assert refused(tmp_path / ".lock") == REFUSAL


def note_of(lock, host, seconds):
    """What a process of another machine left, whose last sign of life is some seconds ago."""
    owner = lock.with_name(f"{lock.name}.owner")
    owner.write_text(json.dumps({"process": 7, "host": host, "since": "noon"}))
    os.utime(owner, (time.time() - seconds, time.time() - seconds))
    return owner


def test_another_machine_owns_what_its_note_says_although_the_file_system_grants_the_lock(tmp_path):
    lock = tmp_path / ".lock"
    owner = note_of(lock, "elsewhere", STALE / 2)
    assert refused(lock) == f"{REFUSAL} (process 7 on elsewhere since noon)"
    assert is_held_elsewhere(lock)
    assert json.loads(owner.read_text())["host"] == "elsewhere"
    assert {path.name for path in tmp_path.iterdir()} <= {".lock", ".lock.owner"}


def test_the_age_of_a_note_is_by_the_clock_of_the_file_system(tmp_path, monkeypatch):
    lock = tmp_path / ".lock"
    note_of(lock, "elsewhere", STALE / 2)
    monkeypatch.setattr(system.here, "time", lambda: time.time() + 10 * STALE)  # this machine's is fast
    assert refused(lock).startswith(REFUSAL)


def test_an_owner_that_cannot_show_signs_of_life_does_not_begin(tmp_path, monkeypatch):
    def no_thread(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(OSError, match="new thread: too little memory"), held(tmp_path / ".lock", REFUSAL):
        pass
    monkeypatch.undo()
    with held(tmp_path / ".lock", REFUSAL):
        pass


def test_a_note_without_a_heartbeat_is_stale(tmp_path):
    lock = tmp_path / ".lock"
    owner = note_of(lock, "elsewhere", 2 * STALE)
    assert not is_held_elsewhere(lock)
    with held(lock, REFUSAL):
        assert json.loads(owner.read_text())["process"] == os.getpid()
        assert owner.stat().st_mtime > time.time() - STALE
    assert {path.name for path in tmp_path.iterdir()} <= {".lock"}


def test_a_stale_note_that_another_process_has_just_replaced_is_put_back(tmp_path, monkeypatch):
    lock = tmp_path / ".lock"
    owner = note_of(lock, "elsewhere", 2 * STALE)
    rename = type(owner).rename

    def late(path, target):
        monkeypatch.undo()
        note_of(lock, "a third machine", 0)
        return rename(path, target)

    monkeypatch.setattr(type(owner), "rename", late)
    assert refused(lock) == f"{REFUSAL} (process 7 on a third machine since noon)"
    assert {path.name for path in tmp_path.iterdir()} <= {".lock", ".lock.owner"}


def test_a_process_waits_for_another_machine(tmp_path):
    lock = tmp_path / ".lock"
    owner = note_of(lock, "elsewhere", 0)
    threading.Timer(0.1, owner.unlink).start()
    with held(lock, REFUSAL, timeout=-1):
        assert json.loads(owner.read_text())["process"] == os.getpid()


@pytest.mark.parametrize("timeout", [-1, 60])
def test_a_process_outlasts_the_folder_of_a_refused_owner(tmp_path, monkeypatch, timeout):
    """On another machine, which removes all that there is, also this one's lock."""
    lock = tmp_path / "run" / ".lock"
    lock.parent.mkdir()
    note_of(lock, "elsewhere", 0)
    monkeypatch.setattr(system.here, "sleep", lambda seconds: shutil.rmtree(lock.parent))
    with held(lock, REFUSAL, timeout):
        assert f"process {os.getpid()} " in refused(lock)


def test_an_owner_that_was_taken_for_dead_leaves_the_note_of_its_successor(tmp_path):
    lock = tmp_path / ".lock"
    with held(lock, REFUSAL):
        owner = note_of(lock, "elsewhere", 0)
    assert owner.exists()


def test_the_heart_beats_for_its_own_note_only(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtide.core.locks.HEARTBEAT", 0.01)
    with held(tmp_path / ".lock", REFUSAL):
        owner = tmp_path / ".lock.owner"
        os.utime(owner, (0, 0))
        until(lambda: owner.stat().st_mtime > time.time() - STALE)
        successor = note_of(tmp_path / ".lock", "elsewhere", 2 * STALE)
        last = successor.stat().st_mtime
        (beating,) = (thread for thread in threading.enumerate() if thread.name == "heartbeat")
        assert beating.is_alive()
        beats = iter(range(20))
        until(lambda: next(beats) == 19)
        assert successor.stat().st_mtime == last


def test_who_was_taken_over_writes_nothing_more(tmp_path):
    """Neither files that are replaced, nor those that grow, nor what it has begun to write."""
    growing = GrowingFiles(tmp_path)
    with held(tmp_path / ".lock", REFUSAL):
        growing.append("rows.csv", b"1\n")
        message = (
            r"another process has taken over \(process 7 on elsewhere since noon\), since this one had shown no sign of life "
            "for 120 s; nothing more is written there$"
        )
        writing = ExitStack()
        writing.enter_context(replacing(tmp_path / "state")).write_text("mine")
        note_of(tmp_path / ".lock", "elsewhere", 0)
        with pytest.raises(TakenOver, match=message):
            writing.close()
        for name in ("rows.csv", "other.csv"):
            with pytest.raises(TakenOver):
                growing.append(name, b"2\n")
        write_text(tmp_path.parent / f"{tmp_path.name}.txt", "elsewhere")
    assert (tmp_path / "rows.csv").read_text() == "1\n"
    assert {path.name for path in tmp_path.iterdir()} <= {".lock", ".lock.owner", "rows.csv"}


def test_who_finds_its_temporary_file_removed_knows_that_it_was_taken_over(tmp_path):
    """The new owner has come after the look at the note."""
    path = tmp_path / "state"
    with held(tmp_path / ".lock", REFUSAL):
        check = system.here.fences[tmp_path / ".lock"]

        def late():
            check()
            note_of(tmp_path / ".lock", "elsewhere", 0)
            for part in tmp_path.glob("state.*.part"):
                part.unlink()
            system.here.fences[tmp_path / ".lock"] = check

        system.here.fences[tmp_path / ".lock"] = late
        with pytest.raises(TakenOver):
            write_text(path, "mine")
    assert not path.exists()
