"""Jobs in worker processes that are really killed."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import naming
from fedtide.runs.jobs import processes
from fedtide.runs.jobs.jobs import ATTEMPTS, Ask, Failure, run_here, run_in_workers

DROP_IN = Path(__file__).parents[1] / "drop_in"


class Listed:
    """Jobs from a list, and what came of them."""

    def __init__(self, *jobs: Any) -> None:
        self.waiting, self.ends, self.repeated = list(jobs), {}, []  # type: ignore[var-annotated]

    def next(self) -> Any:
        return self.waiting.pop(0) if self.waiting else None

    def answer(self, job: Any, question: Any) -> Any:
        return f"answer to {question}"

    def repeat(self, job: Any, reason: str) -> None:
        self.repeated.append((job, reason))

    def is_interrupted(self, result: Any) -> bool:
        return bool(result == "interrupted")

    def finish(self, job: Any, end: Any) -> None:
        self.ends[job] = end


def work(job: str, ask: Ask) -> str:
    """What the words of a job say; a path is a marker that the first attempt leaves behind."""
    what, _, marker = job.partition(" ")
    again = bool(marker) and Path(marker).exists()
    if marker:
        Path(marker).touch()
    if what == "raise":
        raise ZeroDivisionError("by zero\nand more")
    if what == "exit":
        raise SystemExit(3)
    if what == "fill":
        with naming(Path("/dev/full")), Path("/dev/full").open("w") as stream:
            stream.write("more than fits")
    if what == "refuse":
        raise SettingsError("local.lr = -1: should be greater than 0")
    if what == "die" or (what == "stumble" and not again):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop" and not again:
        return "interrupted"
    return str(ask("it")) if what == "ask" else f"{what} done"


@pytest.mark.slow
def test_a_job_that_kills_its_process_is_begun_again_and_then_given_up(tmp_path: Path) -> None:
    """With two processes, where one waits for the next job when the other one dies."""
    stumble, stop = f"stumble {tmp_path / 'stumble'}", f"stop {tmp_path / 'stop'}"
    jobs = Listed("plain", "die", stumble, "raise", stop, "ask", "exit", "refuse")
    assert run_in_workers(work, jobs, 2) is None
    died = jobs.ends.pop("die")
    assert died == Failure(
        f"its process was killed (SIGKILL, perhaps for lack of memory), at each of {ATTEMPTS} attempts"
    )
    raised, left = jobs.ends.pop("raise"), jobs.ends.pop("exit")
    assert (raised.message, left.message) == ("ZeroDivisionError: by zero", "SystemExit: 3")
    assert "in work\n" in raised.traceback
    assert jobs.ends == {
        "plain": "plain done",
        stumble: "stumble done",
        stop: "stop done",
        "ask": "answer to it",
        "refuse": Failure("local.lr = -1: should be greater than 0", refused=True),
    }
    assert sorted(job for job, _ in jobs.repeated) == sorted(["die", stumble, stop])


def test_in_this_process_a_job_that_raises_does_not_end_the_others() -> None:
    jobs = Listed("raise", "fill", "ask")
    run_here(work, jobs)
    assert jobs.ends["raise"].message == "ZeroDivisionError: by zero"
    assert jobs.ends["ask"] == "answer to it"
    full = jobs.ends["fill"]
    assert full.message.startswith("[Errno 28] No space left on device; ")
    assert full.message.endswith("bytes free: '/dev/full'")
    assert full.traceback == ""


def interrupt_the_parent(job: str, ask: Ask) -> str:
    os.kill(int(job), signal.SIGTERM)
    signal.pause()
    return "never"


def test_after_a_signal_no_job_is_begun_and_those_in_progress_are_told_to_stop() -> None:
    before = signal.getsignal(signal.SIGTERM)
    jobs = Listed(str(os.getpid()), "plain")
    assert run_in_workers(interrupt_the_parent, jobs, 1) == signal.SIGTERM
    assert (jobs.ends, jobs.waiting, jobs.repeated) == ({}, ["plain"], [])
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_settings_of_a_users_own_plugin_reach_the_workers(drop_in: None) -> None:
    own = [name for name in plugins.names("algorithms") if (DROP_IN / "algorithms" / f"{name}.py").is_file()]
    job = plugins.load("algorithms", own[0]).Settings(name=own[0])
    jobs = Listed(job)
    run_in_workers(shown, jobs, 1)
    assert jobs.ends == {job: repr(job)}


def shown(job: Any, ask: Ask) -> str:
    return repr(job)


@pytest.mark.slow
def test_no_socket_is_needed_in_a_temporary_folder_with_a_long_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.util, "get_temp_dir", lambda: f"/{'x' * 106}")
    assert processes.worker_context().get_start_method() == "spawn"
    jobs = Listed("plain")
    assert run_in_workers(work, jobs, 1) is None
    assert jobs.ends == {"plain": "plain done"}
