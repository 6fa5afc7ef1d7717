"""Runs on machines that may have other code, or other folders."""

import socket

import pytest

from fedtide.core.errors import SettingsError
from fedtide.runs import execution
from fedtide.runs.jobs.cluster import child
from fedtide.runs.workspace import Workspace


def test_another_version_is_refused_by_the_name_of_its_host(small, tmp_path):
    with pytest.raises(SettingsError, match=f"^{socket.gethostname()}: code or data differ .*: other-key would be"):
        execution.execute(small(), Workspace(tmp_path), expected="other-key")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", [False, True])
def test_a_machine_that_does_not_share_the_folder_refuses_its_jobs(tmp_path, monkeypatch, there):
    """Also if it has one of that name."""
    monkeypatch.setattr(child, "_PATIENCE", 0)
    folder = tmp_path / "elsewhere"
    if there:
        folder.mkdir()
    problem = child._enter(folder, folder / "runs" / ".cluster.part")
    host = socket.gethostname()
    refusal = f"{folder / 'runs'} is not accessible on {host}; a cluster requires this folder on a shared file system"
    assert problem.startswith(refusal)
    with pytest.raises(SettingsError, match="is not accessible on"):
        child._refusing(problem)(None, None)
