"""The run as one Lightning fit: one ``training_step`` is one communication round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fedtide.data.dataset import Dataset
from fedtide.engine.process import prepare_process
from fedtide.errors import Diverged
from fedtide.federation.federation import Federation
from fedtide.federation.ranks import Ranks
from fedtide.federation.report import RoundReport
from fedtide.federation.state import RunState
from fedtide.scenarios.timeline import Timeline
from fedtide.settings import RunSettings


class ServerStep(torch.optim.Optimizer):
    """Lightning counts optimiser steps; the server's step is the round."""

    def __init__(self, parameters: list[torch.nn.Parameter], play: Callable[[], None]) -> None:
        super().__init__(parameters, {})
        self._play = play

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Play a round."""
        self._play()


class FederatedModule(L.LightningModule):
    """Plays a federation round by round; Lightning owns device, precision, processes and callbacks.

    Attributes:
        federation, state: set when the fit starts. report: of the last round.
        diverged: message, once training has diverged.
    """

    def __init__(
        self,
        settings: RunSettings,
        timeline: Timeline,
        data: Dataset,
        saved: dict[str, Any] | None = None,
        say: Callable[[str], None] = lambda _: None,
        scratch: Path | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.settings, self.timeline, self.data = settings, timeline, data
        self._saved, self._say, self._scratch = saved, say, scratch
        self.model_anchor = torch.nn.Parameter(torch.zeros(1))  # DDP refuses modules without parameters
        self.federation: Federation
        self.state: RunState
        self.report: RoundReport | None = None
        self.diverged: str | None = None

    def on_fit_start(self) -> None:
        """Build the federation where Lightning has put us."""
        self.build()
        self._say(self.federation.memory_plan())
        self._say(self.process)

    def build(self) -> None:
        """The federation on this module's device, with the saved state or a new one."""
        self.process = prepare_process(self.settings.engine, self.device)
        precision = self.settings.engine.precision
        dtype = torch.float64 if precision == "64-true" else torch.float32
        autocast = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)
        self.federation = Federation(
            *(self.settings, self.timeline, self.data, self.device, dtype, autocast),
            *(Ranks.of_process_group(), self._scratch),
        )
        if self._saved is None:
            self.state = self.federation.start()
        else:
            self.state = self.federation.restore(self._saved)
            self._saved = None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The server's step."""
        return ServerStep([self.model_anchor], self._play)

    def train_dataloader(self) -> DataLoader[int]:
        """One batch per epoch: an epoch is a round."""
        return DataLoader([0], batch_size=None)  # type: ignore[arg-type]

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        """One communication round."""
        self.optimizers().step()  # type: ignore[union-attr]

    def _play(self) -> None:
        with torch.no_grad():
            try:
                self.report = self.federation.play(self.state)
            except Diverged as error:
                self.report, self.diverged = error.report, str(error)
                self.trainer.should_stop = True

    def on_fit_end(self) -> None:
        """Stop the worker threads."""
        self.federation.workers.close()
