"""What is recorded at the start of a session."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.federation.saving import checkpoint
from fedtide.world.dataset import Dataset
from small_runs import execute
from support import deal, federation, run_rounds, settings, steady, timeline, vectors, watch

GROUPS = ({0: 0, 1: 1}, {2: 2, 3: 3})
SESSIONS = {"name": "sessions", "num_devices": 2, "num_sessions": 4, "rounds_per_session": 2, "label_overlap": 0.2}


def session_events(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [facts for facts in map(json.loads, lines) if facts["event"] == "session"]


def world(sessions: int) -> Any:
    present = [GROUPS[session % 2] for session in range(sessions) for _ in range(2)]
    session_of_round = [session for session in range(sessions) for _ in range(2)]
    return timeline(deal((4, 3, 5, 2)), present, session_of_round=session_of_round, notes={"pilot_sessions": 1})


@pytest.mark.parametrize("initializer", ["previous", "average", "restart"])
def test_losses_and_accuracy_are_those_of_the_four_models(initializer: str) -> None:
    data = vectors()
    fed = federation(settings(initializer=initializer, evaluation={"batch_size": 3}), world(4), data)
    seen = watch(fed)
    _, records = run_rounds(fed)
    ends = [seen[t][1] for t in (1, 3, 5, 7)]
    for session in range(1, 4):
        t = 2 * session
        shards = [torch.from_numpy(fed.parts.timeline.shards[k]) for k in GROUPS[session % 2]]
        held = torch.cat(shards)

        def loss(w: torch.Tensor, held: torch.Tensor = held) -> float:
            logits = data.train_inputs[held] @ w[:15].view(3, 5).T + w[15:]
            return float(torch.nn.functional.cross_entropy(logits, data.train_labels[held]))

        opening: Any = records[t].session
        start, stored = seen[t][0].w, ends[1:session]
        expected = {"start": loss(start), "previous": loss(ends[session - 1]), "first": loss(fed.parts.w0)}
        expected["average"] = loss(torch.stack(stored).mean(0)) if stored else None  # type: ignore[assignment]
        assert opening["losses"] == pytest.approx(expected, abs=1e-12)
        logits = data.test_inputs @ start[:15].view(3, 5).T + start[15:]
        assert opening["test_accuracy"] == float((logits.argmax(1) == data.test_labels).double().mean())
        assert (opening["session"], opening["initializer"]) == (session + 1, initializer)
        assert opening["returning"] is (session == 3)  # the second group, whose first session was not a pilot
    assert [record.session is None for record in records] == [True, True, *[False, True] * 3]


def test_losses_can_be_left_out_and_change_nothing() -> None:
    runs = [
        run_rounds(federation(settings(evaluation={"session_start_losses": on}), world(3), vectors()))
        for on in (True, False)
    ]
    assert torch.equal(runs[0][0].w, runs[1][0].w)
    opening: Any = runs[1][1][2].session
    assert "losses" not in opening
    assert 0 <= opening["test_accuracy"] <= 1


@pytest.mark.slow
def test_a_resumed_run_has_every_session_once(small: Any, run_once: Any, stop_after: Any, tmp_path: Path) -> None:
    """After a stop between saved states a session begins twice; its record is there once, and the same."""
    chosen = small(
        scenario=SESSIONS, participation="all", initializer={"name": "dynamic", "gradient_steps": 1}, algorithm="fedavg"
    )
    whole = tmp_path / "whole"
    execute(chosen, tmp_path, name="whole")
    run_once(chosen, callbacks=[stop_after(5)])
    newest, *_ = checkpoint.generations(tmp_path / "x" / "state")
    newest.unlink()  # the state after round 4 is left, the record of session 3 (round 5) is not
    with (tmp_path / "x" / "events.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"event": "sess')
    run_once(chosen)
    events = session_events(tmp_path / "x")
    assert events == session_events(whole)
    assert [(facts["round"], facts["session"]) for facts in events] == [(3, 2), (5, 3), (7, 4)]
    assert [facts["initializer"] for facts in events] == ["dynamic"] * 3
    assert list(events[-1]["weights"]) == list(events[-1]["distances"]) == ["2", "3"]
    assert sum(events[-1]["weights"].values()) == pytest.approx(1.0, abs=1e-12)


def test_samples_per_class_are_counted_once_for_each_shard_of_the_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other samples, whose labels may change, in every round."""
    fed, count, counted = federation(settings(), steady((8, 4, 12), 2), vectors(24)), Dataset.label_counts, list[int]()
    parts, shards = fed.parts, fed.parts.timeline.shards

    def noted(data: Dataset, some: Sequence[Ints]) -> Tensor:
        counted.append(len(some))
        return count(data, some)

    monkeypatch.setattr(Dataset, "label_counts", noted)
    for numbers, new in (([2, 0], 2), ([0, 2, 0], 0), ([1, 2], 1)):
        counted.clear()
        found = parts.label_counts(numbers, [shards[number] for number in numbers])
        assert sum(counted) == new
        assert torch.equal(found, count(parts.data, [shards[number] for number in numbers]))
        found.zero_()  # what a caller does with them is its own affair
    for _ in range(2):
        parts.data.write(0, parts.data.train_inputs[:1], 2 - parts.data.train_labels[:1])
        other = [shards[0].copy(), shards[1]]
        assert torch.equal(parts.label_counts([0, 1], other), count(parts.data, other))
