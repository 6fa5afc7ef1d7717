"""The run as one Lightning fit: one ``training_step`` is one communication round."""

from pathlib import Path
from typing import Any

import torch

from fedtide.core import lightning as L
from fedtide.core.errors import Diverged
from fedtide.federation.assembly.choose import choose
from fedtide.federation.assembly.footprint import Footprint, footprint, naming_exhaustion
from fedtide.federation.assembly.hardware import Hardware, MemoryStore
from fedtide.federation.assembly.parts import assemble
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.state import initial_state, restored_state
from fedtide.federation.types import Parts, RunState
from fedtide.settings.run import RunSettings
from fedtide.training.resources.workers import prepare_process
from fedtide.world.concepts import under
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline

_AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class FederatedModule(L.LightningModule):
    """Runs a federation round by round; Lightning owns device, precision, processes and callbacks.

    ``saved``: state to resume from, or None. ``scratch``: folder of client state kept on disk.

    Attributes:
        parts, federation, state: set when the fit starts, as are ``footprint``, the memory that they take at least, and
            ``process``, a line about the process. record: of the last round. diverged: message, once training has diverged.
    """

    def __init__(
        self,
        settings: RunSettings,
        timeline: Timeline,
        data: Dataset,
        saved: dict[str, Any] | None = None,
        scratch: Path | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.settings, self.timeline, self.data = settings, timeline, data
        self._saved, self._scratch = saved, scratch
        self.model_anchor = torch.nn.Parameter(torch.zeros(1))  # DDP refuses modules without parameters
        self.parts: Parts
        self.federation: Federation
        self.state: RunState
        self.footprint: Footprint
        self.process: str
        self.record: RoundRecord | None = None
        self.diverged: str | None = None

    def on_fit_start(self) -> None:
        self.build()

    def build(self) -> None:
        """Assemble the federation on this module's device, with the saved state or a new one."""
        engine = self.settings.engine
        self.process = prepare_process(engine, self.device)
        hardware = Hardware(
            device=self.device,
            dtype=torch.float64 if engine.precision == "64-true" else torch.float32,
            autocast=_AUTOCAST.get(engine.precision),
            scratch=self._scratch,
        )
        memory = MemoryStore(self.settings.client_state.storage, self.device, self._scratch)
        data = under(self.data, self.timeline.concepts)
        chosen = choose(self.settings, self.timeline, data)
        self.footprint = footprint(chosen, self.timeline, data, self.device, hardware.dtype)
        self.footprint.refuse_excess(self.device, memory)
        self.parts = assemble(chosen, self.timeline, data, hardware)
        self.federation = Federation(self.parts)
        saved, self._saved = self._saved, None
        self.state = initial_state(self.parts) if saved is None else restored_state(self.parts, saved)

    def configure_optimizers(self) -> None:
        """None for Lightning: the server's step is part of the round."""

    def train_dataloader(self) -> list[int]:
        """One batch per epoch: an epoch is a round."""
        return [0]

    def training_step(self, batch: int, batch_idx: int) -> None:
        with torch.no_grad(), naming_exhaustion(f"round {self.state.round + 1}"):
            try:
                self.record = self.federation.run_round(self.state)
            except Diverged as error:
                self.record, self.diverged = error.record, str(error)
                self.trainer.should_stop = True
            except BaseException:
                self.on_fit_end()  # which Lightning then leaves out
                raise

    def on_fit_end(self) -> None:
        self.parts.workers.close()
