"""Both ways to run a traced graph give the same bits, also where one takes over from the other or TorchScript is missing."""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from fedtide.federation.types import RunState
from fedtide.training.programs import interpreter, traces
from fedtide.training.programs.interpreter import as_function
from fedtide.training.programs.traces import Traced
from support import assert_same, federation, light, run_rounds, settings, smallest, steady, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

CPU = torch.device("cpu")


def removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.jit, "script")


def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("torch.jit.script was removed")

    monkeypatch.setattr(torch.jit, "script", script)


def without_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.jit, "optimized_execution")


def switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment variable PYTORCH_JIT=0 does."""
    monkeypatch.setattr(torch.jit._state._enabled, "enabled", False)


ABSENT = [removed, refusing, without_switch, switched_off]


def graph(function: Callable[..., Any], *arguments: Tensor) -> GraphModule:
    return make_fx(function)(*arguments)


@pytest.fixture(autouse=True)
def _torchscript_from_the_second_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_OFTEN", 1)
    monkeypatch.setattr(traces, "_programs", OrderedDict())


def without_torchscript(monkeypatch: pytest.MonkeyPatch, absent: Callable[[pytest.MonkeyPatch], None]) -> None:
    absent(monkeypatch)
    monkeypatch.setattr(traces, "_programs", OrderedDict())
    assert interpreter._scripted(graph(torch.sin, torch.ones(2))) is None


def trained(executor: str, algorithm: str, model: str, dtype: torch.dtype) -> RunState:
    """State after two rounds, the last of which is evaluated."""
    data = smallest(model)[0] if model in ("lenet", "embedding_bag") else vectors()
    chosen = settings(
        algorithm=light(algorithm),
        model=model,
        local={"epochs": 2, "batch_size": 4, "lr": 0.1},
        engine={"executor": executor, "workers": 2},
        evaluation={"every": 2},
    )
    return run_rounds(federation(chosen, steady((4, 8, 4), 2), data, dtype=dtype))[0]


def test_this_torch_has_torchscript() -> None:
    assert interpreter._scripted(graph(torch.sin, torch.ones(2))) is not None


@pytest.mark.parametrize(
    ("executor", "algorithm", "model", "dtype"),
    [
        ("threads", "scaffold", "softmax_regression", torch.float32),
        ("threads", "contrast", "softmax_regression", torch.float32),
        ("stacked", "sharp", "softmax_regression", torch.float64),
        pytest.param("threads", "sharp", "softmax_regression", torch.float32, marks=pytest.mark.slow),
        pytest.param("stacked", "scaffold", "softmax_regression", torch.float64, marks=pytest.mark.slow),
        pytest.param("stacked", "contrast", "softmax_regression", torch.float64, marks=pytest.mark.slow),
        ("threads", "fedavg", "lenet", torch.float32),
        ("stacked", "fedavg", "embedding_bag", torch.float32),
        ("stacked", "fedavg", "noisy", torch.float32),  # dropout
        ("auto", "fedavg", "normed", torch.float32),
        ("threads", "creff", "mlp", torch.float32),  # own traces
    ],
)
def test_a_run_without_torchscript_has_the_same_bits(
    executor: str, algorithm: str, model: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = trained(executor, algorithm, model, dtype)
    without_torchscript(monkeypatch, removed)
    assert_same(usual, trained(executor, algorithm, model, dtype))


def descent(theta: Tensor, x: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    theta = theta.clone()
    for part in x.split(3):
        theta.addmm_(torch.softmax(part @ theta.T, 1).T, part, alpha=-rate)
    return theta, theta.norm()


@pytest.mark.parametrize("absent", ABSENT)
def test_a_traced_function_without_torchscript_has_the_bits_of_the_function(
    absent: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_torchscript(monkeypatch, absent)
    theta, x = torch.randn(10, 40), torch.randn(20, 40)
    before = theta.clone()
    found, expected = Traced(partial(descent, rate=0.1))(theta, x), descent(theta, x, 0.1)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(theta, before)


def through_numpy(value: Tensor) -> Tensor:
    return torch.from_numpy(value.numpy() + 1)


def test_a_graph_that_torchscript_does_not_understand_runs_all_the_same() -> None:
    lines = Graph()
    lines.output(lines.call_function(through_numpy, (lines.placeholder("value"),)))
    assert torch.equal(as_function(GraphModule({}, lines), CPU)(torch.ones(2)), torch.full((2,), 2.0))


def test_a_graph_that_is_called_often_is_run_by_torchscript(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its constants, and not while something is traced, of which the call may be a part."""
    monkeypatch.setattr(interpreter, "_OFTEN", 3)
    scripted, held = interpreter._scripted, torch.arange(3.0)
    handed_over = list[int]()

    def noted(of: GraphModule) -> Any:
        handed_over.append(len(found))
        return scripted(of)

    monkeypatch.setattr(interpreter, "_scripted", noted)
    traced, x = graph(lambda x: torch.softmax(x @ x.T, 0) * held, torch.ones(3, 3)), torch.randn(3, 3)
    function, found = as_function(traced, CPU), list[Tensor]()
    with interpreter.TRACING:
        found += [function(x) for _ in range(5)]
    found += [function(x) for _ in range(2)]
    assert handed_over == [5]
    assert all(torch.equal(value, found[0]) for value in found)
    assert torch.equal(found[0], torch.softmax(x @ x.T, 0) * held)
