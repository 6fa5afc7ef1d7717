"""One run, for scripts (:func:`run`) and for commands (:func:`execute`): what its records lack is executed.

Lightning takes seconds to import, so it is imported by the functions that train.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.core.plugins import naming_plugins
from fedtide.core.storage.files import replacing, write_json
from fedtide.federation.saving import checkpoint
from fedtide.methods.detectors.base import Detector
from fedtide.records.files.guarantees import write_guarantees
from fedtide.records.files.marks import wrong_size
from fedtide.records.files.states import remove_states
from fedtide.records.measures.periods import alarms_in
from fedtide.records.run_directory import ENCODING, MODEL, PILOTS, RunDirectory
from fedtide.records.summary import State, Summary
from fedtide.records.unread import records_of
from fedtide.runs.display.progress import UNWATCHED, Watch, title
from fedtide.runs.display.shown import shown
from fedtide.runs.failures import failure_kept
from fedtide.runs.finished_states import free_unless_kept
from fedtide.runs.identity import run_key
from fedtide.runs.jobs.launch import Decision, global_rank, refuse_several_processes
from fedtide.runs.summaries import scores, totals
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import TrackingSettings
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings, plain_name
from fedtide.training.models.base import Model
from fedtide.world.building.files import timeline_for, world_identity
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data
from fedtide.world.timeline import Timeline

if TYPE_CHECKING:
    from fedtide.federation.assembly.footprint import Footprint
    from fedtide.federation.module import FederatedModule
    from fedtide.federation.types import Parts
    from fedtide.records.frames import Records
    from fedtide.runs.lightning.own_callbacks import OwnCallbacks
    from fedtide.runs.mlflow.callback import MlflowRounds

INTERRUPTED = "interrupted; the same call continues from what is saved"
_NO_STATE = (
    "{}: the run has ended, but {}, and no saved state is left to restore it from; put it back, or delete the run's folder to "
    "start the run again"
)


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
        mlruns: MLflow's folder, absolute or relative to the current one, or a server's address (``http://...``); None for no
            mirror. ``tracking`` sets what goes there besides records.
        log: gets remarks, one line each, such as ``print``; by default a terminal or a notebook shows progress.

    Returns:
        The records, with one row in ``records.runs``; its ``state`` is ``complete`` or ``diverged``. Without pandas they are
        in the run directory alone.

    Raises:
        SettingsError: bad input; nothing was trained. KeyboardInterrupt: interrupted, with its state saved.
    """
    params = Params() if params is None else params
    settings = params.run() if isinstance(params, Params) else params
    refuse_several_processes(settings)
    tracking = params.experiment.tracking if isinstance(params, Params) else TrackingSettings()
    workspace = Workspace.of_script(Path(runs), mlruns, tracking)
    with shown(log) as watch:
        for remark in params.remarks if isinstance(params, Params) else ():
            watch.log(remark)
        summary = execute(settings, workspace, name=name, watch=watch)
    if summary["state"] == "interrupted":
        raise KeyboardInterrupt(INTERRUPTED)
    return records_of([workspace.runs / (name or summary["run_key"])])


