"""A round can be printed at every moment, by debuggers and by pytest, although not all is known of it yet."""

import pytest

from fedtide.federation.rounds import round as rounds
from support import federation, run_rounds, settings, steady, vectors


def test_a_round_can_be_printed_before_training_and_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, prepare, aggregate = list[str](), rounds.prepare, rounds.aggregate
    monkeypatch.setattr(rounds, "prepare", lambda *args: printed.append(repr(r := prepare(*args))) or r)
    monkeypatch.setattr(rounds, "aggregate", lambda r: printed.append(repr(r)) or aggregate(r))
    run_rounds(federation(settings(), steady((4, 5), 1), vectors()))
    assert len(printed) == 2
    assert all(text.startswith("RoundContext(t=0, purpose='batches', ids=[0, 1], has=[") for text in printed)
    assert "'cohort'" not in printed[0]
    assert "'cohort'" in printed[1]
