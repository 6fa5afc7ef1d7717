"""Lightning's trainer, configured for federated runs."""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import lightning as L
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import Logger

from fedtide.core.errors import SettingsError
from fedtide.settings.run import RunSettings


def trainer(
    settings: RunSettings, rounds: int, callbacks: list[L.Callback], done: int = 0, loggers: Sequence[Logger] = ()
) -> L.Trainer:
    """A trainer for the rounds after those ``done``; callbacks handle records, saved state and progress."""
    engine = settings.engine
    made = L.Trainer(
        max_epochs=rounds,
        accelerator=engine.accelerator,
        devices=engine.devices,
        num_nodes=engine.nodes,
        strategy="ddp" if engine.devices * engine.nodes > 1 else "auto",
        precision=engine.precision,
        callbacks=callbacks,
        logger=list(loggers) or False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    epochs: Any = made.fit_loop.epoch_progress.current
    epochs.ready = epochs.started = epochs.processed = epochs.completed = (
        done  # so that current_epoch counts all rounds
    )
    return made


def refuse_missing_device(settings: RunSettings) -> None:
    """Refuse settings for devices that the machine lacks, before anything is written."""
    try:
        with quiet_lightning():
            trainer(settings, 1, [])
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        chosen = settings.engine
        shown = f"accelerator {chosen.accelerator}, devices {chosen.devices}, precision {chosen.precision}"
        raise SettingsError(f"engine: {shown}: {' '.join(str(error).split())}") from None


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
