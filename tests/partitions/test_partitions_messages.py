"""Requests that a partition cannot meet: the line that says why, with the largest feasible value."""

from typing import Any

import numpy as np
import pytest

from fedtide.core.errors import SettingsError
from fedtide.world.dataset import Samples
from worlds import plugin

MANY, FEW, ONE = np.arange(160) % 10, np.arange(30) % 10, np.zeros(100, dtype=np.int64)


@pytest.mark.parametrize(
    ("name", "chosen", "labels", "clients", "message"),
    [
        *(
            (name, {}, MANY[:20], 21, r"^num_clients = 21 .*largest feasible value is 20$")
            for name in ("dirichlet_client", "dirichlet_prior", "iid")
        ),
        ("round_robin_chunks", {}, MANY[:20], 21, r"^num_clients = 21 .*largest feasible value is 20$"),
        ("dirichlet_balanced", {}, MANY[:20], 21, r"^num_clients = 21 .*largest feasible value is 20$"),
        ("dirichlet_class", {"min_per_client": 6}, MANY[:20], 4, r"^min_per_client = 6 .*feasible value is 5$"),
        ("dirichlet_balanced", {"alpha": 1e-3}, ONE, 10, r"^min_per_client = 10 .*largest value reached is \d$"),
        ("shards", {"classes_per_client": 11}, MANY, 10, r"^classes_per_client = 11 .*feasible value is 10$"),
        ("shards", {"classes_per_client": 3}, MANY, 60, r"^num_clients = 60 .*multiple of 10, .*feasible value is 50$"),
        ("shards", {"classes_per_client": 4}, MANY, 6, r"^num_clients = 6 .*multiple of 5, .*feasible value is 40$"),
        ("two_label_shards", {}, MANY, 4, r"^num_clients = 4 is too small.*at least 5"),
        ("two_label_shards", {}, MANY, 81, r"^num_clients = 81 .*feasible value is 80$"),
        ("label_halves", {}, FEW, 5, r"^num_clients = 5 .*multiple of 2, the largest feasible value is 6$"),
        ("label_blocks", {}, FEW, 12, r"^num_clients = 12 .*multiple of 10, the largest feasible value is 30$"),
        ("partial_overlap", {}, FEW, 4, r"^num_clients = 4 .*largest feasible value is 3$"),
        ("partial_overlap", {}, FEW, 1, "requires at least 2 clients"),
        ("natural", {"min_samples": 3}, ONE[:3], None, r"min_samples = 3: no client has that many; the largest has 2"),
        ("natural", {}, ONE[:3], 5, r"scenario\.num_clients = 5: partition natural has 2 clients; use null"),
        ("natural", {}, ONE, None, "partition natural requires a dataset with client IDs"),
        ("iid", {}, ONE, None, r"scenario\.num_clients = null requires partition natural"),
    ],
)
def test_an_impossible_request_is_one_line(
    name: str, chosen: dict[str, Any], labels: Any, clients: int | None, message: str
) -> None:
    samples = Samples(labels, np.array([0, 0, 1]) if len(labels) == 3 else None)
    with pytest.raises(SettingsError, match=message) as raised:
        plugin("partitions", name, **chosen).assign(samples, clients, 10, 0)
    assert "\n" not in str(raised.value)
