"""One schedule of a command that executes a run on the workers of a cluster, which share no folder with it."""

from __future__ import annotations

import signal
from collections import Counter
from types import SimpleNamespace
from typing import Any

from command import RUN, train
from disk import Disk, SimPath
from judge import KEY, Judge
from kernel import Kernel, Process, Stuck
from network import Child, Dask, Inbox, Pipe, Worker, serve
from schedule import PATIENCE, Here, Outcome

from fedtide.core import system
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.jobs.cluster import away, home, pool, worker
from fedtide.runs.jobs.cluster.connect import Cluster
from fedtide.runs.jobs.jobs import Failure, _attempt


class _Visits(away._Visits):
    def _with_data(self, settings: Any) -> Any:
        return settings


class _Jobs:
    """The one job of a command; :class:`fedtide.runs.jobs.jobs.Jobs`."""

    def __init__(self, kernel: Kernel, process: Process) -> None:
        self._kernel, self._process, self._left = kernel, process, [SimpleNamespace(name="run")]

    def next(self) -> Any:
        if not self._left:
            return None
        job = self._left.pop()
        if RunDirectory(SimPath(RUN)).finished(KEY) is not None:  # type: ignore[arg-type]
            self._process.outcome = "complete"
            return None
        return job

    def begin(self, job: Any, place: str) -> None:
        self._kernel.tell(f"the run is on {place}")

    def answer(self, job: Any, question: Any) -> None:
        return None

    def repeat(self, job: Any, reason: str) -> None:
        self._kernel.tell(f"{reason}; restarting from its saved state")

    def is_interrupted(self, result: Any) -> bool:
        return bool(result == "interrupted")

    def finish(self, job: Any, end: Any) -> None:
        self._process.outcome = f"failed: {end.message}" if isinstance(end, Failure) else end


class _Home(home.JobsFromHome[Any, Any]):
    """Tells the judge when the command has the run."""

    judged: tuple[Judge, Process]

    def _fetched(self, job: Any, folder: Any) -> Any:
        found = super()._fetched(job, folder)
        if not isinstance(found, str):
            judge, process = self.judged
            judge.claimed(process)
            judge.resumed(process, None)
        return found


class _Stop:
    """Signals to the command."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def received(self) -> int | None:
        return signal.SIGTERM if self._process.told else None


class _Numbers:
    """Numbers the attempts at the run; a judge of the workers' own folders is not needed."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._last = kernel, 0

    def claimed(self, process: Process) -> int:
        self._last += 1
        return self._last

    def resumed(self, process: Process, saved: Any) -> None:
        self._kernel.tell(f"process {process.number} on {process.host} continues from {saved.round if saved else 0}")


