"""Saved state: what is written, what is read back, and what happens when files are damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.federation.saving import checkpoint

Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "empty": lambda path: path.write_bytes(b""),
    "flipped": lambda path: path.write_bytes(path.read_bytes()[:-9] + b"x" + path.read_bytes()[-8:]),
}


def saved(number: int, owner: str = "run", **records: Any) -> checkpoint.Saved:
    """Something to save."""
    values = {"w": torch.full((3,), float(number)), "memory": {}, "totals": {"seconds": 0.5}}
    return checkpoint.Saved(owner, number, records, values)


def test_two_generations_are_kept_and_nothing_else(tmp_path: Path) -> None:
    for number in (1, 2, 9, 10):
        checkpoint.Generations(tmp_path).save(saved(number))
    assert [path.name for path in checkpoint.generations(tmp_path)] == ["state-00000010.pt", "state-00000009.pt"]
    assert sorted(tmp_path.iterdir()) == sorted(checkpoint.generations(tmp_path))


def test_nothing_saved_is_no_state(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path, "run") == (None, {})
    assert checkpoint.load(tmp_path / "absent", "run") == (None, {})


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_falls_back_to_the_one_before_and_a_run_never_starts_afresh_in_silence(
    tmp_path: Path, damage: str
) -> None:
    for number in (1, 2):
        checkpoint.Generations(tmp_path).save(saved(number))
    newest, older = checkpoint.generations(tmp_path)
    DAMAGES[damage](newest)
    loaded, skipped = checkpoint.load(tmp_path, "run")
    assert loaded is not None
    assert loaded.round == 1
    assert skipped == {newest: "state-00000002.pt is damaged"}
    DAMAGES[damage](older)
    with pytest.raises(
        SettingsError, match=r"\(state-00000002\.pt is damaged; state-00000001\.pt is damaged\)"
    ) as caught:
        checkpoint.load(tmp_path, "run")
    assert "\n" not in str(caught.value)


def test_a_state_of_another_run_or_under_another_name_is_refused(tmp_path: Path) -> None:
    """In a line that names the file, the run and the round."""
    checkpoint.Generations(tmp_path).save(saved(1, owner="other"))
    with pytest.raises(SettingsError, match=r"state-00000001\.pt: this checkpoint belongs to other after round 1, but"):
        checkpoint.load(tmp_path, "run")
    checkpoint.Generations(tmp_path).save(saved(1))
    (tmp_path / "state-00000001.pt").rename(tmp_path / "state-00000007.pt")
    with pytest.raises(SettingsError, match=r"state-00000007\.pt: this checkpoint belongs to run after round 1, but"):
        checkpoint.load(tmp_path, "run")


def test_a_file_that_could_run_code_is_not_loaded(tmp_path: Path) -> None:
    """States are tensors and numbers: anything else is refused even with a valid hash, in one line."""
    checkpoint.Generations(tmp_path).save(checkpoint.Saved("run", 1, {}, {"w": Path("x")}))
    with pytest.raises(SettingsError, match=r"state-00000001\.pt: not a fedtide checkpoint; delete it") as caught:
        checkpoint.load(tmp_path, "run")
    assert "\n" not in str(caught.value)
