"""One run, from settings to a complete run directory."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from fedtide import plugins
from fedtide.algorithms.outlook import Outlook
from fedtide.data.dataset import Dataset
from fedtide.engine.plan import step_count
from fedtide.errors import SettingsError
from fedtide.federation import checkpoint
from fedtide.federation.callbacks import GracefulStop, Progress, Recorder
from fedtide.federation.module import FederatedModule
from fedtide.federation.schedules import learning_rate
from fedtide.pilots import SharedPilot, pilot_key, pilot_rounds
from fedtide.scenarios.timeline import Timeline
from fedtide.settings import RunSettings, plain_name
from fedtide.tracking.run_directory import RunDirectory
from fedtide.world import digest, key_of, load_data, timeline_for


def execute(
    settings: RunSettings,
    runs: Path,
    *,
    name: str | None = None,
    worlds: Path | None = None,
    callbacks: Sequence[L.Callback] = (),
    prepare: Callable[[RunDirectory], None] | None = None,
    show: Callable[[str], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
    wait: bool = False,
) -> dict[str, Any]:
    """Play a run to its end, or return the record of a finished one, or go on with a half-done one.

    Args:
        settings: of the run.
        runs: folder of run directories. name: of this one; by default the run key. Runs that are called by their key share
            pilot sessions that are equal; a run with a name of its own stands alone.
        worlds: folder of timelines written by the partition stage.
        callbacks: further Lightning callbacks (tracking, pruning); one that has a true ``pruned`` gave the run up.
        prepare: called with the run directory, once it is ours.
        show: gets one progress line per round. say: gets remarks.
        wait: for another process that works on this run, instead of refusing.

    Returns:
        The summary: ``run_key, state`` (``complete``, ``diverged``, ``pruned``, ``interrupted``), ``rounds``, accuracies,
        bytes, seconds, mean kappa, simulated latency [s] and energy [J]; ``signal`` of an interrupted run.

    Raises:
        SettingsError: bad input; nothing was trained.
    """
    if name is not None:
        plain_name(name)
    _refuse_missing_device(settings)
    data = load_data(settings)
    timeline = timeline_for(settings, data, worlds)
    key = key_of(settings, data)
    directory = RunDirectory(runs / (name or key))
    if int(os.environ.get("LOCAL_RANK", "0")) > 0:
        return _follow(settings, timeline, data, directory)
    manifest = _manifest(settings, timeline, key, data)
    with directory.owned(_recorded(settings), manifest, wait):
        done = directory.summary()
        if done is not None and done.get("run_key") == key and done.get("state") != "interrupted":
            say(f"{directory.path.name}: already {done['state']}, nothing to do")
            return done
        saved = _resume(directory, say)
        if saved is None:
            timeline.save(directory.path / "timeline.npz")
        for line in _warnings(settings, timeline):
            say(line)
        shared = pilot_rounds(timeline) if name is None else 0
        with SharedPilot(runs / "pilots" / pilot_key(settings, data), shared, directory, say) as pilot:
            with GracefulStop() as stop:
                saved = pilot.adopt(saved, lambda: stop.received is not None)
            if stop.received is not None:  # while it waited for another run
                played = saved["round"] if saved else 0
                directory.event("interrupted", round=played)
                return {**manifest, "state": "interrupted", "rounds": played, "signal": int(stop.received)}
            if prepare is not None:
                prepare(directory)
            return _fit(settings, timeline, data, directory, manifest, saved, [*callbacks, pilot], show, say)


def _follow(settings: RunSettings, timeline: Timeline, data: Dataset, directory: RunDirectory) -> dict[str, Any]:
    """A further process of a distributed run: trains its share, writes nothing."""
    saved, _ = checkpoint.load(directory.state)
    module = FederatedModule(settings, timeline, data, saved, scratch=directory.path)
    with GracefulStop() as stop, _quiet_lightning():
        _trainer(settings, timeline.rounds - (saved["round"] if saved else 0), [stop]).fit(module)
    return {"state": "follower"}


def _manifest(settings: RunSettings, timeline: Timeline, key: str, data: Dataset) -> dict[str, Any]:
    return {
        "run_key": key,
        "label": settings.label,
        "algorithm": settings.algorithm.name,
        "initialiser": settings.initialiser_label,
        "scenario": settings.scenario.name,
        "dataset": settings.data.name,
        "seed": settings.seed,
        "data": data.digest,
        "timeline": digest(timeline),
        "rounds": timeline.rounds,
    }


def _recorded(settings: RunSettings) -> dict[str, Any]:
    """Settings as recorded: those that determine the run, and its labels."""
    return {**settings.canonical(), "label": settings.label, "initialiser_label": settings.initialiser_label}


def _resume(directory: RunDirectory, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The saved state to go on from; records are cut back to it."""
    saved, damaged = checkpoint.load(directory.state)
    for path in damaged:
        say(f"{path.name} is damaged; going on from an older state")
        path.unlink()
    directory.rewind(saved["round"] if saved else 0)
    if saved:
        say(f"{directory.path.name}: going on from round {saved['round']}")
        directory.event("resumed", round=saved["round"])
    return saved


