"""Losses of the models that participants receive, recorded before they train."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from support import deal, federation, run_rounds, settings, timeline, vectors, watch

SIZES = (7, 1, 12, 4)
COHORTS = [[0, 3], [2], [0, 1, 2, 3]]


def finished(algorithm: str, **evaluation: Any) -> Any:
    """Four clients, ids 1, 2, 4 and 6 of 8, over three rounds: federation, state and records."""
    present = {client: shard for shard, client in enumerate((1, 2, 4, 6))}
    world = timeline(deal(SIZES), [present] * 3, clients=8)
    chosen = settings(algorithm=algorithm, local={"lr": 0.3}, evaluation={"batch_size": 5, **evaluation})
    fed = federation(chosen, world, vectors(), cohorts=[[(1, 2, 4, 6)[row] for row in rows] for rows in COHORTS])
    seen = watch(fed)
    _, records = run_rounds(fed)
    return fed, [r.w for r, _ in seen], records


def test_the_losses_are_those_of_the_model_sent_on_own_and_on_all_samples() -> None:
    fed, sent, records = finished("fedssg", consistency=True)
    shards = deal(SIZES)
    network = fed.parts.task.network.double()
    for w, record, rows in zip(sent, records, COHORTS, strict=True):
        state = fed.parts.layout.named(w, fed.parts.b0)
        logits = torch.func.functional_call(network, state, (fed.parts.data.train_inputs,))
        losses = functional.cross_entropy(logits, fed.parts.data.train_labels, reduction="none").detach().numpy()
        assert record.clients["client"] == [(1, 2, 4, 6)[row] for row in rows]
        assert record.clients["local_loss"] == pytest.approx([losses[shards[row]].mean() for row in rows], abs=1e-12)
        assert record.clients["global_loss"] == pytest.approx([losses[: sum(SIZES)].mean()] * len(rows), abs=1e-12)
        assert len(record.clients["gate"]) == len(rows)


def test_training_is_not_touched_and_nothing_is_recorded_unasked() -> None:
    _, watched, records = finished("fedavg", consistency=True)
    _, alone, unasked = finished("fedavg")
    assert all(torch.equal(first, second) for first, second in zip(watched, alone, strict=True))
    assert list(records[0].clients) == ["client", "local_loss", "global_loss"]
    assert unasked[0].clients == {}
