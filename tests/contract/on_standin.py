"""Rounds on an accelerator; run by test_accelerators.py in a process of its own, or by ``pytest <this file>``.

The accelerator is a graphics card where there is one, otherwise a stand-in.

Each run computes what it computes on the CPU, up to rounding, although it is stopped after a round and resumed from its saved
state, which puts everything on the device. The default type of PyTorch's numbers is double there, single on the CPU: what
takes its type from neither run nor data shows, too.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import standin
from fedtide.core import plugins
from fedtide.federation.assembly import parts
from fedtide.federation.module import FederatedModule
from fedtide.federation.rounds import training
from fedtide.federation.rounds.ahead import Ahead
from fedtide.federation.saving.checkpoint import Generations, Saved, load
from fedtide.settings.run import RunSettings
from fedtide.training.engine.executors import replay
from fedtide.training.engine.executors.static_step import StaticStep
from fedtide.world.building.build import build_timeline
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline
from support import Script, clock, images, in_full, tokens

Run = tuple[RunSettings, Timeline, Dataset]

CPU = torch.device("cpu")
CARD = torch.device("cuda") if torch.cuda.is_available() else standin.device()
KEPT = {"client_state": {"on_session_start": "keep"}, "participation": {"name": "fixed", "fraction": 0.6}}
EVERYTHING = {
    "models": ["global", "participants", "all", "ensemble"],
    "splits": ["test", "validation"],
    "metrics": ["balanced_accuracy", "macro_f1", "auroc", "calibration_error"],
    "clients_every": 1,
    "finetune_steps": 1,
    "consistency": True,
}


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in records as a card does."""
    if CARD.type != "cuda":
        monkeypatch.setattr(replay, "can_record", lambda device: device.type == standin.NAME)
        monkeypatch.setattr(replay, "record", standin.record)
        monkeypatch.setattr(replay, "side_by_side", lambda works, device: [work() for work in works])


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def _same_initial_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn in the default type."""
    drawn = parts._built

    def in_single(*args: Any) -> Any:
        with default_type(torch.float32):
            return drawn(*args)

    monkeypatch.setattr(parts, "_built", in_single)


def outcome(
    run: Run, device: torch.device, rounds: int, folder: Path | None = None
) -> tuple[dict[str, Any], list[Any]]:
    """The state after some rounds and their records; with a folder, saved and resumed after the first one."""

    def begin(saved: dict[str, Any] | None = None) -> FederatedModule:
        module = FederatedModule(*run, saved).to(device)
        module.build()
        return module

    def go(module: FederatedModule, count: int) -> list[Any]:
        with torch.no_grad():
            found = [module.federation.run_round(module.state) for _ in range(count)]
        module.on_fit_end()
        return found

    module = begin()
    if folder is None:
        records = go(module, rounds)
        return {name: value for name, value in module.state.tensors().items() if name != "written"}, records
    states, records = Generations(folder), go(module, 1)
    states.save(Saved("run", 1, {}, module.state.tensors()))
    module = begin(load(folder, "run")[0].values)
    records += go(module, rounds - 1)
    states.save(Saved("run", rounds, {}, module.state.tensors()))
    return in_full(load(folder, "run")[0].values), records


def differences(name: str, first: Any, second: Any, tolerance: float) -> Iterator[str]:
    """Names of what differs in two nested containers; the seconds that a run took do not matter."""
    if isinstance(first, dict):
        for key in (first.keys() | second.keys()) - {"seconds"}:
            yield from differences(f"{name}.{key}", first.get(key), second.get(key), tolerance)
    elif isinstance(first, Sequence) and not isinstance(first, str):
        yield from differences(name, dict(enumerate(first)), dict(enumerate(second)), tolerance)
    elif isinstance(first, str | None) or type(first) is not type(second):
        if first != second:
            yield f"{name}: {first!r} and {second!r}"
    else:
        a, b = (torch.as_tensor(value).to("cpu", torch.float64) for value in (first, second))
        allowed = tolerance * max(1.0, float(a.abs().max())) if tolerance and a.numel() else 0.0
        if a.shape != b.shape or not torch.allclose(a, b, rtol=0.0, atol=allowed, equal_nan=True):
            yield f"{name}: {first} and {second}"


def assert_alike(run: Run, folder: Path, rounds: int = 3) -> None:
    """The same on the CPU, at one go, and on the stand-in."""
    chosen, world, data = run
    chosen = chosen.model_copy(update={"engine": chosen.engine.model_copy(update={"precision": "64-true"})})
    state, records = outcome((chosen, world, data), CPU, rounds)
    with default_type(torch.float64):
        other, others = outcome((chosen, world, data), CARD, rounds, folder)
    rows = ([vars(record) for record in each] for each in (records, others))
    assert not [*differences("state", state, other, 1e-12), *differences("records", *rows, 1e-6)]


@pytest.mark.parametrize("algorithm", plugins.names("algorithms"))
def test_algorithms(world: Any, tmp_path: Path, algorithm: str) -> None:
    kept = KEPT | ({"participation": "all"} if clock(algorithm) else {})
    assert_alike(world(algorithm=algorithm, **kept), tmp_path)


@pytest.mark.parametrize("initializer", plugins.names("initializers"))
def test_initializers(world: Any, tmp_path: Path, initializer: str) -> None:
    more = {"gradient_rounds": 2, "gradient_steps": 1} if initializer == "dynamic" else {}
    assert_alike(world(algorithm="scaffold", initializer={"name": initializer, **more}), tmp_path, 6)


@pytest.mark.parametrize("selection", [None, *plugins.names("selection")])
def test_exchanges(world: Any, tmp_path: Path, selection: str | None) -> None:
    often = {
        "name": "intervals",
        "intervals": "1-4",
        "budget": {"name": "dynamic", "beta": 0.7},
        "selection": selection,
    }
    local = {"steps": 4, "batch_size": 4, "lr": 0.05}
    communication = often if selection else "per_round"
    assert_alike(world(algorithm="fedavg", communication=communication, local=local, participation="all"), tmp_path)


def test_all_that_can_be_evaluated(world: Any, tmp_path: Path) -> None:
    assert_alike(world(algorithm="fedensemble", evaluation=EVERYTHING, validation=0.1, **KEPT), tmp_path)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "adagrad"])
def test_local_optimizers(world: Any, tmp_path: Path, optimizer: str) -> None:
    local = {"steps": 3, "batch_size": 4, "accumulate": 2, "weight_decay": 0.1, "clip": 0.5}
    moments = {"optimizer": optimizer, "momentum_scope": "client", "momentum": 0.5 * (optimizer == "sgd")}
    assert_alike(world(algorithm="fedavg", local=local | moments, **KEPT), tmp_path)


def plain(norm: str, **settings: Any) -> dict[str, Any]:
    """A convolution with a norm."""
    return {"name": "module", "path": "own_nets:Plain", "arguments": {"norm": norm, **settings}}


@pytest.mark.parametrize(
    ("model", "algorithm", "executor", "samples"),
    [
        (plain("GroupNorm", num_channels=4), "moon", "stacked", images()),
        (plain("GroupNorm", num_channels=4), "fedprox", "threads", images()),
        (plain("BatchNorm2d"), "fedsam", "auto", images()),
        ("cnn_svhn", "fedprox", "auto", images()),
        ("embedding_bag", "scaffold", "auto", tokens()),
    ],
    ids=["convolution", "one_by_one", "statistics", "dropout", "text"],
)
def test_networks(world: Any, tmp_path: Path, model: Any, algorithm: str, executor: str, samples: Dataset) -> None:
    local = {"steps": 2, "batch_size": 4, "lr": 0.05}
    if samples.kind == "image":
        local |= {"flip": 0.5, "crop": 1}
    engine = {"executor": executor, "workers": 1}
    chosen, _, _ = world(algorithm=algorithm, model=model, local=local, engine=engine)
    assert_alike((chosen, build_timeline(chosen, samples), samples), tmp_path, 2)


DECAY = {"steps": 3, "batch_size": 4, "lr": 0.05, "schedule": "exponential", "decay": 0.9}
FEW = {"chunk": 4, "workers": 1}


@pytest.mark.parametrize(
    ("settings", "forms"),
    [
        ({"algorithm": "fedavg"}, 1),
        ({"algorithm": "fedwcm", "local": DECAY}, 1),
        ({"algorithm": "fedprox", "engine": FEW}, 2),  # six participants are chunks of four and two
        ({"algorithm": "fedprox", "communication": {"name": "intervals", "intervals": "1-4"}, "local": DECAY}, 1),
    ],
    ids=["numbers", "rates", "chunks", "exchanges"],
)
def test_a_step_is_executed_and_recorded_once_for_all_rounds(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], forms: int
) -> None:
    launched: list[tuple[bool, bool]] = []
    step = StaticStep._step

    def counted(self: StaticStep, padded: bool, uneven: bool) -> None:
        launched.append((padded, uneven))
        step(self, padded, uneven)

    monkeypatch.setattr(StaticStep, "_step", counted)
    run = world("static", **{"local": {"steps": 3, "batch_size": 4, "lr": 0.05}, **KEPT, **settings})
    outcome(run, CARD, 4)
    assert launched == [(False, False)] * 2 * forms
    assert_alike(run, tmp_path, 4)


@pytest.mark.parametrize(
    "links",
    [[{"name": "clip", "quantile": 0.5, "rate": 1.0}, "qsgd"], ["top_k"], ["random_k"], ["sign"]],
    ids=["clip-qsgd", "top_k", "random_k", "sign"],
)
def test_links(world: Any, tmp_path: Path, links: list[Any]) -> None:
    assert_alike(world(algorithm="fedavg", uplink=links, **KEPT), tmp_path)


@pytest.mark.parametrize("rule", ["median", "geometric_median", "centered_clipping"])
def test_robust_rules(world: Any, tmp_path: Path, rule: str) -> None:
    assert_alike(world(algorithm="fedavg", aggregation=rule, **KEPT), tmp_path)


@pytest.mark.parametrize("executor", ["stacked", "threads"])
@pytest.mark.parametrize("byte", [True, False])
def test_a_backdoor(world: Any, tmp_path: Path, executor: str, byte: bool) -> None:
    data = images()
    if byte:
        stored = (data.train_inputs * 50).clamp(0, 255).to(torch.uint8)
        data = replace(data, train_inputs=stored, test_inputs=stored, mean=(0.3,), std=(0.2,))
    engine, attack = {"executor": executor, "workers": 1}, {"name": "backdoor", "share": 0.5, "factor": 2.0}
    chosen, _, _ = world(algorithm="fedavg", model="softmax_regression", engine=engine, attack=attack, **KEPT)
    assert_alike((chosen, build_timeline(chosen, data), data), tmp_path, 2)


@pytest.fixture
def drawn_now(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The keys of batches that are drawn when the round has begun."""
    drawn, now = list[tuple[int, ...]](), training.plan_batches

    def noted(*args: Any) -> Any:
        drawn.append(args[6])
        return now(*args)

    monkeypatch.setattr(training, "plan_batches", noted)
    return drawn


