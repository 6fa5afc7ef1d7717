"""Connections to clusters: a running scheduler, one on this machine, or one whose workers a batch system starts."""

from __future__ import annotations

import logging
import math
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedtide.core import extras
from fedtide.core.errors import SettingsError, shortened
from fedtide.runs.jobs.processes import current_folder_hidden, main_module_hidden
from fedtide.runs.jobs.signals import handled
from fedtide.settings.experiment import BATCH_SYSTEMS, LOCAL
from fedtide.training.resources.workers import available_cores

if TYPE_CHECKING:
    from distributed import Client

_DASHBOARD = "127.0.0.1:0"  # Dask's; any free port
_PATIENCE = 10.0  # seconds to reach a scheduler


@dataclass(frozen=True)
class Cluster:
    """A connected cluster; ``replace_lost`` asks for workers in place of lost ones."""

    name: str
    client: Client
    replace_lost: Callable[[], None]


@contextmanager
def connected(name: str, workers: int, log: Callable[[str], None]) -> Iterator[Cluster]:
    """Connect to a cluster, and end those of its workers that were started for this command afterwards.

    ``workers``: runs at once; on this machine 0 for one per core. A SettingsError if it cannot be reached or started.
    """
    extras.require("cluster", f"compare.cluster = {name}", "dask_jobqueue" if name in BATCH_SYSTEMS else "distributed")
    from distributed import Client

    for logger in map(logging.getLogger, ("distributed", "distributed.client", "tornado.application")):
        if name in BATCH_SYSTEMS:
            logger.handlers, logger.propagate = [_OneLine(log)], False
        else:
            logger.setLevel(logging.CRITICAL)  # the command reports failures in one line itself
    with ExitStack() as holding:
        target, replace_lost = _target(name, workers, holding)
        try:
            client = holding.enter_context(Client(target, timeout=_PATIENCE, set_as_default=False))
        except (OSError, ValueError) as error:
            shown = shortened(str(error) or type(error).__name__)
            raise SettingsError(f"compare.cluster = {name}: no Dask scheduler can be reached ({shown})") from None
        yield Cluster(name, client, replace_lost)


def _target(name: str, workers: int, holding: ExitStack) -> tuple[Any, Callable[[], None]]:
    """What a client connects to, and what replaces lost workers."""
    if name == LOCAL:
        from distributed import LocalCluster

        count = workers or available_cores()
        holding.enter_context(current_folder_hidden())  # as long as lost workers may be replaced
        # The processes ignore Ctrl-C, which reaches all processes of a terminal; the command tells them to stop.
        with main_module_hidden(), handled(signal.SIG_IGN, [signal.SIGINT]):
            options = {"n_workers": count, "threads_per_worker": 1, "dashboard_address": _DASHBOARD}
            return holding.enter_context(LocalCluster(**options, silence_logs=logging.CRITICAL)), lambda: None
    if name in BATCH_SYSTEMS:
        return _batch(name, workers, holding)
    return name, lambda: None


def _batch(name: str, workers: int, holding: ExitStack) -> tuple[Any, Callable[[], None]]:
    """A scheduler in this process, whose workers are jobs of a batch system as dask-jobqueue's own settings say."""
    if workers == 0:
        raise SettingsError(
            f"compare.cluster = {name}: set compare.workers to the number of runs at once (tune.workers for a search)"
        )
    import dask
    import dask_jobqueue

    kind = getattr(dask_jobqueue, BATCH_SYSTEMS[name])
    if shutil.which(submit := shlex.split(kind.job_cls.submit_command)[0]) is None:
        raise SettingsError(f"compare.cluster = {name}: the command {submit} is not available on this machine")
    chosen = dask.config.get(f"jobqueue.{kind.job_cls.config_name}")
    # The worker replaces the job's shell, which would not pass signals on; -P: see current_folder_hidden.
    python = f"exec {chosen['python'] or sys.executable} -P"
    try:
        cluster = kind(nanny=False, processes=1, python=python, scheduler_options={"dashboard_address": _DASHBOARD})
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SettingsError(
            f"compare.cluster = {name}: its jobs, see dask-jobqueue's file jobqueue.yaml: {reason}"
        ) from None
    holding.enter_context(cluster)
    jobs = math.ceil(workers / int(chosen["cores"]))
    return cluster, lambda: cluster.scale(jobs=jobs)


class _OneLine(logging.Handler):
    """Logs errors of Dask, such as a job that is refused, in one line each, and each only once."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._known: set[str] = set()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = str(error) if error is not None else record.getMessage()
        text = shortened(text.rpartition("stderr:")[2])  # of a command that has failed
        if text and text not in self._known:
            self._known.add(text)
            self._log(f"Dask: {text}")
