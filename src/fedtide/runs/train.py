"""The second part of a run: resume or begin, assemble the federation, fit it; see :func:`train`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtide.core import lightning as L
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.core.storage.files import write_json
from fedtide.federation.assembly.footprint import advice, memory_plan
from fedtide.federation.module import FederatedModule
from fedtide.federation.saving import checkpoint
from fedtide.methods.detectors.base import Detector
from fedtide.records.files.guarantees import write_guarantees
from fedtide.records.files.marks import problems
from fedtide.records.run_directory import ENCODING, ENVIRONMENT, LEFT_OUT, hashed
from fedtide.runs.catalog import why_repeated
from fedtide.runs.lightning.callbacks import GracefulStop, Progress, Recorder, StopRules
from fedtide.runs.lightning.trainer import device_of, quiet_lightning, trainer
from fedtide.runs.open_run import NO_STATE, OpenRun, environment
from fedtide.settings.run import StopSettings
from fedtide.training.models.base import Model
from fedtide.world.building.build import untested
from fedtide.world.timeline import Timeline

if TYPE_CHECKING:
    from fedtide.runs.jobs.launch import Decision
    from fedtide.runs.lightning.own_callbacks import OwnCallbacks


@dataclass(frozen=True)
class Trained:
    """What is left of a fit: the module with the last state; whether it was pruned, the signal and the rule that ended it."""

    module: FederatedModule
    pruned: bool
    signal: int | None
    stopped: str | None = None


def refuse_what_is_missing(run: OpenRun) -> None:
    """Refuse settings for a device, a package or a logger that this machine lacks, before anything is written."""
    device_of(run.settings)
    if run.settings.evaluation.clients_every:
        require("data", "evaluation.clients_every")
    if run.workspace.loggers:
        from fedtide.runs.lightning.loggers import refuse_bad_loggers

        refuse_bad_loggers(run.workspace.loggers)
    if run.settings.detector.name != "none":
        plugins.create(Detector, run.settings.detector).require()


def own_callbacks(run: OpenRun) -> OwnCallbacks | None:
    """The user's callbacks, if settings name any; raises a SettingsError as they do."""
    if not run.settings.engine.callbacks:
        return None
    from fedtide.runs.lightning.own_callbacks import OwnCallbacks

    return OwnCallbacks(run.settings.engine.callbacks)


def train(
    run: OpenRun, own: OwnCallbacks | None, mirror: L.Callback | None, stop: GracefulStop, decision: Decision | None
) -> Trained | int:
    """Train the rounds that the records lack; the run directory is locked by the caller.

    Args:
        own: the user's callbacks. mirror: sends rounds to MLflow. stop: notes signals. decision: tells further processes.

    Returns:
        What is left of the fit, or the number of rounds done where a signal arrived before one of this process.
    """
    directory, timeline = run.directory, run.timeline
    saved = None if directory.is_new else _resume(run)
    timeline.save(directory.path / "timeline.npz", run.world)
    if run.data.encoding is not None:
        write_json(directory.path / ENCODING, run.data.encoding.model_dump(mode="json"), durable=True)
    made_with = environment(run.settings, str(device_of(run.settings)))
    write_json(directory.path / ENVIRONMENT, hashed(made_with), durable=True)
    values, rounds = continued(own, saved)
    if stop.received is not None:
        return rounds
    rules = _stop_rules(run, directory.history())
    module = FederatedModule(run.settings, timeline, run.data, values, directory.path)
    recorder = Recorder(directory, run.key, run.settings.checkpoint.every, own.states if own else dict)
    progress = Progress(run.watch.update, directory) if run.watch.update else None
    logged: RoundLog | None = None
    if run.workspace.loggers:
        from fedtide.runs.lightning.loggers import RoundLog

        logged = RoundLog(run.workspace.loggers, directory, run.watch.log)
    # The user's callbacks see a round before it is recorded; what reads the records comes after the recorder.
    all_ = (_Announcement(run, own), stop, own, rules, recorder, logged, mirror, progress, *run.watch.callbacks)
    callbacks = [callback for callback in all_ if callback is not None]
    with quiet_lightning(), stop.sigterm_noted():
        if rounds < timeline.rounds and not (rules and rules.stopped):
            if decision is not None:
                decision.announce(True)
            loggers = logged.loggers if logged else ()
            trainer(run.settings, timeline.rounds, callbacks, rounds, loggers).fit(module)
        else:  # all rounds are recorded, and the state has them: only the end of the run was lost
            module.build()
            announce(run, own, module)
    pruned = any(getattr(callback, "pruned", False) for callback in callbacks)
    return Trained(module, pruned, stop.received, rules.stopped if rules else None)


