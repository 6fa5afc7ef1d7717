"""Amplification by Poisson sampling; needs the library of the extra ``dp``."""

from typing import Any

import pytest

from accounting.test_accounting import GOLDEN, of_kind
from fedtide.methods.accounting import poisson

pytest.importorskip("dp_accounting")

SAME: float = GOLDEN["tolerance"]["epsilon"]


@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, marks=[pytest.mark.slow] * (entry["q"] == 0.01)) for entry in of_kind("poisson")],
    ids=lambda entry: str(entry["q"]),
)
def test_poisson(entry: dict[str, Any]) -> None:
    found = poisson.epsilon(entry["q"], entry["z"], entry["rounds"], entry["delta"])
    assert found == pytest.approx(entry["epsilon"], abs=SAME)


@pytest.mark.parametrize("entry", of_kind("fixed_size"), ids=lambda entry: str(entry["population"]))
def test_poisson_at_the_rate_of_a_fixed_size(entry: dict[str, Any]) -> None:
    found = poisson.epsilon(entry["cohort"] / entry["population"], entry["z"], entry["rounds"], entry["delta"])
    assert found == pytest.approx(entry["epsilon_poisson_same_rate"], abs=SAME)


@pytest.mark.slow
def test_clients_that_are_present_longer_spend_more() -> None:
    (entry,) = of_kind("per_client")
    for after, expected in zip(entry["after_rounds"], entry["epsilon"], strict=True):
        counts = [max(0, min(after, end) - first) for first, end in entry["present"]]
        found = [poisson.epsilon(entry["q"], entry["z"], count, entry["delta"]) for count in counts]
        assert found == pytest.approx(expected, abs=SAME)


@pytest.mark.slow
def test_noise_for_a_budget() -> None:
    (entry,) = of_kind("calibration")
    z = poisson.multiplier(entry["q"], entry["rounds"], entry["target_epsilon"], entry["delta"])
    assert z == pytest.approx(entry["z"], abs=1e-4)


@pytest.mark.slow
def test_rounds_that_are_drawn_again() -> None:
    (entry,) = of_kind("empty_rounds")
    spent = poisson.epsilon(entry["q"], entry["z"], entry["rounds"], entry["delta"])
    assert spent == pytest.approx(entry["epsilon"], abs=SAME)
    added = poisson.redrawn(entry["q"], [entry["population"]] * entry["rounds"], spent)
    assert added == pytest.approx(entry["delta_added"], rel=1e-6)
