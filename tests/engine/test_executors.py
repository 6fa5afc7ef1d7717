"""Workers, chunks and executors: other ways to compute the same rounds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from support import closest, federation, images, play, settings, steady, tokens, vectors
from torch import Tensor

from fedtide import plugins
from fedtide.data.dataset import Dataset
from fedtide.engine.executor import choose
from fedtide.errors import SettingsError
from fedtide.federation.state import RunState

pytestmark = pytest.mark.usefixtures("drop_in")

SIZES = (5, 1, 8, 3, 4)
LOCAL = {
    "amount": 2,
    "batch_size": 3,
    "lr": 0.2,
    "momentum": 0.5,
    "momentum_scope": "client",
    "weight_decay": 0.01,
    "clip": 0.5,
}
ALGORITHMS = ("fedprox", "scaffold", "columns", "elementwise", "sharp", "contrast")
HEAVY = ("resnet18", "resnet34", "preact_resnet18")


def final(
    algorithm: str,
    data: Dataset | None = None,
    *,
    rounds: int = 3,
    sizes: tuple[int, ...] = SIZES,
    dtype: torch.dtype = torch.float64,
    model: Any = "logistic",
    local: dict[str, Any] = LOCAL,
    **engine: Any,
) -> RunState:
    """State after some rounds."""
    chosen = settings(
        algorithm=algorithm, model=model, local=local, engine={"workers": 1, **engine}, evaluation={"every": rounds}
    )
    return play(federation(chosen, steady(sizes, rounds), data or vectors(), dtype=dtype))[0]


def tensors(state: RunState) -> dict[str, Tensor]:
    """Everything a run carries on."""
    named = {"w": state.w, "b": state.b, "seen": state.seen, "counts": state.counts}
    return named | state.server | state.memory | state.extra


def assert_same(first: RunState, second: RunState) -> None:
    """Equal to the bit."""
    a, b = tensors(first), tensors(second)
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert torch.equal(value, b[name]), name


def assert_close(first: RunState, second: RunState, relative: float) -> None:
    """Equal up to rounding."""
    a, b = tensors(first), tensors(second)
    for name, value in a.items():
        if value.is_floating_point() and value.numel():
            assert closest(value, b[name]) <= relative * max(1.0, float(value.abs().max())), name


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("executor", ["threads", "stacked"])
def test_the_number_of_workers_changes_no_bit(algorithm: str, executor: str) -> None:
    one, two, four = (final(algorithm, executor=executor, workers=workers) for workers in (1, 2, 4))
    assert_same(one, two)
    assert_same(one, four)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_size_of_chunks_changes_nothing(algorithm: str) -> None:
    everything, *others = (final(algorithm, executor="stacked", chunk=chunk) for chunk in (0, 1, 2, 5))
    for other in others:
        assert_close(everything, other, 1e-13)


@pytest.mark.parametrize(("dtype", "relative"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_executors_agree(algorithm: str, dtype: torch.dtype, relative: float) -> None:
    threads, stacked = (final(algorithm, rounds=5, dtype=dtype, executor=name) for name in ("threads", "stacked"))
    assert_close(threads, stacked, relative)


def fitting(model: str) -> Dataset:
    """The smallest data a model takes."""
    options = (images(side=8), images(side=16), images(side=32), images(side=32, channels=3), tokens())
    for data in options:
        try:
            plugin = plugins.load("models", model)
            plugin(plugin.Settings()).build(data.input_shape, data.num_classes, data.vocabulary)  # type: ignore[attr-defined]
            return data
        except SettingsError:
            continue
    raise AssertionError(f"no data here suits {model}")


@pytest.mark.parametrize("model", [name for name in plugins.names("models") if name not in HEAVY])
@pytest.mark.parametrize("algorithm", ["fedavg", "sharp", "contrast"])
def test_executors_agree_on_every_model(model: str, algorithm: str) -> None:
    floating = any(value.is_floating_point() for value in network(model).buffers())
    if floating:
        with pytest.raises(SettingsError, match=r"engine\.executor = 'stacked'"):
            final(algorithm, fitting(model), model=model, executor="stacked")
        return
    local = {"amount": 2, "unit": "steps", "batch_size": 2, "lr": 0.05}
    threads, stacked = (
        final(algorithm, fitting(model), sizes=(3, 1), rounds=2, model=model, local=local, executor=name)
        for name in ("threads", "stacked")
    )
    assert_close(threads, stacked, 1e-10)


def network(model: str) -> Any:
    """A model's network for data that suits it."""
    data, plugin = fitting(model), plugins.load("models", model)
    return plugin(plugin.Settings()).build(data.input_shape, data.num_classes, data.vocabulary)  # type: ignore[attr-defined]
