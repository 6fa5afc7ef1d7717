"""What clients are guaranteed where some are erased: noise of rounds that are trained again is known from the first time."""

import math
from typing import Any

from erasers.erased_runs import made, request, run, same, seen, world
from fedtide.federation.assembly.footprint import advice

NOISE: dict[str, Any] = {
    "uplink": [{"name": "clip", "bound": 0.1}, {"name": "noise", "multiplier": 1.0}],
    "algorithm": {"name": "fedavg", "weighting": "uniform"},
    "participation": "all",
}
LATER = [(0, 1, 2)] * 4 + [(0, 1, 2, 3)] * 2


def test_no_epsilon_holds_for_clients_that_took_part_before_the_counterfactual_is_released() -> None:
    fed = made([request("retrain")], world(LATER), **NOISE)
    kept: Any = fed.parts.links[-1].guarantees()
    alone: Any = made((), world(LATER), **NOISE).parts.links[-1].guarantees()
    assert [math.isinf(epsilon) for epsilon in kept["epsilon"]] == [True, True, True, False]
    assert kept["epsilon"][3] == alone["epsilon"][3] > 0
    (line,) = (line for line in advice(fed.parts) if "worst-case" in line)
    assert "(known cohorts, without amplification) until round 4, and none afterwards, since erase trains" in line
    rows = seen(fed).rows
    assert [row["epsilon"] is None for row in rows] == [False] * 4 + [True] * 2


def test_runs_beside_a_run_with_noise_change_neither_it_nor_what_is_reported() -> None:
    """Its sums are divided by the sizes of its own cohorts, not by those of the counterfactual."""
    alone, erased = run(**NOISE), run([request("rollback", every=1)], **NOISE)
    assert same(alone.models[:4], erased.models[:4])
    assert [row["epsilon"] for row in alone.rows] == [row["epsilon"] for row in erased.rows]
    retrained = run([request("retrain")], **NOISE)
    assert same(retrained.models[4:], [retrained.without[t] for t in (4, 5)])
