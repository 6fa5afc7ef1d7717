"""Both ways to run a traced graph give the same bits, also where one takes over from the other or TorchScript is missing."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from fedtide.federation.types import RunState
from fedtide.training.programs import interpreter, traces
from fedtide.training.programs.interpreter import as_function
from support import assert_same, federation, light, run_rounds, settings, steady, vectors

pytestmark = pytest.mark.usefixtures("drop_in")

CPU = torch.device("cpu")


def removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.jit, "script")


def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("torch.jit.script was removed")

    monkeypatch.setattr(torch.jit, "script", script)


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
    chosen = settings(
        algorithm=light(algorithm),
        model=model,
        local={"epochs": 2, "batch_size": 4, "lr": 0.1},
        engine={"executor": executor, "workers": 2},
        evaluation={"every": 2},
    )
    return run_rounds(federation(chosen, steady((4, 8, 4), 2), vectors(), dtype=dtype))[0]


def test_this_torch_has_torchscript() -> None:
    assert interpreter._scripted(graph(torch.sin, torch.ones(2))) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "algorithm", "model", "dtype", "absent"),
    [
        ("threads", "scaffold", "softmax_regression", torch.float32, removed),
        ("threads", "contrast", "softmax_regression", torch.float32, refusing),
        ("stacked", "sharp", "softmax_regression", torch.float64, removed),
        ("stacked", "fedavg", "noisy", torch.float32, removed),  # dropout
        ("auto", "fedavg", "normed", torch.float32, removed),
        ("threads", "creff", "mlp", torch.float32, removed),  # own traces
    ],
)
def test_a_run_without_torchscript_has_the_same_bits(
    executor: str, algorithm: str, model: str, dtype: torch.dtype, absent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = trained(executor, algorithm, model, dtype)
    without_torchscript(monkeypatch, absent)
    assert_same(usual, trained(executor, algorithm, model, dtype))


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