def threads_left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fedtide")]


ORDERS = [{}, {"local": {"epochs": 1, "batch_size": 4, "order": "class_balanced"}}]
POISONED = {"attack": {"name": "backdoor", "share": 0.5, "factor": 2.0}, "model": "softmax_regression"}
"""Attackers, who change samples when the round has begun."""


@pytest.mark.parametrize("change", [*ORDERS, POISONED], ids=["shuffled", "class_balanced", "poisoned"])
def test_what_is_drawn_ahead_is_what_would_be_drawn(world: Any, change: Any, drawn_now: list[Any]) -> None:
    chosen, _, _ = world(algorithm="scaffold", **KEPT | {"participation": "all"} | change)
    samples = images()
    run, rounds = (chosen, build_timeline(chosen, samples), samples), 4
    state, records = outcome(run, CARD, rounds)
    assert drawn_now == ([(0,)] if "attack" not in change else [(t,) for t in range(rounds)])  # poisoned: never taken
    assert not threads_left()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ahead, "begin", lambda *_: None)
        other, others = outcome(run, CARD, rounds)
    assert drawn_now[-rounds:] == [(t,) for t in range(rounds)]
    rows = ([vars(record) for record in each] for each in (records, others))
    assert not [*differences("state", state, other, 0.0), *differences("records", *rows, 0.0)]


