"""What the erased clients compute for their own erasure is counted as it was trained, in every unit of local work."""

from typing import Any

import pytest
from erased_runs import BARE, SIZES, made, request, seen, world


@pytest.mark.parametrize(
    ("local", "steps"),
    [
        ({"epochs": 2, "batch_size": 3}, 2 * 2),  # four samples
        ({"steps": 5, "batch_size": 3}, 5),
        ({"mean_epochs": 3, "batch_size": 2}, 3 * 3),  # the others have 14 / 3 samples on average
        ({"epochs": 3, "batch_size": 3, "batches_span_epochs": True}, 3 * SIZES[1] // 3),
        ({"mean_epochs": 3, "batch_size": 4, "batches_span_epochs": True}, 14 // 4),
    ],
)
def test_a_negated_update_costs_its_local_steps(local: dict[str, Any], steps: int) -> None:
    """Gradients on batches that client 1 computes for its erasure with PUF."""
    rows = seen(made([request("puf", at=2)], world(4), local={"lr": 0.2, **local}, evaluation=BARE)).rows
    assert [row["erase_gradients_erased"] for row in rows] == [0, 0, steps, steps]
