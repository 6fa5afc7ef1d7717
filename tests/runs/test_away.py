"""Runs on machines that may have other code, and that share no folder."""

import json
import socket
import zlib

import pytest

from fedtide.core.errors import SettingsError
from fedtide.core.locks import held
from fedtide.mirror.workspace import Workspace
from fedtide.records.run_directory import RunDirectory
from fedtide.records.states import files_of, generations
from fedtide.runs import execution
from fedtide.runs.jobs.cluster.home import Fetch, FetchData, JobsFromHome, Store, file_names, read_files, write_files


def test_another_version_is_refused_by_the_name_of_its_host(small, tmp_path):
    with pytest.raises(SettingsError, match=f"^{socket.gethostname()}: code or data differ .*: other-key would be"):
        execution.execute(small(), Workspace(tmp_path), expected="other-key")
    assert not list(tmp_path.iterdir())


class Inner:
    """Jobs that only learn what happens."""

    def repeat(self, job, reason):
        pass


@pytest.fixture
def home(tmp_path):
    """Answers questions about records in the folder ``home``."""
    (tmp_path / "home").mkdir()
    jobs = JobsFromHome(Inner(), tmp_path / "home")
    yield jobs
    jobs.release()


@pytest.mark.parametrize(("kept", "states"), [(False, []), (True, ["state-00000006.pt", "state-00000003.pt"])])
def test_records_come_home_and_go_on_elsewhere(home, tmp_path, small, run_once, stop_after, kept, states):
    """Half of a run here, sent home, fetched by another machine, which finishes it: as if it had never moved."""
    job, here, there = object(), tmp_path / "x", tmp_path / "elsewhere" / "x"
    settings = small(checkpoint={"keep_finished": kept})
    run_once(settings, callbacks=[stop_after(3)])
    names = file_names(here)
    assert names[-1] == "state/state-00000003.pt"  # after the records that it continues
    assert home.answer(job, Fetch("x")) == ()
    home.answer(job, Store("x", read_files(here, names), names))
    home.repeat(job, "its worker was lost")
    write_files(there, home.answer(job, Fetch("x")))
    assert {name: (there / name).read_bytes() for name in names} == {name: (here / name).read_bytes() for name in names}

    from small_runs import execute

    assert execute(settings, there.parent, name="x")["state"] == "complete"
    names = file_names(there)
    assert names[-1] == "summary.json"
    home.answer(job, Store("x", read_files(there, names), names))
    home.release(job)
    arrived = RunDirectory(tmp_path / "home" / "x")
    arrived.verify(*names)
    assert [row["round"] for row in arrived.history()] == [str(number) for number in range(1, 7)]
    left = generations(arrived.state)
    assert [path.name for path in left] == states
    assert set(arrived.state.iterdir()) == {file for state in left for file in files_of(state)}


def test_a_run_in_use_at_home_is_not_given_away(home, tmp_path):
    (tmp_path / "home" / "x").mkdir()
    with held(tmp_path / "home" / "x" / ".lock", "x"):
        assert "another process is working on this run (process " in home.answer(object(), Fetch("x"))


def test_who_is_refused_leaves_the_run_to_its_owner(home, tmp_path):
    """Also one of which nothing has come home yet."""
    other, jobs = JobsFromHome(Inner(), tmp_path / "home"), (object(), object())
    assert home.answer(jobs[0], Fetch("x")) == ()
    assert "another process is working on this run (process " in other.answer(jobs[1], Fetch("x"))
    other.release(jobs[1])
    assert home.answer(jobs[0], Store("x", (("y", zlib.compress(b"z")),), ("y",))) is None
    assert (tmp_path / "home" / "x" / "y").read_bytes() == b"z"


def take_over(folder):
    """As a process of another machine, which took this one's for dead."""
    (folder / ".lock.owner").write_text(json.dumps({"process": 7, "host": "elsewhere", "since": "noon"}))


@pytest.mark.parametrize("removed", [False, True])
def test_a_run_taken_over_while_it_is_read_is_not_given_away(home, tmp_path, monkeypatch, removed):
    """What was read is not of one state, and what was to be read may be gone: no fault of the other runs of this command."""
    folder = tmp_path / "home" / "x"
    folder.mkdir()
    (folder / "y").write_bytes(b"z")

    def read(*arguments):
        take_over(folder)
        if removed:
            (folder / "y").unlink()
        return read_files(*arguments)

    monkeypatch.setattr("fedtide.runs.jobs.cluster.home.read_files", read)
    refusal = home.answer(object(), Fetch("x"))
    assert "another process has taken over (process 7 on elsewhere since noon)" in str(refusal)


def test_who_is_taken_over_while_it_looks_at_states_stores_nothing_more(home, tmp_path, monkeypatch):
    """The new owner may have removed one of them."""
    job, folder = object(), tmp_path / "home" / "x"
    home.answer(job, Fetch("x"))

    def sweep(states):
        take_over(folder)
        raise FileNotFoundError(states / "state-00000001.pt")

    monkeypatch.setattr("fedtide.runs.jobs.cluster.home.sweep", sweep)
    assert "another process has taken over (process 7 on elsewhere" in home.answer(job, Store("x", (), ()))


def test_a_run_that_was_taken_over_is_left_to_its_owner(home, tmp_path):
    job = object()
    home.answer(job, Fetch("x"))
    take_over(tmp_path / "home" / "x")
    home.release(job)
    assert (tmp_path / "home" / "x" / ".lock.owner").is_file()


def test_a_run_that_was_refused_leaves_nothing(home, tmp_path):
    job = object()
    home.answer(job, Fetch("x"))
    home.answer(job, Store("x", (), ()))
    home.release(job)
    assert not list((tmp_path / "home").iterdir())


def test_a_worker_cannot_write_elsewhere(home, tmp_path):
    files, job = (("../y", b""),), object()
    home.answer(job, Fetch("x"))
    with pytest.raises(SettingsError, match="outside"):
        home.answer(job, Store("x", files, ("../y",)))


def test_a_worker_whose_job_was_given_to_another_stores_nothing(home):
    refusal = home.answer(object(), Store("x", (("y", b""),), ("y",)))
    assert "the run was given to another worker" in refusal


def test_prepared_data_are_sent(home, small):
    from fedtide.worlds.prepared import load_data

    load_data(small())
    assert home.answer(object(), FetchData(small()))[:1] == b"x"  # of zlib
