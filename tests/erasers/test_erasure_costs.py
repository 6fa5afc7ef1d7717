"""What the erased clients compute for their own erasure is counted as it was trained, in every unit of local work."""

from typing import Any

import pytest
from erased_runs import BARE, ERASERS, SIZES, made, request, seen, world


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


@pytest.mark.parametrize("name", sorted(set(ERASERS) - {"continue_training"}))
def test_a_request_is_part_of_what_the_run_costs(name: str) -> None:
    """Its bytes, seconds and joules, beside those of the run that goes on without the client."""
    costs = {"wireless": True, "capacitance": 1.0}
    (rows, plain) = (
        seen(made([request(eraser, at=3)], world(5), evaluation=BARE, costs=costs)).rows
        for eraser in (name, "continue_training")
    )
    at, usual = rows[3], plain[3]
    for way in ("up", "down"):
        assert at[f"bytes_{way}"] - usual[f"bytes_{way}"] == at[f"erase_{way}"]
    asked = bool(at["erase_up"])
    assert (at["energy"] > usual["energy"]) == asked
    if name != "puf":  # the client takes part in the round, beside the others
        assert (at["latency"] > usual["latency"]) == asked
    assert [row["energy"] for row in rows[:3]] == [row["energy"] for row in plain[:3]]
    gradients = at["erase_gradients_retained"] + at["erase_gradients_erased"]
    assert (at["energy"] > 1.05 * usual["energy"]) == bool(gradients)
