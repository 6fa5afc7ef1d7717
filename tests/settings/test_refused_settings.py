"""What is refused, in one line, beside what `cli/test_bad_input.py` has."""

from pathlib import Path
from typing import Any

import pytest

from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params


@pytest.mark.parametrize(
    ("local", "line"),
    [
        ({"epochs": 2, "steps": 3}, "local.epochs and local.steps exclude each other; give one of epochs, steps, "),
        (
            {"capped_steps": 5, "batches_span_epochs": True},
            "local.batches_span_epochs = true: with local.capped_steps no client begins a second epoch; use steps or ",
        ),
        (
            {"optimizer": "adamw", "clip_scope": "total_with_decay"},
            "total_with_decay: the weight decay of local.optimizer = adamw",
        ),
        ({"optimizer": 3}, "local.optimizer: should be sgd, adam, adamw, adagrad, or a mapping with one of them"),
        ({"optimizer": {"name": "adam", "beta2": 1}}, "beta2 = 1: should be less than 1"),
    ],
)
def test_settings_of_training_that_do_not_go_together(local: dict[str, Any], line: str) -> None:
    refused({"local": local}, line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed: 1\nseed: 2\n", "duplicate key 'seed' line 2, column 1"),
        ("local:\n  lr: 1\n  lr: 2\n", "duplicate key 'lr' line 3, column 3"),
        ("# nothing but a comment\n", "is empty"),
        ("[" * 1000, "is nested too deeply"),
    ],
)
def test_files_that_are_no_mapping_of_settings(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "given.yaml").write_text(text)
    refused(tmp_path / "given.yaml", line)


@pytest.mark.parametrize("given", [3, None, ["params.yaml"]])
def test_other_things(given: Any) -> None:
    refused(given, "settings should be a file or a mapping, got")


def refused(given: Any, line: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        Params.read(given)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)
