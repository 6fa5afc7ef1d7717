"""One run, for scripts (:func:`run`) and for commands (:func:`execute`): opened, trained and concluded.

Lightning takes seconds to import, so it is imported only where a run is trained.
"""

from __future__ import annotations

import gc
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.core.plugins import naming_plugins
from fedtide.core.storage.files import write_text
from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import Summary
from fedtide.runs.display.progress import UNWATCHED, Watch, throttled, title
from fedtide.runs.jobs.launch import Decision
from fedtide.runs.jobs.ranks import launched
from fedtide.runs.mlflow.server import Server, place_of
from fedtide.runs.open_run import OpenRun, open_run
from fedtide.runs.workspace import Workspace, experiment_of
from fedtide.settings.experiment import TrackingSettings
from fedtide.settings.params import Params, refuse_other
from fedtide.settings.run import RunSettings

if TYPE_CHECKING:
    from fedtide.records.frames import Records
    from fedtide.runs.mlflow.callback import MlflowRounds

_SECONDS = 0.25  # between updates of a line in a notebook
INTERRUPTED = "interrupted; the same call continues from what is saved"


def run(
    params: Params | RunSettings | None = None,
    runs: str | Path = "runs",
    *,
    name: str | None = None,
    mlruns: str | Path | None = None,
    log: Callable[[str], None] | None = None,
) -> Records:
    """Execute a run and return its records; a finished run is returned at once, an interrupted one continues.

    >>> import fedtide
    >>> params = fedtide.Params({"model": "softmax_regression", "scenario": {"name": "static", "num_clients": 4, "rounds": 2}})
    >>> records = fedtide.run(params)
    >>> records.history[["label", "round", "present"]].to_numpy().tolist()
    [['fedavg', 1, 4], ['fedavg', 2, 4]]

    Args:
        params: settings of the run, or a settings file, of which the run of ``algorithm``, ``initializer`` and ``seed`` is
            executed; by default the default experiment.
        runs: folder of run directories. name: of this one; by default the run key.
        mlruns: MLflow's folder, absolute or relative to the current one, or a URI (``http://...``,
            ``sqlite:///mlflow.db``); None for no mirror. ``tracking`` sets what goes there besides records.
        log: gets remarks, one line each, such as ``print``; by default a terminal or a notebook shows progress.

    Returns:
        The records, with one row in ``records.runs``; its ``state`` is ``complete`` or ``diverged``.

    Raises:
        SettingsError: bad input; nothing was trained. KeyboardInterrupt: interrupted, with its state saved.
    """
    params = Params() if params is None else params
    refuse_other(params, Params, RunSettings)
    settings = params.run() if isinstance(params, Params) else params
    refuse_several_processes(settings)
    tracking = params.experiment.tracking if isinstance(params, Params) else TrackingSettings()
    workspace = script_workspace(Path(runs), mlruns, tracking)
    with shown(log) as watch:
        if isinstance(params, Params):
            for remark in params.remarks:
                watch.log(remark)
        summary = execute(settings, workspace, name=name, watch=watch)
    if summary["state"] == "interrupted":
        raise KeyboardInterrupt(INTERRUPTED)
    from fedtide.records.frames import load  # pandas, which training does without, takes long to import

    return load([workspace.runs / (name or summary["run_key"])])


def refuse_several_processes(settings: RunSettings) -> None:
    """Refuse a run of several processes, each of which executes the whole command again; only `fedtide run` supports them."""
    if settings.engine.devices > 1:
        raise SettingsError(
            f"engine.devices = {settings.engine.devices}: only the command `fedtide run` supports several processes for one "
            "run; comparisons and searches execute whole runs in parallel, see compare.workers and tune.workers"
        )


def script_workspace(runs: Path, mlruns: str | Path | None, tracking: TrackingSettings) -> Workspace:
    """The workspace of a script: a folder of runs, and MLflow's folder or the address of its server."""
    where: Path | Server | None = None
    if mlruns:
        require("mlflow", f"mlruns = {str(mlruns)!r}")
        where = place_of(mlruns)
    return Workspace(
        runs,
        mlruns=where,
        experiment=experiment_of(tracking),
        model=tracking.model,
        register=tracking.register,
        loggers=tracking.loggers,
    )


