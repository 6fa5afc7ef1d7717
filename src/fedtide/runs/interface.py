"""Runs, comparisons and records for scripts and notebooks; :mod:`fedtide` exports what is here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtide.core.errors import SettingsError
from fedtide.settings.cluster import HERE
from fedtide.settings.experiment import TrackingSettings
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings

if TYPE_CHECKING:
    from fedtide.mirror.workspace import Workspace
    from fedtide.records.frames import Records

Log = Callable[[str], None]

_INTERRUPTED = "interrupted; the same call continues from what is saved"


def run(
    params: Params | RunSettings,
    runs: str | Path = "runs",
    *,
    name: str | None = None,
    mlruns: str | Path | None = None,
    log: Log = lambda line: None,
) -> Records:
    """Execute a run and return its records; a finished run is returned at once, a half-done one continues.

    >>> import fedtide
    >>> params = fedtide.Params({"model": "logistic", "scenario": {"name": "static", "num_clients": 4, "rounds": 2}})
    >>> records = fedtide.run(params)
    >>> records.history[["label", "round", "present"]].to_numpy().tolist()
    [['fedavg', 1, 4], ['fedavg', 2, 4]]

    Args:
        params: settings of the run, or a settings file, of which the run of ``algorithm``, ``initialiser`` and ``seed`` is
            executed.
        runs: folder of run directories. name: of this one; by default the run key.
        mlruns: MLflow's folder, absolute or relative to the current one, or a server's address (``http://...``); None for no
            mirror. What goes there besides records is said in ``tracking``.
        log: gets remarks, one line each; ``print`` shows them.

    Returns:
        The records, with one row in ``records.runs``; its ``state`` is ``complete`` or ``diverged``.

    Raises:
        SettingsError: bad input; nothing was trained. KeyboardInterrupt: interrupted, with its state saved.
    """
    from fedtide.records.frames import load as load_records
    from fedtide.runs.compare import refuse_several_processes
    from fedtide.runs.execution import execute
    from fedtide.runs.progress import Watch

    settings = params.run() if isinstance(params, Params) else params
    refuse_several_processes(settings)
    folder, tracking = Path(runs), params.experiment.tracking if isinstance(params, Params) else TrackingSettings()
    summary = execute(settings, _workspace(folder, mlruns, tracking), name=name, watch=Watch(log))
    if summary["state"] == "interrupted":
        raise KeyboardInterrupt(_INTERRUPTED)
    return load_records([folder / (name or summary["run_key"])])


def compare(
    params: Params | Sequence[RunSettings],
    runs: str | Path = "runs",
    *,
    workers: int | None = None,
    cluster: str | None = None,
    mlruns: str | Path | None = None,
    allow_failures: bool = False,
    log: Log = lambda line: None,
) -> Records:
    """Execute a grid of runs, several at once, and return the records of all of them.

    >>> import fedtide
    >>> params = fedtide.Params(
    ...     {
    ...         "model": "logistic",
    ...         "scenario": {"name": "static", "num_clients": 4, "rounds": 2},
    ...         "compare": {"algorithms": ["fedavg", "fedprox"], "seeds": [0, 1]},
    ...     }
    ... )
    >>> records = fedtide.compare(params, workers=1)
    >>> records.runs.groupby("label").seed.count().to_dict()
    {'fedavg': 2, 'fedprox': 2}

    Args:
        params: a settings file with the grid in ``compare``, or the settings of the runs.
        runs: folder of run directories; finished runs are reused, half-done ones continue.
        workers: runs at once, 0 for one per core; by default ``compare.workers``.
        cluster: the workers that execute the runs, as in ``compare.cluster``, which is the default.
        mlruns: as in :func:`run`. log: gets one line per finished run.
        allow_failures: return the records although runs failed; those of a failed run are as far as it came.

    Raises:
        SettingsError: bad input. RuntimeError: runs have raised or died, after all others have ended.
        KeyboardInterrupt: interrupted; what was begun is saved.
    """
    from fedtide.records.frames import load as load_records
    from fedtide.runs.compare import compare as compare_all
    from fedtide.runs.compare import unsuccessful
    from fedtide.runs.progress import Watch

    grid, experiment = (params.grid(), params.experiment) if isinstance(params, Params) else (list(params), None)
    hosts = experiment.hosts if experiment else HERE
    if cluster is not None:
        hosts = dataclasses.replace(hosts, name=cluster)
    if workers is None:
        workers = experiment.compare.workers if experiment else 0
    folder = Path(runs)
    workspace = _workspace(folder, mlruns, experiment.tracking if experiment else TrackingSettings())
    summaries, stopped = compare_all(grid, workspace, workers, Watch(log), hosts=hosts)
    if stopped is not None:
        raise KeyboardInterrupt(_INTERRUPTED)
    failed = unsuccessful(summary for summary in summaries if summary["state"] == "failed")
    if failed and not allow_failures:
        raise RuntimeError(f"{len(failed)} of {len(summaries)} runs failed: {'; '.join(failed)}")
    return load_records([folder / summary["run_key"] for summary in summaries])


def write_report(params: Params, runs: str | Path = "runs", out: str | Path = "report") -> Path:
    """Write tables, figures and an HTML page about the runs of ``compare``; the page's path.

    >>> import fedtide
    >>> params = fedtide.Params({"model": "logistic", "scenario": {"name": "static", "num_clients": 4, "rounds": 2}})
    >>> records = fedtide.compare(params, workers=1)
    >>> print(fedtide.write_report(params))
    report/report.html

    Args:
        params: a settings file with the grid in ``compare`` and the settings of the page in ``report``.
        runs: folder of run directories. out: of the report; created if missing.

    Raises:
        SettingsError: bad input, or there is no run of the grid yet.
    """
    from fedtide.runs.stages import report

    return report(params, Path(runs), None, Path(out), "fedtide.compare(params); fedtide.write_report(params)").page


def load(path: str | Path = "runs") -> Records:
    """The records of all runs of a folder, or of one run directory, as pandas frames.

    >>> import fedtide
    >>> _ = fedtide.run(fedtide.Params({"scenario": {"name": "static", "num_clients": 4, "rounds": 2}}), "elsewhere")
    >>> fedtide.load("elsewhere").runs[["label", "seed", "state"]].to_numpy().tolist()
    [['fedavg', 0, 'complete']]

    Raises:
        SettingsError: there are none, or a file is not what a run writes.
    """
    from fedtide.records.frames import load as load_records

    folder = Path(path)
    if (folder / "settings.json").is_file():
        return load_records([folder])
    found = sorted(file.parent for file in folder.glob("*/settings.json"))
    if not found:
        raise SettingsError(f"{folder}: no run directories here")
    return load_records(found)


def _workspace(runs: Path, mlruns: str | Path | None, tracking: TrackingSettings) -> Workspace:
    from fedtide.mirror.server import Server
    from fedtide.mirror.workspace import Workspace
    from fedtide.runs.stages import mlflow_options

    runs.mkdir(parents=True, exist_ok=True)
    where: Path | Server | None = Path(mlruns).resolve() if mlruns else None
    if isinstance(mlruns, str) and mlruns.startswith(("http://", "https://")):
        where = Server.at(mlruns)
    return Workspace(runs, None, where, tracking.experiment, "", mlflow_options(tracking), tracking.loggers)
