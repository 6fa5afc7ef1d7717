"""A command that executes a run, without its training: the package's own code claims, resumes, records, saves and finishes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from disk import SimPath
from judge import KEY, ROUNDS, SETTINGS, Judge
from kernel import Kernel, Process

from fedtide.core.errors import SettingsError, TakenOver
from fedtide.federation.module import FederatedModule
from fedtide.federation.record import RoundRecord
from fedtide.federation.saving.rows import StoredRows
from fedtide.records.run_directory import RunDirectory
from fedtide.runs import execution
from fedtide.runs.callbacks import Recorder

EVERY = 2
RUN = "/runs/run"


class _Module(FederatedModule):
    """What a recorder sees of a run: a state that remembers by whom each round was computed."""

    def __init__(self, saved: Any) -> None:
        self.__dict__.update(_parameters={}, _buffers={}, _modules={})
        self.__dict__["timeline"] = SimpleNamespace(rounds=ROUNDS)
        self.__dict__["parts"] = SimpleNamespace(timeline=self.timeline)
        self.__dict__["diverged"] = None
        self.chain = torch.zeros(ROUNDS, dtype=torch.int64)
        self.memory = {"rows": torch.zeros(2, 1)}
        self.written = torch.zeros(2, dtype=torch.int64)
        number = 0
        if saved is not None:
            number, self.chain = saved.round, saved.values["chain"]
            self.written = saved.values["stamps"]
            if isinstance(saved.values["memory"], StoredRows):
                saved.values["memory"].write_into(self.memory)
            else:
                self.memory = saved.values["memory"]
        self.__dict__["state"] = SimpleNamespace(round=number, tensors=self.tensors)

    def tensors(self) -> dict[str, Any]:
        counts = (self.written > 0).long()
        return {
            "chain": self.chain.clone(), "counts": counts, "stamps": self.written.clone(), "written": self.written,
            "memory": self.memory,
        }  # fmt: skip

    def train(self, owner: int) -> None:  # type: ignore[override]
        state = self.__dict__["state"]
        state.round += 1
        self.chain[state.round - 1] = owner
        self.memory["rows"][state.round % 2] = float(owner)
        self.written[state.round % 2] = state.round
        self.__dict__["record"] = RoundRecord(
            row={"round": state.round, "session": state.round // 2, "seconds": owner},
            session={"session": state.round // 2} if state.round % 2 == 1 else None,
            per_class={"test": [0.5, 0.5]},
        )


def execute(kernel: Kernel, process: Process, judge: Judge, wait: bool) -> None:
    """As :func:`fedtide.runs.execution.execute`; sets the outcome of the process."""
    try:
        process.outcome = train(kernel, process, judge, wait)
    except SettingsError as error:
        process.outcome = "refused" if "another process is working" in str(error) else f"refused for good: {error}"
    except TakenOver:
        process.outcome = "taken over"
    except OSError as error:
        process.outcome = f"failed: {error}"
    kernel.tell(f"process {process.number} on {process.host} ends: {process.outcome}")


def train(
    kernel: Kernel, process: Process, judge: Any, wait: bool, path: str = RUN, callbacks: Sequence[Any] = ()
) -> str:
    """As :func:`fedtide.runs.execution._train`; how the run has ended."""
    directory = RunDirectory(SimPath(path))  # type: ignore[arg-type]
    log = SimpleNamespace(log=lambda line: kernel.tell(f"process {process.number}: {line}"))
    job: Any = SimpleNamespace(directory=directory, key=KEY, watch=log, periods=[])
    if directory.finished(KEY) is not None:
        return "complete"
    with directory.locked(SETTINGS, {"run_key": KEY}, wait):
        owner = judge.claimed(process)
        if directory.finished(KEY) is not None:
            return "complete"
        saved = execution._resume(job)
        judge.resumed(process, saved)
        module = _Module(saved)
        recorder = Recorder(directory, KEY, EVERY)
        while module.state.round < ROUNDS and not process.told:
            kernel.sleep(kernel.random.choice((0.5, 4.0, 25.0)))
            trainer: Any = SimpleNamespace(is_global_zero=True, should_stop=process.told)
            module.train(owner)
            for callback in (recorder, *callbacks):
                callback.on_train_epoch_end(trainer, module)
            if trainer.should_stop:
                break
        state = "complete" if module.state.round == ROUNDS else "interrupted"
        directory.event(state, round=module.state.round)
        if state == "complete":
            directory.finish({"run_key": KEY, "state": "complete", "rounds": ROUNDS})
        return state