@contextmanager
def shown(log: Callable[[str], None] | None) -> Iterator[Watch]:
    """What follows runs: ``log``, or by default bars in a terminal, lines in a notebook and nothing elsewhere."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if log is not None:
        yield Watch(log)
    elif _in_notebook():
        yield Watch(print, update=_cell())
    elif console.is_interactive:
        from fedtide.runs.display.bars import Bars

        with Bars(console) as bars:
            yield Watch(partial(console.print, markup=False, soft_wrap=True), bars)
    else:
        yield UNWATCHED


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def _cell() -> Callable[[str], None]:
    """Writes a line into the cell's output, over the one before it."""
    ipython: Any = importlib.import_module("IPython.display")
    handle = ipython.display({"text/plain": ""}, raw=True, display_id=True)
    return throttled(lambda line: handle.update({"text/plain": line}, raw=True), _SECONDS)


def execute(
    settings: RunSettings,
    workspace: Workspace,
    *,
    name: str | None = None,
    watch: Watch = UNWATCHED,
    expected: str | None = None,
) -> Summary:
    """Execute a run; one that has ended is returned from its records, an interrupted one continues.

    Neither Lightning nor MLflow is imported for a run that has ended.

    Args:
        name: of the run directory; by default the run key.
        expected: run key found by the command that hands out this run; another process that works on the run is then waited
            for instead of refused.

    Returns:
        The summary; its state is ``complete``, ``diverged``, ``pruned``, ``interrupted`` or, in a further process of the run,
        ``follower``.

    Raises:
        SettingsError: bad input, or the key is another one here, since code or data differ; nothing was trained.
        PluginCrash: a user's plug-in raised an exception.
    """
    # Plug-ins are named here, since an exception loses its traceback between processes.
    with naming_plugins(), _decision(settings, watch.log) as decision:
        opened = open_run(settings, workspace, name=name, watch=watch, expected=expected)
        if decision is not None and decision.rank > 0:
            if decision.wait():
                from fedtide.runs.train import follow

                follow(opened)
            return {"state": "follower"}
        if (done := opened.ended()) is not None:
            return done
        watch.display.begin(title(settings), [opened.directory.path])
        try:
            return _execute(opened, decision, wait=expected is not None)
        finally:
            watch.display.end(title(settings))
            gc.collect()  # trainer, module and data form a cycle that would keep the data of past runs in memory


def _decision(settings: RunSettings, log: Callable[[str], None]) -> Decision | nullcontext[None]:
    """What the processes of a run share, if it may have several."""
    if settings.engine.devices * settings.engine.nodes == 1 and launched() == 1:
        return nullcontext()
    return Decision(settings, log)


def _execute(opened: OpenRun, decision: Decision | None, wait: bool) -> Summary:
    """Train an opened run and conclude it, with its directory locked."""
    from fedtide.runs.conclude import alarms, conclude, interrupted, one_class
    from fedtide.runs.lightning.callbacks import GracefulStop
    from fedtide.runs.train import own_callbacks, refuse_what_is_missing, train

    refuse_what_is_missing(opened)
    own = own_callbacks(opened)
    with opened.directory.locked(opened.recorded, opened.manifest, wait):
        if (done := opened.ended()) is not None:  # by the process that this one has waited for
            return done
        # A failure is written down before the records are uploaded, and both while no other process can work on the run.
        with GracefulStop() as stop, _mirrored(opened) as mirror, _failure_kept(opened.directory):
            trained = train(opened, own, mirror, stop, decision)
            if isinstance(trained, int):
                return interrupted(opened, trained, int(stop.received or 0))
            summary = conclude(opened, trained)
    if summary["state"] == "complete":
        for remark in (*alarms(opened), *one_class(opened)):
            opened.watch.log(remark)
    return summary


@contextmanager
def _mirrored(opened: OpenRun) -> Iterator[MlflowRounds | None]:
    """The callback that sends rounds to MLflow, if the run has a place there; at the end its records are uploaded."""
    if opened.workspace.mlruns is None:
        yield None
        return
    from fedtide.runs.mlflow.callback import MlflowRounds

    mirror = MlflowRounds(opened.workspace, opened.directory, opened.data, opened.watch.log)
    try:
        yield mirror
    finally:
        mirror.end()


@contextmanager
def _failure_kept(directory: RunDirectory) -> Iterator[None]:
    """The traceback of an exception goes to ``error.txt``, which is removed when the run continues."""
    directory.error.unlink(missing_ok=True)
    try:
        yield
    except SettingsError:
        raise
    except (Exception, SystemExit):
        with suppress(OSError):  # of a full disk, which may be the failure
            write_text(directory.error, traceback.format_exc())
        raise