def _warnings(settings: RunSettings, timeline: Timeline) -> list[str]:
    """What the algorithm says of its settings in the run's first session."""
    algorithm = plugins.load("algorithms", settings.algorithm.name)(settings.algorithm)
    participation = plugins.load("participation", settings.participation.name)(settings.participation)
    sizes = np.array([len(timeline.shards[shard]) for shard in timeline.at(0).shards])
    local, mean = settings.local, float(sizes.mean())
    span = timeline.session_span(0)[1] if local.restart else timeline.rounds
    outlook = Outlook(
        lr=local.lr,
        last_lr=learning_rate(local, span - 1, span),
        steps=step_count(math.ceil(mean), mean, local),
        rounds=timeline.rounds,
        participation=participation.expected_fraction(int((sizes > 0).sum())),  # type: ignore[attr-defined]
        smallest=float(sizes[sizes > 0].min()) / mean,
    )
    return algorithm.warnings(outlook)  # type: ignore[attr-defined, no-any-return]


def _fit(
    settings: RunSettings,
    timeline: Timeline,
    data: Dataset,
    directory: RunDirectory,
    manifest: dict[str, Any],
    saved: dict[str, Any] | None,
    callbacks: Sequence[L.Callback],
    show: Callable[[str], None] | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    module = FederatedModule(settings, timeline, data, saved, say, directory.path)
    remaining = timeline.rounds - (saved["round"] if saved else 0)
    recorder = Recorder(directory, settings.checkpoint.every)
    with GracefulStop() as stop, _quiet_lightning():
        if remaining > 0:
            line = [Progress(show)] if show else []
            _trainer(settings, remaining, [stop, recorder, *line, *callbacks]).fit(module)
        else:
            module.build()
    state = "diverged" if module.diverged else "complete"
    if module.state.round < timeline.rounds and not module.diverged:
        state = "pruned" if any(getattr(callback, "pruned", False) for callback in callbacks) else "interrupted"
    summary = {**manifest, **_scores(directory), "state": state, "rounds": module.state.round, **_totals(module)}
    if module.diverged:
        summary["message"] = module.diverged
    if state == "complete":
        part = directory.path / "model.part"
        with part.open("wb") as stream:  # given a path instead, torch hides what went wrong with the disk
            torch.save(module.federation.state_dict(module.state), stream)
        part.replace(directory.path / "model.pt")
    if state == "interrupted" and stop.received is not None:
        summary["signal"] = int(stop.received)
    directory.event(state, round=module.state.round)
    if state != "interrupted":
        directory.finish(summary)
    return summary


def _trainer(settings: RunSettings, rounds: int, callbacks: list[L.Callback]) -> L.Trainer:
    engine = settings.engine
    return L.Trainer(
        max_epochs=rounds,
        accelerator=engine.accelerator,
        devices=engine.devices,
        strategy="ddp" if engine.devices > 1 else "auto",
        precision=engine.precision,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def _refuse_missing_device(settings: RunSettings) -> None:
    """What a machine offers only Lightning knows: it is asked before anything is written."""
    try:
        with _quiet_lightning():
            _trainer(settings, 1, [])
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        chosen = settings.engine
        shown = f"accelerator {chosen.accelerator}, devices {chosen.devices}, precision {chosen.precision}"
        raise SettingsError(f"engine: {shown}: {' '.join(str(error).split())}") from None


def _scores(directory: RunDirectory) -> dict[str, Any]:
    """Final, best and mean-of-the-last-ten accuracies from the history."""
    rows = directory.history()
    columns = [[float(row[name]) for row in rows if row.get(name)] for name in ("test_accuracy", "validation_accuracy")]
    values = columns[0] or columns[1]
    if not values:
        return {"final_accuracy": None, "best_accuracy": None, "mean_last10_accuracy": None}
    last = values[-10:]
    return {
        "final_accuracy": values[-1],
        "best_accuracy": max(values),
        "mean_last10_accuracy": sum(last) / len(last),
    }


def _totals(module: FederatedModule) -> dict[str, Any]:
    totals = module.state.totals
    return {
        "bytes_up": int(totals["bytes_up"]),
        "bytes_down": int(totals["bytes_down"]),
        "gradient_rounds": int(totals["gradient_rounds"]),
        "seconds": round(totals["seconds"], 3),
        "kappa": totals["kappa"] / max(1, module.state.round),
        **(
            {name: float(f"{totals[name]:.9g}") for name in ("latency", "energy")} if module.federation.wireless else {}
        ),
    }


@contextlib.contextmanager
def _quiet_lightning() -> Any:
    """Lightning's banners and hints say nothing about a federated run."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\..*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
