"""Rounds of a small run in this process, and what has to be equal: stopped and resumed, or by another engine."""

import io
from typing import Any

import torch
from torch import Tensor

from fedtide.federation.assembly.hardware import Hardware
from fedtide.federation.assembly.parts import assembled
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.state import initial_state
from fedtide.federation.types import RunState
from fedtide.settings.run import RunSettings
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline

Run = tuple[RunSettings, Timeline, Dataset]


class ContractBroken(AssertionError):
    """A plug-in does not meet the contract of all plug-ins; one line."""


def begin(run: Run) -> Federation:
    """A federation on the CPU, in double precision."""
    return Federation(assembled(*run, Hardware(dtype=torch.float64)))


def run_rounds(
    fed: Federation, rounds: int | None = None, state: RunState | None = None
) -> tuple[RunState, list[RoundRecord]]:
    """Run some rounds (all by default), as the Lightning module does; the threads are stopped."""
    state = state or initial_state(fed.parts)
    with torch.no_grad():
        records = [
            fed.run_round(state) for _ in range(fed.parts.timeline.rounds - state.round if rounds is None else rounds)
        ]
    fed.parts.workers.close()
    return state, records


def with_engine(run: Run, **engine: Any) -> Run:
    """The run with another engine; its clients are trained by ``threads`` unless that is set."""
    chosen, world, data = run
    update = chosen.engine.model_copy(update={"executor": "threads", **engine})
    return chosen.model_copy(update={"engine": update}), world, data


def tensors(state: RunState) -> dict[str, Tensor]:
    """Everything a run carries on."""
    named = {"w": state.w, "b": state.b, "seen": state.seen, "counts": state.counts}
    return named | state.server | state.memory | state.extra


def rows(records: list[RoundRecord]) -> list[Any]:
    """Records of rounds, wall-clock apart."""
    return [
        ({k: v for k, v in record.row.items() if k != "seconds"}, record.per_class, record.session)
        for record in records
    ]


def saved_and_restored(state: RunState) -> RunState:
    """A state that went through a file; loading refuses anything but tensors, numbers and plain containers."""
    stream = io.BytesIO()
    torch.save(state.tensors(), stream)
    stream.seek(0)
    return RunState.restore(torch.load(stream, weights_only=True), torch.device("cpu"))


def assert_same(first: RunState, second: RunState) -> None:
    """Equal to the bit."""
    a, b = tensors(first), tensors(second)
    _assert(a.keys() == b.keys(), f"states hold {sorted(a)} and {sorted(b)}")
    for name, value in a.items():
        _assert(torch.equal(value, b[name]), f"{name} differs")


def assert_close(first: RunState, second: RunState, relative: float) -> None:
    """Equal up to rounding."""
    a, b = tensors(first), tensors(second)
    for name, value in a.items():
        finite = value.isfinite()
        _assert(torch.equal(finite, b[name].isfinite()), f"{name} is finite in other places")
        if value.is_floating_point() and finite.any():
            gap, far = float((value[finite] - b[name][finite]).abs().max()), float(value[finite].abs().max())
            _assert(gap <= relative * max(1.0, far), f"{name} differs by {gap:g}")


def assert_repeats(whole: tuple[RunState, list[RoundRecord]], other: tuple[RunState, list[RoundRecord]]) -> None:
    """The same states to the bit, and the same records."""
    assert_same(whole[0], other[0])
    for number, (a, b) in enumerate(zip(rows(whole[1]), rows(other[1]), strict=True), 1):
        _assert(a == b, f"the record of round {number} differs")
    first, second = ({**state.totals, "seconds": 0} for state, _ in (whole, other))
    _assert(first == second, f"totals are {first} and {second}")
    kept, found = whole[0].initializer, other[0].initializer
    _assert(kept.keys() == found.keys(), f"the initializer keeps {sorted(kept)} and {sorted(found)}")
    for name, value in kept.items():
        _assert(torch.equal(value, found[name]), f"{name} of the initializer differs")


def assert_resumes(run: Run, whole: tuple[RunState, list[RoundRecord]] | None = None) -> RunState:
    """The same bits as those of an uninterrupted run, or as the ``whole``, although it stops; so also if executed twice.

    It stops between sessions or inside one, and before the last round.
    """
    whole = whole or run_rounds(begin(run))
    found: list[RoundRecord] = []
    rest = None
    for stop in sorted({run[1].rounds // 2, run[1].rounds - 1, run[1].rounds}):
        begun = 0 if rest is None else rest.round
        rest, more = run_rounds(begin(run), stop - begun, rest and saved_and_restored(rest))
        found += more
    assert rest is not None
    assert_repeats(whole, (rest, found))
    return whole[0]


def assert_same_on_any_engine(run: Run, whole: tuple[RunState, list[RoundRecord]]) -> None:
    """The numbers of the ``whole`` run by ``threads``.

    The same bits with several workers, stopped and resumed; the same up to rounding when clients are trained together, unless
    the network has statistics, which that refuses.
    """
    assert_resumes(with_engine(run, workers=3), whole)
    if not len(whole[0].b):
        assert_close(whole[0], run_rounds(begin(with_engine(run, executor="stacked", chunk=2)))[0], 1e-9)


def _assert(holds: bool, problem: str) -> None:
    if not holds:
        raise ContractBroken(problem)
