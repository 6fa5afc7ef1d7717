"""Traced programs are shared when all that a trace can see is equal, and only then."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from fedtide.federation.state import initial_state
from fedtide.training.programs import traces
from fedtide.training.programs.traces import Traced
from support import assert_same, federation, run_rounds, settings, steady, vectors


class Scaled(nn.Module):
    """A layer with a number that a trace bakes in."""

    def __init__(self, factor: Any, width: int = 3) -> None:
        super().__init__()
        self.linear, self.factor = nn.Linear(4, width), factor


def test_values_of_parameters_do_not_count() -> None:
    assert traces.structure(Scaled(2.0)) == traces.structure(Scaled(2.0))


@pytest.mark.parametrize(
    "other",
    [Scaled(3.0), Scaled(2.0, width=5), Scaled(2.0).eval(), Scaled(2.0).double(), Scaled(torch.tensor(2.0))],
    ids=["number", "shape", "mode", "type", "tensor"],
)
def test_everything_else_counts(other: nn.Module) -> None:
    assert traces.structure(Scaled(2.0)) != traces.structure(other)


def test_a_tensor_that_is_no_parameter_counts_by_value() -> None:
    first, second = (Scaled(torch.tensor(value)) for value in (1.0, 2.0))
    assert traces.structure(first) != traces.structure(second)


def test_what_holds_a_closure_is_not_shared() -> None:
    def closure(limit: float) -> Callable[[float], float]:
        return lambda value: min(value, limit)

    assert traces.structure(Scaled(closure(1.0))) is None
    made: list[int] = []
    for _ in range(2):
        traces.shared(None, lambda: made.append(1))
    assert len(made) == 2


def test_threads_that_ask_for_one_program_share_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_programs", type(traces._programs)())
    asked, made = threading.Barrier(3, timeout=30), list[int]()

    def make() -> int:
        asked.wait()  # until the others are on their way
        made.append(1)
        return 7

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(traces.shared, "key", make)
        others = [pool.submit(lambda: (asked.wait(), traces.shared("key", make))[1]) for _ in range(2)]
        assert [job.result() for job in (first, *others)] == [7, 7, 7]
    assert made == [1]


def test_a_trace_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_programs", type(traces._programs)())
    with pytest.raises(ZeroDivisionError):
        traces.shared("key", lambda: 1 // 0)
    assert traces.shared("key", lambda: 5) == 5


def test_the_oldest_program_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_programs", type(traces._programs)())
    monkeypatch.setattr(traces, "_MOST", 2)
    for key in ("a", "b", "a", "c"):
        traces.shared(key, lambda key=key: key)  # type: ignore[misc]
    assert list(traces._programs) == ["a", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "moon"])
def test_a_run_with_shared_programs_equals_one_with_its_own(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, world, data = settings(algorithm=algorithm), steady((6, 9), 3), vectors()
    states = []
    for _ in range(2):  # the second finds the programs of the first
        fed = federation(chosen, world, data)
        states.append(run_rounds(fed, state=initial_state(fed.parts))[0])
    monkeypatch.setattr(traces, "_programs", type(traces._programs)())
    own, _ = run_rounds(federation(chosen, world, data))
    for state in states:
        assert_same(state, own)


@pytest.mark.slow
def test_modules_are_described_before_any_thread_can_trace_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread traces, a module holds the traced tensors: another one must not look at it."""
    described: list[bool] = []

    def watched(*parts: Any) -> bytes | None:
        described.append(any(isinstance(part, nn.Module) for part in parts))
        return traces.structure(*parts)

    monkeypatch.setattr("fedtide.training.engine.gradient.structure", watched)
    monkeypatch.setattr(traces, "_programs", type(traces._programs)())
    fed = federation(settings(algorithm="moon", engine={"executor": "stacked"}), steady((6, 9), 1), vectors())
    assert described.count(True) == 1
    described.clear()
    run_rounds(fed)
    assert True not in described


def descent(theta: torch.Tensor, x: torch.Tensor, rate: float) -> torch.Tensor:
    theta = theta.clone()
    for part in x.split(3):
        theta.addmm_(torch.softmax(part @ theta.T, 1).T, part, alpha=-rate)
    return theta


def test_a_traced_function_has_the_bits_of_the_function_and_leaves_its_arguments_alone() -> None:
    traced = Traced(partial(descent, rate=0.1))
    for count in (7, 20, 7):
        theta, x = torch.randn(10, 40), torch.randn(count, 40)
        before, expected = theta.clone(), descent(theta, x, 0.1)
        assert torch.equal(traced(theta, x), expected)
        assert torch.equal(theta, before)
