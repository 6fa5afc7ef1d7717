"""Lightning's trainer, configured for federated runs."""

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from lightning.fabric.plugins import ClusterEnvironment
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.accelerators import MPSAccelerator
from lightning.pytorch.loggers import Logger

from fedtide.core import lightning as L
from fedtide.core.errors import SettingsError
from fedtide.runs.jobs.ranks import launched
from fedtide.runs.jobs.signals import ended_by_signals
from fedtide.settings.run import EngineSettings, RunSettings


def trainer(
    settings: RunSettings, rounds: int, callbacks: list[L.Callback], done: int = 0, loggers: Sequence[Logger] = ()
) -> L.Trainer:
    """A trainer for the rounds after those ``done``; callbacks handle records, saved state and progress."""
    engine = settings.engine
    made = L.Trainer(
        max_epochs=rounds,
        accelerator=_accelerator(engine),
        devices=engine.devices,
        num_nodes=engine.nodes,
        strategy="ddp" if engine.devices * engine.nodes > 1 else "auto",
        precision="32-true" if engine.precision == "tf32" else engine.precision,
        plugins=[_environment()],
        callbacks=callbacks,
        logger=list(loggers) or False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    epochs: Any = made.fit_loop.epoch_progress.current
    # So that current_epoch counts all rounds.
    epochs.ready = epochs.started = epochs.processed = epochs.completed = done
    return made


def _accelerator(engine: EngineSettings) -> str:
    """Lightning's choice, but the CPU for double precision on a Mac, whose GPU has none."""
    if engine.precision != "64-true" or engine.accelerator in ("cpu", "cuda") or not MPSAccelerator.is_available():
        return engine.accelerator
    if engine.accelerator == "auto":
        return "cpu"
    raise ValueError("Apple GPUs have no double precision; set engine.precision = 32-true, or engine.accelerator = cpu")


def _environment() -> ClusterEnvironment:
    """Who has started the run's processes. Lightning itself would take any process in a batch job for one of srun's."""
    if launched() == 1:
        return LightningEnvironment()
    return TorchElasticEnvironment() if "RANK" in os.environ else SLURMEnvironment()


def device_of(settings: RunSettings) -> torch.device:
    """The device that a run of one process trains on; refuses one that the machine lacks."""
    with _refusing(settings):
        device = trainer(settings, 1, []).strategy.root_device
        if settings.engine.precision == "tf32" and device.type != "cuda":
            raise ValueError(f"TensorFloat-32 requires a CUDA GPU, and the run would use {device}; set 32-true")
        return device


def meet(settings: RunSettings) -> None:
    """Wait for the other processes that a launcher has started; refuse variables or devices with which that fails."""
    with _refusing(settings), ended_by_signals():
        trainer(settings, 1, []).strategy.setup_environment()


@contextlib.contextmanager
def _refusing(settings: RunSettings) -> Iterator[None]:
    try:
        with quiet_lightning():
            yield
    except (MisconfigurationException, ValueError, RuntimeError, KeyError) as error:
        chosen, lacking = settings.engine, "missing in the environment: " if isinstance(error, KeyError) else ""
        shown = f"accelerator {chosen.accelerator}, devices {chosen.devices}, precision {chosen.precision}"
        raise SettingsError(f"engine: {shown}: {lacking}{' '.join(str(error).split())}") from None


@contextlib.contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's banners and hints, which do not apply to federated runs, and hints on vmap's speed."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\..*")
            warnings.filterwarnings("ignore", message="There is a performance drop")  # of vmap, e.g. over attention
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
