"""What a cluster costs: many short jobs over Dask workers of this machine, and real runs against processes of the command.

``python benchmarks/cluster.py [--jobs 500] [--seconds 2] [--workers 4] [--runs 100]``

Jobs only wait, so that their own time is known and needs no processor; start-up and end of the cluster count. Real runs are
short ones on the digits; the machine should have nothing else to do.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from fedtide.runs.compare import compare
from fedtide.runs.jobs.executors import executor
from fedtide.runs.jobs.jobs import Ask
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import CompareSettings
from fedtide.settings.params import Params

PARAMS = {
    "data": "digits",
    "scenario": {"name": "sessions", "num_devices": 4, "num_sessions": 4, "rounds_per_session": 40},
    "local": {"steps": 5, "lr": 0.1},
    "engine": {"accelerator": "cpu"},
}


class Waiting:
    """Jobs that wait; see :class:`fedtide.runs.jobs.jobs.Jobs`."""

    def __init__(self, count: int, seconds: float) -> None:
        self.left, self.seconds = count, seconds
        self.ends: list[float] = []

    def next(self) -> float | None:
        """Hand a job out."""
        self.left -= 1
        return self.seconds if self.left >= 0 else None

    def begin(self, job: float, place: str) -> None:
        """Note nothing."""

    def answer(self, job: float, question: Any) -> None:
        """Answer nothing."""

    def repeat(self, job: float, reason: str) -> None:
        """Note nothing."""

    def is_interrupted(self, result: float) -> bool:
        """Never."""
        return False

    def finish(self, job: float, end: Any) -> None:
        """Note when."""
        assert end == job, end
        self.ends.append(time.perf_counter())


def wait(job: float, ask: Ask) -> float:
    time.sleep(job)
    return job


def waiting(count: int, seconds: float, workers: int) -> None:
    from cluster import wait as importable  # by the name of this file, as workers import it

    jobs, start = Waiting(count, seconds), time.perf_counter()
    with executor(CompareSettings(cluster="local"), workers, 0, Path.cwd(), print) as execute:
        ready = time.perf_counter() - start
        execute(importable, jobs, workers)
    took, own = time.perf_counter() - start, count * seconds / workers
    each = (jobs.ends[-1] - jobs.ends[workers - 1]) * workers / (count - workers)
    print(
        f"{count} jobs of {seconds:g} s over {workers} workers: {took:.1f} s instead of {own:.1f} s, "
        f"{took / own - 1:.1%} more; the cluster was ready after {ready:.1f} s, the first job had ended after "
        f"{jobs.ends[0] - start:.1f} s, then each took {each:.3f} s, {each / seconds - 1:.1%} more"
    )


def real(count: int, workers: int) -> None:
    params = Params({**PARAMS, "compare": {"seeds": list(range(count))}})
    for cluster in ("", "local"):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            compare(params.grid(), Workspace(Path(folder)), CompareSettings(workers=workers, cluster=cluster))
            took = time.perf_counter() - start
        where = "Dask workers" if cluster else "processes"
        print(f"{count} runs over {workers} {where}: {took:.1f} s, {took * workers / count:.2f} s each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=100)
    chosen = parser.parse_args()
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # where the processes of jobs find this file
    if chosen.jobs:
        waiting(chosen.jobs, chosen.seconds, chosen.workers)
    if chosen.runs:
        real(chosen.runs, 2)


if __name__ == "__main__":
    main()