@dataclass(frozen=True)
class _Job:
    """A run to execute: its settings, dataset and run key, where its records go and what follows it."""

    settings: RunSettings
    data: Dataset
    key: str
    directory: RunDirectory
    workspace: Workspace
    watch: Watch


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
        name: of the run directory; by default the run key. Runs named by their key share equal pilot sessions; a run with a
            name of its own trains its own pilot.
        expected: run key found by the command that hands out this run; another process that works on the run is then waited
            for instead of refused.

    Returns:
        The summary; its state is ``complete``, ``diverged``, ``pruned``, ``interrupted`` or, in a further process of the run,
        ``follower``.

    Raises:
        SettingsError: bad input, or the key is another one here, since code or data differ; nothing was trained.
        PluginCrash: a user's plug-in raised an exception.
    """
    with ExitStack() as open_:
        open_.enter_context(naming_plugins())  # here: an exception loses its traceback on the way out of a process
        decision = open_.enter_context(Decision(settings))
        data = load_data(settings)
        key = run_key(settings, data)
        if expected not in (None, key):
            raise SettingsError(
                f"{socket.gethostname()}: code or data differ from those of the command: {expected} would be {key} there; "
                "install the same version, with the same plug-ins and packages"
            )
        directory = RunDirectory(workspace.runs / (key if name is None else plain_name(name)))
        job = _Job(settings, data, key, directory, workspace, watch)
        if global_rank() > 0:
            return _follow(job) if decision.wait() else {"state": "follower"}
        if (done := _ended(job)) is not None:
            free_unless_kept(directory, settings, watch.log)
            return done
        watch.display.begin(title(settings), [directory.path])
        try:
            return _train(job, decision, wait=expected is not None)
        finally:
            watch.display.end(title(settings))
            gc.collect()  # trainer, module and data form a cycle that would keep the data of past runs in memory


def _ended(job: _Job) -> Summary | None:
    if (done := job.directory.finished(job.key)) is not None:
        job.watch.log(f"{job.directory.path.name}: already {done['state']}, nothing to do")
    elif job.directory.has_lost_summary:
        raise SettingsError(_NO_STATE.format(job.directory.path, "summary.json is missing"))
    return done


def _world_and_callbacks(job: _Job) -> tuple[Timeline, OwnCallbacks]:
    """The run's timeline and the user's callbacks, once it is known that the run can be executed on this machine."""
    from fedtide.runs.lightning.loggers import refuse_bad_loggers
    from fedtide.runs.lightning.own_callbacks import OwnCallbacks
    from fedtide.runs.lightning.trainer import refuse_missing_device

    refuse_missing_device(job.settings)
    if job.settings.evaluation.clients_every:
        require("data", "evaluation.clients_every")
    refuse_bad_loggers(job.workspace.loggers)
    plugins.create(Detector, job.settings.detector).require()
    own = OwnCallbacks(job.settings.engine.callbacks)
    return timeline_for(job.settings, job.data, job.workspace.worlds), own


def _train(job: _Job, decision: Decision, wait: bool) -> Summary:
    """Train the rounds that the records lack, and conclude the run."""
    from fedtide.federation.module import FederatedModule
    from fedtide.runs.lightning.callbacks import GracefulStop, Progress, Recorder
    from fedtide.runs.lightning.loggers import RoundLog
    from fedtide.runs.lightning.trainer import quiet_lightning, trainer
    from fedtide.runs.pilots import SharedPilot, pilot_key, pilot_rounds

    timeline, own = _world_and_callbacks(job)
    settings, directory, watch, manifest = job.settings, job.directory, job.watch, _manifest(job, timeline)
    with directory.locked(_recorded(settings), manifest, wait), ExitStack() as open_:
        if (done := _ended(job)) is not None:
            _drop_states(job, done)
            return done
        stop = open_.enter_context(GracefulStop())
        mirrored = _mirrored(job)
        for each in mirrored:
            open_.callback(each.end)  # under the lock: no other process uploads the run meanwhile
        open_.enter_context(failure_kept(directory))
        saved = _resume(job)
        timeline.save(directory.path / "timeline.npz", world_identity(settings, job.data))
        if job.data.encoding is not None:
            write_json(directory.path / ENCODING, job.data.encoding.model_dump(mode="json"), durable=True)
        alone = directory.path.name != job.key or bool(own)  # own callbacks see every round
        shared = job.workspace.runs / PILOTS / pilot_key(settings, job.data)
        pilot = SharedPilot(shared, 0 if alone else pilot_rounds(timeline), directory, job.key, watch.log)
        saved = pilot.adopt(saved)
        values, rounds = own.continued(saved)
        if stop.received is not None:  # before a round of this process
            directory.event("interrupted", round=rounds)
            return manifest | {"state": "interrupted", "rounds": rounds, "signal": int(stop.received)}
        module = FederatedModule(settings, timeline, job.data, values, partial(_announce, job, own), directory.path)
        recorder = Recorder(directory, job.key, settings.checkpoint.every, own.states)
        logged = RoundLog(job.workspace.loggers, directory, watch.log)
        line = [Progress(watch.update)] if watch.update else []
        called = [stop, *([own] if own else []), recorder, logged, *mirrored, *line, *watch.callbacks, pilot]
        with quiet_lightning(), stop.sigterm_noted():
            if rounds < timeline.rounds:
                decision.announce(True)
                trainer(settings, timeline.rounds, called, rounds, logged.loggers).fit(module)
            else:
                module.build()
        pruned = any(getattr(callback, "pruned", False) for callback in called)
        summary = _conclude(directory, manifest, module, pruned, stop.received)
        _drop_states(job, summary)
    for remark in _alarms(job, timeline) if summary["state"] == "complete" else ():
        watch.log(remark)
    return summary


def _mirrored(job: _Job) -> list[MlflowRounds]:
    """The callback that mirrors the run, if it has a place in MLflow."""
    if job.workspace.mlruns is None:
        return []
    from fedtide.runs.mlflow.callback import MlflowRounds

    return [MlflowRounds(job.workspace, job.directory, job.data, job.watch.log)]


def _drop_states(job: _Job, summary: Summary) -> None:
    """Under the run's lock."""
    if summary["state"] == "complete" and not job.settings.checkpoint.keep_finished:
        remove_states(job.directory.state)


