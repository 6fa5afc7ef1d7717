"""A round can be printed at every moment, by debuggers and by pytest, although not all is known of it yet."""

from typing import Any

import pytest
import torch

from fedtide.federation.rounds import round as rounds
from fedtide.federation.types import RoundContext
from support import federation, run_rounds, settings, steady, vectors


def test_a_round_can_be_printed_before_training_and_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []

    def noted(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            printed.extend(repr(item) for item in (*arguments, result) if isinstance(item, RoundContext))
            return result

        return call

    for name in ("prepare", "train_clients", "aggregate", "train_round"):
        monkeypatch.setattr(rounds, name, noted(getattr(rounds, name)))
    with torch.no_grad():
        run_rounds(federation(settings(), steady((4, 5), 1), vectors()))
    assert len(printed) >= 3
    assert all(text.startswith("RoundContext(t=0, purpose='batches', ids=[0, 1], has=[") for text in printed)
    assert "'cohort'" not in printed[0]
    assert "'cohort'" in printed[1]
