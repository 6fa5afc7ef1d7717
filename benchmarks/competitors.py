"""The compared ways to run the rounds of a workload."""

import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from fedtide.core.errors import SettingsError
from fedtide.federation.federation import Federation
from fedtide.federation.module import FederatedModule
from fedtide.federation.state import initial_state
from fedtide.federation.types import Parts
from fedtide.runs.display.progress import Watch
from fedtide.runs.execution import execute
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings
from fedtide.training.engine.local import accumulate
from fedtide.training.engine.plan import step_count
from fedtide.training.programs import interpreter, traces
from fedtide.training.programs.program import trace, trace_plain
from fedtide.training.resources.workers import WorkerState
from fedtide.world.building.build import timeline_for
from fedtide.world.storage.prepared import load_data
from naive import NaiveLoop
from timing import RoundClock, Segment


def library(settings: RunSettings, scratch: Path, mlruns: Path | None = None) -> Segment:
    """A whole run in a new run directory below ``scratch``: Lightning, engine, records, and MLflow if there is a folder.

    Raises:
        SettingsError: in a round, if the run is refused or diverges, or MLflow gives up.
    """

    def rounds(clock: RoundClock) -> None:
        remarks: list[str] = []
        with tempfile.TemporaryDirectory(dir=scratch) as runs:
            summary = execute(
                settings, Workspace(Path(runs), mlruns=mlruns), watch=Watch(remarks.append, callbacks=[clock])
            )
        if summary["state"] == "interrupted":
            raise KeyboardInterrupt
        failed = [remark for remark in remarks if remark.startswith("MLflow")]
        if summary["state"] != "complete" or failed:
            raise SettingsError("; ".join([summary.get("message", summary["state"]), *failed]))

    return rounds


def without_torchscript(segment: Segment) -> Segment:
    """The same as on a torch without TorchScript; programs are traced anew, in the first round."""

    def rounds(clock: RoundClock) -> None:
        with (
            patch.object(interpreter, "_scripted", lambda graph: None),
            patch.object(traces, "_programs", OrderedDict()),
        ):
            segment(clock)

    return rounds


def assembled(settings: RunSettings) -> Parts:
    """The parts of a run, as Lightning would build them."""
    data = load_data(settings)
    module = FederatedModule(settings, timeline_for(settings, data), data)
    module.to("cpu" if settings.engine.accelerator == "cpu" else "cuda").build()
    return module.parts


def bare_rounds(world: Parts) -> Callable[[int], None]:
    """A function that runs some further rounds, without Lightning and without records, on a GPU to their end."""
    state, federation = initial_state(world), Federation(world)

    def run(count: int) -> None:
        with torch.no_grad():
            for _ in range(count):
                federation.run_round(state)
        if world.hardware.device.type == "cuda":
            torch.cuda.synchronize()

    return run


def bare(world: Parts) -> Segment:
    """The same rounds without Lightning and without records."""

    def rounds(clock: RoundClock) -> None:
        run = bare_rounds(world)
        for _ in range(world.timeline.rounds):
            run(1)
            clock.tick()

    return rounds


def naive(world: Parts, evaluate: bool = False) -> Segment:
    """The same rounds by a plain loop."""
    loop = NaiveLoop(world, evaluate)
    return lambda clock: loop.run(world.timeline.rounds, clock.tick)


def disagreement(world: Parts, rounds: int) -> float:
    """Largest difference between the library's and the plain loop's model, relative to the largest change since the start."""
    state, federation, loop = initial_state(world), Federation(world), NaiveLoop(world)
    with torch.no_grad():
        for _ in range(rounds):
            federation.run_round(state)
    loop.run(rounds, lambda: None)
    return float((loop.vector() - state.w).abs().max() / (state.w - world.w0).abs().max())


def alone(competitor: str, raw: dict[str, Any]) -> None:
    """Execute a run by ``library`` or ``naive`` and nothing else; for measuring memory in a process of its own."""
    settings, clock = Params(raw).run(), RoundClock()
    if competitor == "naive":
        naive(assembled(settings))(clock)
        return
    with tempfile.TemporaryDirectory() as scratch:
        library(settings, Path(scratch))(clock)


def products(world: Parts) -> Segment:
    """Only the matrix products of the rounds' local steps, on the same workers: the least time any engine can need.

    Fits networks of linear layers, and cohorts of clients with as many samples as the average client. Every client has a batch
    of its own, which all its steps use.
    """
    layers = [part for part in world.task.network.modules() if isinstance(part, nn.Linear)]
    local, size = world.settings.local, len(world.data.train_labels) / world.timeline.num_clients
    steps = step_count(int(size), size, local)
    cohort = len(world.participation.draw(world.timeline.at(0).clients, 0, 0))

    def traced(function: Callable[..., Tensor], *values: Tensor) -> Callable[..., Tensor]:
        return trace_plain(function, values)  # by the library that the engine would use

    def tensors() -> list[tuple[Tensor, Tensor, Tensor]]:
        batch = local.batch_size
        return [
            (
                torch.randn(batch, layer.in_features),
                torch.randn(batch, layer.out_features),
                layer.weight.detach().clone(),
            )
            for layer in layers
        ]

    clients = [tensors() for _ in range(cohort)]
    logits = [traced(lambda w, x: torch.mm(x, w.t()), w, x) for x, _, w in clients[0]]
    backward = [traced(torch.mm, e, w) for _, e, w in clients[0]]
    change = [trace(lambda e, x: (torch.mm(e.t(), x), e), (e, x)) for x, e, _ in clients[0]]

    def client(_: WorkerState, index: int) -> None:
        for _ in range(steps):
            for place, (inputs, errors, weight) in enumerate(clients[index]):
                logits[place](weight, inputs)
                accumulate([weight], change[place](errors, inputs)[0], 1.0, -1e-9)
                if place:
                    backward[place](errors, weight)

    def rounds(clock: RoundClock) -> None:
        for _ in range(world.timeline.rounds):
            world.workers.map(client, range(cohort))
            clock.tick()

    return rounds