def _alarms(job: _Job, timeline: Timeline) -> Iterator[str]:
    """A line for each period whose score fell, see :func:`fedtide.records.measures.periods.alarms`."""
    names = [str(name) for name in timeline.notes.get("periods", ())]
    for each in alarms_in(job.directory.history()):
        name = names[each.period] if each.period < len(names) else str(each.period + 1)
        yield (
            f"{title(job.settings)}: accuracy on {name}, before it is trained on, fell to {each.value:.1%}, "
            f"{each.errors:.1f} standard errors below the mean of the periods before ({each.before:.1%})"
        )


def _follow(job: _Job) -> Summary:
    """Train this further process's share of a run; nothing is written."""
    from fedtide.federation.module import FederatedModule
    from fedtide.runs.lightning.callbacks import GracefulStop
    from fedtide.runs.lightning.trainer import quiet_lightning, trainer

    timeline, own = _world_and_callbacks(job)
    values, rounds = own.continued(checkpoint.load(job.directory.state, job.key)[0])
    module = FederatedModule(job.settings, timeline, job.data, values, scratch=job.directory.path)
    with GracefulStop() as stop, quiet_lightning(), stop.sigterm_noted():
        trainer(job.settings, timeline.rounds, [stop, *([own] if own else [])], rounds).fit(module)
    return {"state": "follower"}


def _announce(job: _Job, own: OwnCallbacks, parts: Parts, wanted: Footprint, process: str) -> None:
    """Record versions and guarantees, and log what is known of the run before its first round."""
    from fedtide.federation.assembly.preview import advice, memory_plan

    made = plugins.create(Model, job.settings.model), plugins.create(Detector, job.settings.detector)
    libraries = made[0].libraries() | made[1].libraries() | own.libraries()
    for link in parts.links:
        libraries |= link.libraries()
        if found := link.guarantees():
            write_guarantees(job.directory.path, found)
    if libraries:
        job.directory.event("libraries", versions=libraries)
    for line in (*advice(parts), memory_plan(parts, wanted), process):
        job.watch.log(line)


def _manifest(job: _Job, timeline: Timeline) -> Summary:
    settings = job.settings
    manifest: Summary = {
        "run_key": job.key,
        "label": settings.label,
        "algorithm": settings.algorithm.name,
        "initializer": settings.initializer_label,
        "scenario": settings.scenario.name,
        "dataset": settings.data.name,
        "seed": settings.seed,
        "data": job.data.digest,
        "timeline": timeline.digest,
        "rounds": timeline.rounds,
    }
    return manifest if settings.task == "classification" else manifest | {"task": settings.task}


def _recorded(settings: RunSettings) -> dict[str, Any]:
    """Settings as recorded: those that determine the run, and its labels."""
    return {**settings.canonical(), "label": settings.label, "initializer_label": settings.initializer_label}


def _resume(job: _Job) -> checkpoint.Saved | None:
    """The newest saved state that the records hold; later records are dropped."""
    directory, log = job.directory, job.watch.log
    saved, skipped = checkpoint.load(directory.state, job.key, directory.lost)
    lacking = wrong_size(directory.path, directory.marks())
    if lacking and saved is None:
        raise SettingsError(_NO_STATE.format(directory.path, ", ".join(lacking)))
    for path, problem in skipped.items():
        log(f"{problem}; continuing from an older state")
        path.unlink()
    for problem in lacking:
        log(f"{directory.path.name}: {problem}; restoring it from the saved state")
    checkpoint.sweep(directory.state)
    directory.rewind(saved.records if saved else {})
    if saved:
        log(f"{directory.path.name}: continuing from round {saved.round}")
        directory.event("resumed", round=saved.round)
    return saved


def _conclude(
    directory: RunDirectory, manifest: Summary, module: FederatedModule, pruned: bool, stopped: int | None
) -> Summary:
    """The summary of a run that is trained no further, written to its records unless a later process continues it."""
    rounds, state = module.state.round, _state(module, pruned)
    summary = (
        manifest | scores(directory, module.settings.task, state) | {"state": state, "rounds": rounds} | totals(module)
    )
    if module.diverged:
        summary["message"] = module.diverged
    if state == "complete":
        # Given a path, torch hides disk errors.
        with replacing(directory.path / MODEL, durable=True) as part, part.open("wb") as stream:
            torch.save(module.parts.named(module.state.w, module.state.b), stream)
    if state == "interrupted" and stopped is not None:
        summary["signal"] = int(stopped)
    directory.event(state, round=rounds)
    if state != "interrupted":
        directory.finish(summary)
    return summary


def _state(module: FederatedModule, pruned: bool) -> State:
    if module.diverged:
        return "diverged"
    if module.state.round == module.timeline.rounds:
        return "complete"
    return "pruned" if pruned else "interrupted"
