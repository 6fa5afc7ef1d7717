"""What executes the jobs of a command: processes of this machine, or the workers of a cluster."""

import functools
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedtide.core.storage.files import folder, part_suffix, remove_dead_parts
from fedtide.runs.jobs.jobs import Jobs, Work, run_in_workers
from fedtide.settings.experiment import CompareSettings

_OURS = "FEDTIDE_"  # beginning of the names of variables that workers inherit

Executor = Callable[[Work[Any, Any], Jobs[Any, Any], int], int | None]
"""Executes all jobs, several at once; contract as :func:`fedtide.runs.jobs.jobs.run_in_workers`."""


@contextmanager
def executor(
    where: CompareSettings, workers: int, per_card: int, runs: Path, log: Callable[[str], None]
) -> Iterator[Executor]:
    """What executes jobs: ``where.cluster``, which is first connected to, or started, or processes of this machine.

    ``workers``: jobs at once, for clusters that are started, 0 for one per core. ``per_card``: jobs that share a GPU,
    0 to use none. A SettingsError if the cluster cannot be reached.
    """
    if not where.cluster:
        yield functools.partial(run_in_workers, per_card=per_card)
        return
    from fedtide.runs.jobs.cluster.connect import connected

    # A file by which workers recognize the folder of runs.
    path = folder(runs).absolute() / ".cluster"
    remove_dead_parts(path.parent, ".cluster.*")
    beacon = path.with_name(f"{path.name}{part_suffix()}")
    with connected(where.cluster, workers, log) as cluster, ExitStack() as holding:
        holding.callback(beacon.unlink, missing_ok=True)
        beacon.touch()
        from fedtide.runs.jobs.cluster.pool import run_on_cluster  # with Dask

        def run(work: Work[Any, Any], jobs: Jobs[Any, Any], count: int) -> int | None:
            environment = {name: value for name, value in os.environ.items() if name.startswith(_OURS)}
            program = pickle.dumps(work), environment, Path.cwd(), beacon, per_card
            return run_on_cluster(jobs, cluster, pickle.dumps(program), count, log)

        yield run
