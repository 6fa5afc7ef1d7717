"""The execution of a run, from settings to a complete run directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import Logger

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.files import replacing
from fedtide.federation.assembly.footprint import Footprint
from fedtide.federation.assembly.preview import advice, memory_plan
from fedtide.federation.module import FederatedModule
from fedtide.federation.parts import Parts
from fedtide.federation.saving import checkpoint
from fedtide.models.base import Model
from fedtide.records.marks import wrong_size
from fedtide.records.run_directory import RunDirectory
from fedtide.runs.callbacks import GracefulStop, Progress, Recorder, Tracker
from fedtide.runs.failures import failure_kept
from fedtide.runs.identity import run_key
from fedtide.runs.jobs.launch import global_rank
from fedtide.runs.loggers import RoundLog, refuse_bad_loggers
from fedtide.runs.own_callbacks import OwnCallbacks
from fedtide.runs.pilots import SharedPilot, pilot_key, pilot_rounds
from fedtide.runs.trainer import quiet_lightning, refuse_missing_device, trainer
from fedtide.settings.imported import Imported
from fedtide.settings.run import RunSettings, plain_name
from fedtide.settings.scores import TaskName, main_score
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline
from fedtide.worlds.files import timeline_for, world_identity
from fedtide.worlds.prepared import load_data

_CALLBACKS = "callbacks"
"""Name of the callbacks' states in a saved state."""


