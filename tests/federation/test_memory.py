"""Where the clients' memories live changes nothing but that: the same bits, uninterrupted or resumed."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.federation.assembly.hardware import MemoryStore
from fedtide.federation.state import restored_state
from support import assert_same, federation, run_rounds, settings, steady, vectors

LOCAL = {"epochs": 2, "batch_size": 3, "lr": 0.1, "momentum": 0.9, "momentum_scope": "client"}
COHORTS = [[0, 2], [1, 2, 3], [2], [0, 1, 3]]


def end_of(memory: str, stop: int | None = None, state: Any = None, **values: Any) -> Any:
    """The state of a small FedSSG run after ``stop`` rounds, from the start or from a saved state."""
    chosen = settings(**{"algorithm": "fedssg", "local": LOCAL, **values}, client_state={"storage": memory})
    fed = federation(chosen, steady((5, 2, 7, 4), 4), vectors(), cohorts=COHORTS)
    return run_rounds(fed, stop, None if state is None else restored_state(fed.parts, state))[0]


@pytest.mark.parametrize(
    ("first", "second"), [("disk", "disk"), ("disk", "device"), ("device", "disk"), ("host", "host")]
)
def test_a_saved_state_resumes_in_any_place_to_the_same_bits(first: str, second: str, tmp_path: Path) -> None:
    torch.save(end_of(first, 2).tensors(), tmp_path / "state")
    saved = torch.load(tmp_path / "state", weights_only=True)
    assert_same(end_of("device"), end_of(second, state=saved))


@pytest.mark.parametrize("memory", ["device", "disk"])
@pytest.mark.parametrize("optimizer", [{"name": "adam", "amsgrad": True}, "adagrad"], ids=str)
def test_moments_and_step_counts_resume_to_the_bit(optimizer: Any, memory: str, tmp_path: Path) -> None:
    values = {"algorithm": "fedavg", "local": {**LOCAL, "momentum": 0.0, "optimizer": optimizer}}
    torch.save(end_of(memory, 2, **values).tensors(), tmp_path / "state")
    saved = torch.load(tmp_path / "state", weights_only=True)
    assert_same(end_of(memory, **values), end_of(memory, state=saved, **values))


def test_memories_on_disk_lie_in_a_file_without_a_name(tmp_path: Path) -> None:
    rows = MemoryStore("disk", torch.device("cpu"), tmp_path).rows(3, 4, torch.float64)
    rows[1] = 2.0
    assert rows.shape == (3, 4)
    assert rows.sum() == 8
    assert f"{tmp_path}/" in Path("/proc/self/maps").read_text()  # mapped, not allocated
    assert not list(tmp_path.iterdir())


def test_memories_on_disk_take_space_for_the_rows_that_were_written(tmp_path: Path) -> None:
    """Four terabytes of memories, of which three rows are used."""
    before = shutil.disk_usage(tmp_path).total
    rows = MemoryStore("disk", torch.device("cpu"), tmp_path).rows(10**6, 10**6, torch.float32)
    assert rows.numel() * 4 > before
    some = torch.tensor([0, 517, 999_999])
    rows[some] = torch.arange(3.0).unsqueeze(1)
    assert rows[some].sum(1).tolist() == [0, 1e6, 2e6]
    assert not rows[1000].any()


def test_a_disk_that_is_too_small_is_refused(tmp_path: Path) -> None:
    wanted = re.escape(f"memories needs 1000000000000.0 GB on disk ({tmp_path}), but ")
    with pytest.raises(SettingsError, match=rf"^{wanted}[\d.]+ GB are free$"):
        MemoryStore("disk", torch.device("cpu"), tmp_path).require(10**21, "memories")