class _World:
    """The machines of a schedule."""

    def __init__(self, kernel: Kernel, judge: Judge) -> None:
        self.kernel, self.judge, self.numbers = kernel, judge, _Numbers(kernel)
        self.held: dict[tuple[str, str], Process] = {}

    def process(self, host: str) -> Process:
        process = self.kernel.new_process(host)
        process.here = Here(self.kernel, process, self.held)
        return process

    def command(self, host: str, dask: Dask, delay: float) -> Process:
        process = self.process(host)
        self.kernel.spawn(process, lambda: self._run(process, dask), delay)
        return process

    def _run(self, process: Process, dask: Dask) -> None:
        jobs = _Home(_Jobs(self.kernel, process), SimPath("/runs"))  # type: ignore[arg-type]
        jobs.judged = self.judge, process
        cluster: Any = Cluster("simulated", dask, lambda: self._replace(process.host, dask))  # type: ignore[arg-type]
        stop: Any = _Stop(process)
        flights = pool._Pool(jobs, cluster, b"", stop, self.kernel.tell)
        flights._inbox = Inbox(self.kernel)  # type: ignore[assignment]
        try:
            flights.run(1)
        except OSError as error:
            process.outcome = f"failed: {error}"
        finally:
            flights.close()
            jobs.release()
        process.outcome = process.outcome or "interrupted"
        dask.leave()
        self.kernel.tell(f"command {process.number} ends: {process.outcome}")

    def _replace(self, host: str, dask: Dask) -> None:
        """As a batch system."""
        if not dask.nthreads():
            self.worker(f"{host}-node{len(dask.workers)}", dask, 0.0)

    def worker(self, host: str, dask: Dask, delay: float) -> None:
        one = Worker(dask, self.process(host), self._child)
        dask.workers.append(one)
        self.kernel.spawn(one.process, one.work, delay)

    def _child(self, parent: Process, command: str) -> Child:
        process = self.process(parent.host)

        def work(job: Any, ask: Any) -> str:
            process.told = False
            folder = SimPath(f"/scratch/{process.host}/{process.number}/{job.name}")
            visits = _Visits(SimPath("/scratch"), 0.0, ask)  # type: ignore[arg-type]
            try:
                with visits.visit(None, folder, []) as (_, callbacks):  # type: ignore[arg-type]
                    return train(self.kernel, process, self.numbers, True, str(folder), callbacks)
            finally:
                for name in [name for name in SimPath.disk.files if name.startswith(f"{folder}/")]:
                    del SimPath.disk.files[name]

        def main(process: Process, pipe: Pipe) -> None:
            serve(work, process, pipe, _attempt)

        return Child(command, self.kernel, process, main)


def simulate(seed: int) -> Outcome:
    """Run the schedule of a seed: a command, perhaps a second one later, two or three workers each."""
    kernel = Kernel(seed)
    draw = kernel.random
    kernel.faults, kernel.switches = draw.choice((0.0, 0.002, 0.005)), draw.choice((0.02, 0.1, 0.4))
    disk = SimPath.disk = Disk(kernel)
    judge = Judge(kernel, disk, fenced=True)
    world = _World(kernel, judge)
    clusters: dict[Process, Dask] = {}

    def died(process: Process) -> None:
        for key in [key for key, by in world.held.items() if by is process]:
            del world.held[key]
        if process in clusters:
            clusters[process].leave()

    kernel.on_death = died

    def start(host: str, delay: float, workers: int) -> Process:
        dask = Dask(kernel)
        process = world.command(host, dask, delay)
        clusters[process] = dask
        for number in range(workers):
            world.worker(f"{host}-node{number}", dask, delay + draw.choice((0.0, 10.0, 60.0)))
        if kernel.faults and draw.random() < 0.15:
            kernel.spawn(dask.net, dask.lose, delay + draw.uniform(1.0, 100.0))
        return process

    before, polls = system.here, (pool._POLL, worker._POLL)
    pool._POLL = worker._POLL = 5.0
    try:
        start("home0", 0.0, draw.choice((2, 3)))
        if draw.random() < 0.4:
            start("home1", draw.choice((5.0, 130.0, 300.0)), 2)
        try:
            kernel.run()
            kernel.faults, began = 0.0, kernel.now
            ended = ""
            while not judge.is_finished() and kernel.now - began < PATIENCE:
                last = start("home2", 130.0, 1)
                kernel.run()
                ended = last.outcome
            if not judge.is_finished():
                judge.problems.append(f"an undisturbed command does not finish the run, it ends: {ended}")
        except Stuck as error:
            judge.problems.append(str(error))
        kernel.observer = kernel.new_process("judge")
        system.here = Here(kernel, kernel.observer, world.held)
        problems = judge.problems or judge.verdict()
    finally:
        system.here, (pool._POLL, worker._POLL) = before, polls
    counts = Counter("killed" if each.dead else each.outcome.partition(":")[0] for each in clusters)
    counts["restarts"] = sum("; restarting" in line for line in kernel.story)
    return Outcome(seed, problems, kernel.story, kernel.steps, counts)