def execute(
    settings: RunSettings,
    runs: Path,
    *,
    name: str | None = None,
    worlds: Path | None = None,
    callbacks: Sequence[L.Callback] = (),
    loggers: Sequence[Imported] = (),
    tracker: Tracker | None = None,
    update: Callable[[str], None] | None = None,
    log: Callable[[str], None] = lambda _: None,
    wait: bool = False,
    data: Dataset | None = None,
    begin: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Execute a run; a finished one is read from its records, an interrupted one continues.

    Args:
        settings: of the run.
        runs: folder of run directories. name: of this one; by default the run key. Runs named by their key share equal
            pilot sessions; a run with a name of its own trains its own pilot.
        worlds: folder of timelines written by the partition stage.
        callbacks: further Lightning callbacks; a true attribute ``pruned`` marks the run as pruned.
        loggers: Lightning loggers that get the rounds.
        tracker: mirrors the records during the run.
        update: gets one progress line per round. log: gets log lines.
        wait: for another process that works on this run, instead of refusing.
        data: of the run, if already loaded.
        begin: called when the state to train from is in the run directory.

    Returns:
        The summary: ``run_key, state`` (``complete``, ``diverged``, ``pruned``, ``interrupted``), ``rounds``, accuracies
        (or another task's main score), bytes, seconds, mean kappa, simulated latency [s] and energy [J]; ``signal`` of an
        interrupted run.

    Raises:
        SettingsError: bad input; nothing was trained.
    """
    if name is not None:
        plain_name(name)
    refuse_missing_device(settings)
    refuse_bad_loggers(loggers)
    own = OwnCallbacks(settings.engine.callbacks)
    data = load_data(settings) if data is None else data
    timeline = timeline_for(settings, data, worlds)
    key = run_key(settings, data)
    directory = RunDirectory(runs / (name or key))
    if global_rank() > 0:
        return _follow(settings, timeline, data, directory, key, own)
    manifest = _manifest(settings, timeline, key, data)
    with directory.locked(_recorded(settings), manifest, wait):
        if (done := directory.finished(key)) is not None:
            log(f"{directory.path.name}: already {done['state']}, nothing to do")
            return done
        with GracefulStop() as stop, _ending(tracker), failure_kept(directory):
            saved = _resume(directory, key, log)
            timeline.save(directory.path / "timeline.npz", world_identity(settings, data))
            shared = pilot_rounds(timeline) if name is None and not own else 0  # callbacks see every round
            with SharedPilot(runs / "pilots" / pilot_key(settings, data), shared, directory, key, log) as pilot:
                saved = pilot.adopt(saved, lambda: stop.received is not None)
                values, rounds = _continued(saved, own)
                if stop.received is not None:  # before a round of this process
                    directory.event("interrupted", round=rounds)
                    return {**manifest, "state": "interrupted", "rounds": rounds, "signal": int(stop.received)}

                def announce(parts: Parts, wanted: Footprint, process: str) -> None:
                    if libraries := plugins.create(Model, settings.model).libraries() | own.libraries():
                        directory.event("libraries", versions=libraries)
                    for line in (*advice(parts), memory_plan(parts, wanted), process):
                        log(line)
                    if tracker is not None:
                        tracker.begin(directory)

                module = FederatedModule(settings, timeline, data, values, announce, directory.path)
                recorder = Recorder(directory, key, settings.checkpoint.every, tracker, lambda: _states(own))
                line = [Progress(update)] if update else []
                tracked = RoundLog(loggers, directory, log)
                called = [*([own] if own else []), recorder, tracked, *line, *callbacks, pilot]
                if rounds < timeline.rounds:
                    begin()
                return _fit(module, rounds, directory, manifest, stop, called, tracked.loggers)


@contextmanager
def _ending(tracker: Tracker | None) -> Iterator[None]:
    """The tracker learns of the end under the lock of the directory, so that no other process mirrors it meanwhile."""
    try:
        yield
    finally:
        if tracker is not None:
            tracker.end()


def _follow(
    settings: RunSettings, timeline: Timeline, data: Dataset, directory: RunDirectory, key: str, own: OwnCallbacks
) -> dict[str, Any]:
    """Another process of a distributed run: trains its share, writes nothing."""
    values, done = _continued(checkpoint.load(directory.state, key)[0], own)
    module = FederatedModule(settings, timeline, data, values, scratch=directory.path)
    with GracefulStop() as stop, quiet_lightning():
        stop.fit(trainer(settings, timeline.rounds, [stop, *([own] if own else [])], done), module)
    return {"state": "follower"}


def _states(own: OwnCallbacks) -> dict[str, Any]:
    """What a saved state has beside that of the run."""
    return {_CALLBACKS: own.states()} if own else {}


def _continued(saved: checkpoint.Saved | None, own: OwnCallbacks) -> tuple[dict[str, Any] | None, int]:
    """The run's saved values and number of rounds done; the callbacks take theirs."""
    if saved is None:
        return None, 0
    own.restore(saved.values.get(_CALLBACKS, {}))
    return {name: value for name, value in saved.values.items() if name != _CALLBACKS}, saved.round


def _manifest(settings: RunSettings, timeline: Timeline, key: str, data: Dataset) -> dict[str, Any]:
    return {
        "run_key": key,
        **({} if settings.task == "classification" else {"task": settings.task}),
        "label": settings.label,
        "algorithm": settings.algorithm.name,
        "initialiser": settings.initialiser_label,
        "scenario": settings.scenario.name,
        "dataset": settings.data.name,
        "seed": settings.seed,
        "data": data.digest,
        "timeline": timeline.digest,
        "rounds": timeline.rounds,
    }


def _recorded(settings: RunSettings) -> dict[str, Any]:
    """Settings as recorded: those that determine the run, and its labels."""
    return {**settings.canonical(), "label": settings.label, "initialiser_label": settings.initialiser_label}


def _resume(directory: RunDirectory, key: str, log: Callable[[str], None]) -> checkpoint.Saved | None:
    """The newest saved state that the records hold; later records are dropped."""
    saved, skipped = checkpoint.load(directory.state, key, directory.lost)
    ended = wrong_size(directory.path, directory.marks())
    if ended and saved is None:
        raise SettingsError(
            f"{directory.path}: the run has ended, but {', '.join(ended)}, and no saved state is left to restore it from; put "
            "it back, or delete the run's folder to start the run again"
        )
    for path, problem in skipped.items():
        log(f"{problem}; continuing from an older state")
        path.unlink()
    for problem in ended:
        log(f"{directory.path.name}: {problem}; restoring it from the saved state")
    checkpoint.sweep(directory.state)
    directory.rewind(saved.records if saved else {})
    if saved:
        log(f"{directory.path.name}: continuing from round {saved.round}")
        directory.event("resumed", round=saved.round)
    return saved


def _fit(
    module: FederatedModule,
    done: int,
    directory: RunDirectory,
    manifest: dict[str, Any],
    stop: GracefulStop,
    callbacks: Sequence[L.Callback],
    loggers: Sequence[Logger],
) -> dict[str, Any]:
    rounds = module.timeline.rounds
    with quiet_lightning():
        if done < rounds:
            stop.fit(trainer(module.settings, rounds, [stop, *callbacks], done, loggers), module)
        else:
            module.build()
    state = "diverged" if module.diverged else "complete"
    if module.state.round < rounds and not module.diverged:
        state = "pruned" if any(getattr(callback, "pruned", False) for callback in callbacks) else "interrupted"
    summary = {
        **manifest,
        **_scores(directory, module.settings.task),
        "state": state,
        "rounds": module.state.round,
        **_totals(module),
    }
    if module.diverged:
        summary["message"] = module.diverged
    if state == "complete":
        # Given a path, torch hides disk errors.
        with replacing(directory.path / "model.pt", durable=True) as part, part.open("wb") as stream:
            torch.save(module.parts.named(module.state.w, module.state.b), stream)
    if state == "interrupted" and stop.received is not None:
        summary["signal"] = int(stop.received)
    directory.event(state, round=module.state.round)
    if state != "interrupted":
        directory.finish(summary)
    return summary


def _scores(directory: RunDirectory, task: TaskName) -> dict[str, Any]:
    """Final, best and mean-of-the-last-ten accuracies, or values of another task's main score, from the history."""
    rows, main = directory.history(), main_score(task).name
    columns = [[float(row[name]) for row in rows if row.get(name)] for name in (f"test_{main}", f"validation_{main}")]
    values = columns[0] or columns[1]
    if not values:
        return {f"final_{main}": None, f"best_{main}": None, f"mean_last10_{main}": None}
    last = values[-10:]
    return {
        f"final_{main}": values[-1],
        f"best_{main}": max(values),
        f"mean_last10_{main}": sum(last) / len(last),
    }


def _totals(module: FederatedModule) -> dict[str, Any]:
    totals = module.state.totals
    simulated = ("latency", "energy") if module.parts.wireless else ()
    return {
        "bytes_up": int(totals["bytes_up"]),
        "bytes_down": int(totals["bytes_down"]),
        "gradient_rounds": int(totals["gradient_rounds"]),
        "seconds": round(totals["seconds"], 3),
        "kappa": totals["kappa"] / max(1, module.state.round),
        **{name: float(f"{totals[name]:.9g}") for name in simulated},
    }
