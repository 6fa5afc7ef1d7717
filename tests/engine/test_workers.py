"""The worker pool and the memory plan."""

import signal
import threading
from pathlib import Path

import pytest
import torch

from fedtide.federation.federation import Federation
from fedtide.training.resources import workers as module
from fedtide.training.resources.control_groups import processors
from fedtide.training.resources.memory import available_bytes, plan_chunk
from fedtide.training.resources.workers import Workers, WorkerState, available_cores
from support import federation, settings, steady, vectors


@pytest.fixture
def fed() -> Federation:
    """A tiny learning problem."""
    return federation(settings(), steady((4, 4), 1), vectors())


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(fed: Federation, count: int) -> None:
    workers = Workers(fed.parts.task, count)
    busy: list[WorkerState] = []
    lock = threading.Lock()

    def work(worker: WorkerState, item: int) -> int:
        with lock:
            assert worker not in busy  # a module belongs to one thread at a time
            busy.append(worker)
        assert torch.get_num_threads() == 1
        with lock:
            busy.remove(worker)
        return item * item

    assert workers.map(work, range(40)) == [item * item for item in range(40)]
    workers.close()


def test_an_error_reaches_the_caller_ends_the_call_and_the_worker_returns(fed: Federation) -> None:
    workers = Workers(fed.parts.task, 1)
    begun = []

    def fail(worker: WorkerState, item: int) -> None:
        begun.append(item)
        if item == 2:
            raise RuntimeError(f"item {item}")

    with pytest.raises(RuntimeError, match="item 2"):
        workers.map(fail, range(10))
    assert begun == [0, 1, 2]
    assert workers.map(lambda worker, item: item, [7]) == [7]
    workers.close()


def test_an_interrupt_ends_the_call(fed: Federation) -> None:
    workers = Workers(fed.parts.task, 1)
    workers.map(lambda worker, item: item, [0])  # starts the thread
    begun, interrupted, ended = [], threading.Event(), threading.Event()

    def once(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    def interrupt(worker: WorkerState, item: int) -> None:
        begun.append(item)
        while not interrupted.wait(0.01):  # a signal just before the caller falls asleep does not wake it
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        ended.wait()

    before = signal.signal(signal.SIGINT, once)
    try:
        with pytest.raises(KeyboardInterrupt):
            workers.map(interrupt, range(10))
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()
    workers.close()
    assert begun == [0]


def test_references_have_modules_of_their_own(fed: Federation) -> None:
    worker = WorkerState(fed.parts.task)
    first, second = worker.frozen("a"), worker.frozen("b")
    assert first is worker.frozen("a")
    assert first is not second
    assert not first.network.training
    first.w.fill_(1.0)
    assert not bool((second.w == 1.0).any() or (worker.module.w == 1.0).any())


def test_what_the_file_cache_would_give_back_is_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = tmp_path / "meminfo"
    figures.write_text("MemTotal:  2000 kB\nMemFree:  10 kB\nMemAvailable:  1500 kB\nCached:  1600 kB\n")
    monkeypatch.setattr("fedtide.training.resources.memory.Path", lambda _: figures)
    assert available_bytes(torch.device("cpu")) == 1500 * 1024
    figures.unlink()
    assert available_bytes(torch.device("cpu")) > 0


def test_chunks_shrink_with_the_model_and_never_vanish(fed: Federation) -> None:
    chunks = [plan_chunk(size, 10**6, 32, fed.parts.task, lanes=1) for size in (10, 1000, 10**6, 10**9)]
    assert chunks == sorted(chunks, reverse=True)
    assert chunks[-1] == 1
    assert chunks[0] > 1000


@pytest.mark.parametrize("size", [10, 10**5])
@pytest.mark.parametrize("clients", [0, 1, 99, 10**5])
def test_lanes_share_the_chunks_evenly(fed: Federation, size: int, clients: int) -> None:
    for lanes in (1, 2, 7):
        chunk = plan_chunk(size, clients, 32, fed.parts.task, lanes)
        rounds = -(-clients // (chunk * lanes))  # of chunks, one for each lane
        assert chunk == max(1, -(-clients // max(1, lanes * rounds)))


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_of_processor_time_is_a_number_of_processors(version: int, tmp_path: Path) -> None:
    """That of the process's group, and of those around it; without a quota there is none."""
    process, groups = tmp_path / "self", tmp_path / "groups"
    process.mkdir()
    (process / "cgroup").write_text("4:memory:/\n1:cpu,cpuacct:/a/b\n" if version == 1 else "0::/a/b\n")
    base = groups / "cpu" if version == 1 else groups
    for folder, quota in ((base, None), (base / "a", 400_000), (base / "a/b", 150_000)):
        folder.mkdir(parents=True)
        if version == 2:
            (folder / "cpu.max").write_text(f"{quota or 'max'} 100000\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{quota or -1}\n")
            (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert processors(groups, process) == [2, 4]


@pytest.mark.parametrize(
    ("quotas", "threads", "cores"),
    [([], "", 8), ([3, 16], "", 3), ([], "2", 2), ([3], "2,1", 2), ([], "all", 8), ([], "0", 1), ([], "99", 8)],
)
def test_cores_are_those_that_the_process_may_keep_busy(
    quotas: list[int], threads: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(module, "processors", lambda: quotas)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert available_cores() == cores
