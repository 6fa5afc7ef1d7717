"""Comparisons, reports and records for scripts and notebooks; :mod:`fedtide` exports them and :func:`fedtide.run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtide.core.errors import SettingsError, nearest, shortened
from fedtide.core.extras import require
from fedtide.records.run_directory import read_json
from fedtide.settings.experiment import CompareSettings, TrackingSettings
from fedtide.settings.params import Params, parse, refuse_other
from fedtide.settings.run import RunSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedtide.records.frames import Records
    from fedtide.report.charts.pictures import Drawing

Log = Callable[[str], None]


def compare(
    params: Params | Sequence[RunSettings] | None = None,
    runs: str | Path = "runs",
    *,
    workers: int | None = None,
    cluster: str | None = None,
    mlruns: str | Path | None = None,
    allow_failures: bool = False,
    log: Log | None = None,
) -> Records:
    """Execute a grid of runs, several at once, and return the records of all of them.

    >>> import fedtide
    >>> params = fedtide.Params(
    ...     {
    ...         "model": "softmax_regression",
    ...         "scenario": {"name": "static", "num_clients": 4, "rounds": 2},
    ...         "compare": {"algorithms": ["fedavg", "fedprox"], "seeds": [0, 1]},
    ...     }
    ... )
    >>> records = fedtide.compare(params, workers=1)
    >>> records.runs.groupby("label").seed.count().to_dict()
    {'fedavg': 2, 'fedprox': 2}

    Args:
        params: a settings file with the grid in ``compare``, or the settings of the runs; by default the default experiment.
        runs: folder of run directories; finished runs are reused, interrupted ones continue.
        workers: runs at once, 0 for one per core; by default ``compare.workers``.
        cluster: what executes the runs, see ``compare.cluster``, which is the default.
        mlruns: as in :func:`run`. log: gets one line per finished run; by default a terminal or a notebook shows progress.
        allow_failures: return the records although runs failed; those of a failed run end where it failed.

    Raises:
        SettingsError: bad input. RuntimeError: runs have failed; raised after all others have ended.
        KeyboardInterrupt: interrupted; the states of runs in progress are saved.
    """
    from fedtide.records.frames import load as read
    from fedtide.runs.compare import compare as compare_all
    from fedtide.runs.compare import unsuccessful
    from fedtide.runs.execution import INTERRUPTED, script_workspace, shown

    params = Params() if params is None else params
    for each in [params] if isinstance(params, Params | Mapping | str | Path) else params:
        refuse_other(each, Params, RunSettings)
    grid, experiment = (params.grid(), params.experiment) if isinstance(params, Params) else (list(params), None)
    where = experiment.compare if experiment else CompareSettings()
    given = {name: value for name, value in (("workers", workers), ("cluster", cluster)) if value is not None}
    where = parse(CompareSettings, {**where.model_dump(mode="json"), **given}, "fedtide.compare")
    folder = Path(runs)
    workspace = script_workspace(folder, mlruns, experiment.tracking if experiment else TrackingSettings())
    with shown(log) as watch:
        if isinstance(params, Params):
            for remark in params.remarks:
                watch.log(remark)
        summaries, stopped = compare_all(grid, workspace, where, watch)
    if stopped is not None:
        raise KeyboardInterrupt(INTERRUPTED)
    failed = unsuccessful(summary for summary in summaries if summary["state"] == "failed")
    if failed and not allow_failures:
        raise RuntimeError(f"{len(failed)} of {len(summaries)} runs failed: {'; '.join(failed)}")
    return read([folder / summary["run_key"] for summary in summaries])


def write_report(params: Params | None = None, runs: str | Path = "runs", out: str | Path = "report") -> Path:
    """Write tables, figures and an HTML page about the runs of ``compare``; the page's path.

    >>> import fedtide
    >>> params = fedtide.Params({"model": "softmax_regression", "scenario": {"name": "static", "num_clients": 4, "rounds": 2}})
    >>> records = fedtide.compare(params, workers=1)
    >>> print(fedtide.write_report(params))
    report/report.html

    Args:
        params: a settings file with the grid in ``compare`` and the settings of the page in ``report``; by default the
            default experiment.
        runs: folder of run directories. out: of the report; created if missing.

    Raises:
        SettingsError: bad input, or there is no run of the grid yet.
    """
    require("report", "fedtide.write_report")
    params = Params() if params is None else params
    refuse_other(params, Params)
    from fedtide.report.comparison import report

    return report(params, Path(runs), None, Path(out), "fedtide.compare(params); fedtide.write_report(params)").page


def figure(name: str, params: Params, runs: str | Path = "runs") -> Figure:
    """One figure of the report about the runs of ``compare``, for Matplotlib; ``fedtide plot`` lists the names.

    >>> import fedtide
    >>> params = fedtide.Params({"model": "softmax_regression", "scenario": {"name": "static", "num_clients": 4, "rounds": 2}})
    >>> records = fedtide.compare(params, workers=1)
    >>> fedtide.figure("accuracy_over_rounds", params).savefig("figure.pdf")

    Args:
        name: of the figure, such as ``accuracy_over_rounds``: that of its file in the report.
        params: as of :func:`write_report`. runs: folder of run directories.

    Raises:
        SettingsError: bad input, there is no run of the grid yet, or the runs have no data for such a figure.
    """
    require("report", "fedtide.figure")
    refuse_other(params, Params)
    from fedtide.report.comparison import figures

    return named_figure(name, figures(params, Path(runs), None)).figure()


def named_figure(name: str, drawings: Sequence[Drawing]) -> Drawing:
    """The figure of a name; a SettingsError if there is none."""
    found = {drawing.name: drawing for drawing in drawings}
    if name not in found:
        raise SettingsError(nearest(f"these runs have no figure {shortened(name)!r}", name, found))
    return found[name]


def load(path: str | Path = "runs") -> Records:
    """The records of all runs of a folder, or of one run directory, as pandas frames.

    >>> import fedtide
    >>> _ = fedtide.run(fedtide.Params({"scenario": {"name": "static", "num_clients": 4, "rounds": 2}}), "elsewhere")
    >>> fedtide.load("elsewhere").runs[["label", "seed", "state"]].to_numpy().tolist()
    [['fedavg', 0, 'complete']]

    A run that is there twice, such as once more under a name, is read once: where it has ended, if only one has.

    Raises:
        SettingsError: there are none, or a file is not what a run writes.
    """
    from fedtide.records.frames import load as read

    folder = Path(path)
    if (folder / "settings.json").is_file():
        return read([folder])
    found = sorted(file.parent for file in folder.glob("*/settings.json"))
    if not found:
        raise SettingsError(f"{folder}: no run directories here")
    found.sort(key=lambda run: (run / "summary.json").is_file())
    keys = [(read_json(run / "manifest.json") or {}).get("run_key", run.name) for run in found]
    return read(sorted(dict(zip(keys, found, strict=True)).values()))
