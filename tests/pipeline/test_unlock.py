"""DVC's list of locks, after a kill in the moment that it is written."""

import subprocess
import sys
from pathlib import Path

import pytest
from zc.lockfile import LockFile

SCRIPT = Path(__file__).parents[2] / "pipeline" / "unlock.py"


@pytest.fixture
def rwlock(tmp_path):
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    return tmp_path / ".dvc/tmp/rwlock"


def unlock(root):
    return subprocess.run([sys.executable, str(SCRIPT)], cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("content", ["", '{"write": {"/pro'])
def test_what_cannot_be_read_is_removed(rwlock, tmp_path, content):
    rwlock.write_text(content)
    assert unlock(tmp_path) == ".dvc/tmp/rwlock: removed, a killed DVC process had left it damaged\n"
    assert not rwlock.exists()
    assert unlock(tmp_path) == ""


def test_what_can_be_read_and_what_is_in_use_stays(rwlock, tmp_path):
    rwlock.write_text("{}")
    assert unlock(tmp_path) == ""
    rwlock.write_text("")
    for name in ("lock", "rwlock.lock"):
        holder = LockFile(str(rwlock.with_name(name)))
        assert unlock(tmp_path).startswith(".dvc/tmp/rwlock: damaged, but a DVC process is at work")
        holder.close()
    assert rwlock.exists()


@pytest.mark.slow
def test_an_empty_list_fails_dvc_until_it_is_removed(project, tmp_path):
    (project.root / ".dvc/tmp/rwlock").write_text("")
    assert project.start(log=tmp_path / "failed.log").wait() == 255
    unlock(project.root)
    assert project.repro()[0] == {"download", "inputs"}  # which always run