def test_nothing_is_drawn_ahead_on_a_cpu_nor_past_the_last_round(world: Any, drawn_now: list[Any]) -> None:
    run = world(algorithm="fedavg", **KEPT)
    outcome(run, CPU, 2)
    assert drawn_now == [(0,), (1,)]
    outcome(run, CARD, run[1].rounds)
    assert drawn_now[2:] == [(0,)]


def test_what_was_drawn_for_another_world_is_dropped(world: Any, drawn_now: list[Any]) -> None:
    """A session begins in a round, as after an alarm."""
    found, run = list[Any](), world(algorithm="scaffold", **KEPT)
    second = next(t for t in range(run[1].rounds) if run[1].with_session(t) is not run[1])
    for ahead in (True, False):
        module = FederatedModule(*run).to(CARD)
        module.build()
        federation, records = module.federation, list[Any]()
        with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
            if not ahead:
                patch.setattr(Ahead, "begin", lambda *_: None)
            for t in range(second + 2):
                if t == second:
                    module.parts.timeline = module.parts.timeline.with_session(t)
                records.append(vars(federation.run_round(module.state)))
        module.on_fit_end()
        found.append((module.state.w, records))
    assert drawn_now == [(0,), (second,), *((t,) for t in range(second + 2))]
    assert not [*differences("both", *found, 0.0)]


def test_draws_are_made_in_one_thread_and_raise_in_the_round_that_they_are_for(world: Any) -> None:
    class Tired(Script):
        def draw(self, present: Any, round_: int, seed: int) -> Any:
            drawn.append((round_, threading.current_thread().name))
            if round_ == 2:
                raise LookupError("the list of round 3 is missing")
            return super().draw(present, round_, seed)

    drawn, module = list[tuple[int, str]](), FederatedModule(*world(algorithm="fedavg", **KEPT)).to(CARD)
    module.build()
    module.parts.participation = Tired([range(9)] * module.parts.timeline.rounds)
    for _ in range(2):
        module.training_step(0, 0)
    with pytest.raises(LookupError, match="round 3 is missing"):
        module.training_step(0, 0)
    assert drawn == [(t, "fedtide-beside_0") for t in range(3)]
    assert module.state.round == 2
    assert not threads_left()
