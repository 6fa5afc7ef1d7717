"""Files that are complete or absent."""

import errno
import os
import subprocess
import sys

import pytest

from fedtide.core.storage import files
from fedtide.core.storage.files import make_folder, replacing, write_json


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, 1)
    with pytest.raises(ZeroDivisionError), replacing(path) as part:
        part.write_text(str(1 // 0))
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a.json": "1\n"}


def test_a_dead_process_leaves_no_part_for_long(tmp_path):
    path = tmp_path / "a.json"
    script = "import os, sys, pathlib\nfrom fedtide.core.storage.files import replacing\n"
    script += (
        "with replacing(pathlib.Path(sys.argv[1])) as part:\n    part.write_text('half')\n    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 1
    with replacing(path) as own:  # a process that is alive keeps its own
        own.write_text("other")
        write_json(tmp_path / "b.json", 2)
        assert own.exists()
    assert {file.name for file in tmp_path.iterdir()} == {"a.json", "b.json"}


def test_a_full_disk_is_named_with_its_free_bytes(tmp_path):
    message = r"No space left on device; [\d,]+ bytes free: .*a\.json"
    with pytest.raises(OSError, match=message) as caught, replacing(tmp_path / "a.json"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())


def test_the_names_of_new_folders_are_on_the_disk(tmp_path, monkeypatch):
    """A power loss must not take a folder whose files were made durable one by one."""
    synced = []
    monkeypatch.setattr(files, "sync", synced.append)
    make_folder(tmp_path / "runs" / "x" / "state")
    assert sorted(synced) == [tmp_path, tmp_path / "runs", tmp_path / "runs" / "x"]
    make_folder(tmp_path / "runs" / "x" / "state")
    assert len(synced) == 3