def follow(run: OpenRun) -> None:
    """Train this further process's share of a run; nothing is written."""
    refuse_what_is_missing(run)
    own = own_callbacks(run)
    values, rounds = continued(own, checkpoint.load(run.directory.state, run.key)[0])
    module = FederatedModule(run.settings, run.timeline, run.data, values, run.directory.path)
    with GracefulStop() as stop, quiet_lightning(), stop.sigterm_noted():
        callbacks: list[L.Callback] = [each for each in (stop, own, _stop_rules(run, ())) if each]
        trainer(run.settings, run.timeline.rounds, callbacks, rounds).fit(module)


def _stop_rules(run: OpenRun, rows: Sequence[Mapping[str, Any]]) -> StopRules | None:
    """The run's rules of ``stop``, if it has any, after the recorded ``rows``."""
    return None if run.settings.stop == StopSettings() else StopRules(run.settings, rows)


def continued(own: OwnCallbacks | None, saved: checkpoint.Saved | None) -> tuple[dict[str, Any] | None, int]:
    """Values of a checkpoint for the module, and the rounds that it has; the user's callbacks take theirs."""
    if own is not None:
        return own.continued(saved)
    return (saved.values, saved.round) if saved else (None, 0)


class _Announcement(L.Callback):
    """:func:`announce` when the federation is assembled, before the first round; and the first updates that are left out."""

    def __init__(self, run: OpenRun, own: OwnCallbacks | None) -> None:
        self._run, self._own, self._told = run, own, False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if isinstance(pl_module, FederatedModule) and trainer.is_global_zero:
            announce(self._run, self._own, pl_module)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        """Name those whose updates are left out when it happens first."""
        events = pl_module.record.events if trainer.is_global_zero and pl_module.record is not None else ()
        for event in [event for event in events if event["kind"] == LEFT_OUT][: not self._told]:
            self._told, names = True, ", ".join(map(str, event["clients"]))
            self._run.watch.log(
                f"round {event['round']}: updates that are not finite are left out, of clients {names}; events.jsonl has all"
            )


def announce(run: OpenRun, own: OwnCallbacks | None, module: FederatedModule) -> None:
    """Record versions and guarantees, and log what is known of the run before its first round."""
    parts = module.parts
    if run.directory.is_new and (line := why_repeated(run.directory.path, run.key.rpartition("-")[0])):
        run.watch.log(line)
    libraries = plugins.create(Model, run.settings.model).libraries()
    if run.settings.detector.name != "none":
        libraries |= plugins.create(Detector, run.settings.detector).libraries()
    libraries |= own.libraries() if own else {}
    for link in parts.links:
        libraries |= link.libraries()
        if found := link.guarantees():
            write_guarantees(run.directory.path, found)
    if libraries:
        run.directory.event("libraries", versions=libraries)
    for line in (*advice(parts), *_untested(run.timeline), memory_plan(parts, module.footprint), module.process):
        run.watch.log(line)


def _untested(timeline: Timeline) -> Iterator[str]:
    """A line that counts the periods, or the rounds, without a test sample."""
    names = [str(name) for name in timeline.notes.get("periods", ())]
    if len(rounds := untested(timeline)):
        numbers = np.unique(timeline.period_of_round[rounds])
        first = names[numbers[0]] if names else f"session {numbers[0] + 1}"
        kind = "periods" if names else "sessions"
        count = int(timeline.period_of_round[-1]) + 1
        yield f"{len(numbers):,} of {count:,} {kind} have no score in rounds without a test sample, first {first}"


def _resume(run: OpenRun) -> checkpoint.Saved | None:
    """The newest checkpoint that the records hold; later records are dropped."""
    directory, log = run.directory, run.watch.log
    saved, skipped = checkpoint.load(directory.state, run.key, directory.lost)
    lacking = problems(directory.path, directory.marks(), read=False)
    if lacking and saved is None:
        raise SettingsError(NO_STATE.format(directory.path, ", ".join(lacking)))
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
