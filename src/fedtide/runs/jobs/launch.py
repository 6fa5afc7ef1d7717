"""Processes of one run that ``torchrun`` or ``srun`` has started: the first one decides for all."""

from __future__ import annotations

import os
from collections.abc import Callable

from fedtide.core.errors import SettingsError
from fedtide.runs.jobs.ranks import global_rank, launched, number
from fedtide.runs.jobs.signals import ended_by_signals
from fedtide.settings.run import RunSettings


def _refuse_other_number(settings: RunSettings) -> None:
    """Refuse settings that ask for other processes than were started: each would train the whole run, or wait for others."""
    engine, started = settings.engine, launched()
    if (started > 1 or engine.nodes > 1) and engine.nodes * engine.devices != started:
        raise SettingsError(
            f"engine.nodes = {engine.nodes}, engine.devices = {engine.devices}: {started} processes were started instead of "
            f"their product; start `fedtide run` on every machine with torchrun or srun, {engine.devices} processes each"
        )
    # Lightning starts the others itself, with these variables, unless LOCAL_RANK says that somebody else does.
    by_lightning = number("LOCAL_RANK", 0) > 0 and os.environ.get("WORLD_SIZE") == str(engine.devices)
    if started == 1 and engine.devices > 1 and "LOCAL_RANK" in os.environ and not by_lightning:
        raise SettingsError(
            f"engine.devices = {engine.devices}: LOCAL_RANK = {os.environ['LOCAL_RANK']} in the environment, but no launcher "
            "has started other processes; unset it, or start `fedtide run` with torchrun or srun"
        )


class Decision:
    """Whether to train: the first process announces it, the others wait for that.

    ``with Decision(settings) as decision``: if nothing was announced until the end, it is announced that nothing is trained.
    Without a launcher nothing is sent: Lightning starts the other processes when the first one starts to train.
    """

    def __init__(self, settings: RunSettings, log: Callable[[str], None] = lambda _: None) -> None:
        self._settings, self._several, self._announced, self._log = settings, launched() > 1, False, log
        self.rank = global_rank()

    def __enter__(self) -> Decision:
        _refuse_other_number(self._settings)
        if self._several:
            from fedtide.runs.lightning.trainer import meet  # with Lightning, which takes seconds to import

            if self.rank == 0:
                self._log(f"waiting for the run's other processes, {launched() - 1}")
            meet(self._settings)
        return self

    def __exit__(self, *_: object) -> None:
        if self.rank == 0:
            self.announce(False)

    def announce(self, train: bool) -> None:
        """Tell the other processes, once."""
        if self._several and not self._announced:
            self._announced = True
            self._broadcast([train])

    def wait(self) -> bool:
        """What the first process has announced."""
        return not self._several or bool(self._broadcast([False])[0])

    @staticmethod
    def _broadcast(values: list[bool]) -> list[bool]:
        import torch

        with ended_by_signals():
            torch.distributed.broadcast_object_list(values)
        return values
