"""Settings that a participation rule cannot use: the line that says why."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedtide.core.errors import SettingsError
from support import steady
from worlds import plugin

THREE = (0.3, 0.5, 0.8)


def first_cohort(name: str, chosen: dict[str, Any]) -> Any:
    """Of three clients with data of three classes."""
    rule = plugin("participation", name, **chosen)
    rule.bind(steady((3, 3, 3), 40), np.arange(9) % 3, 0)
    return rule.draw(np.arange(3), 0, 0)


@pytest.mark.parametrize(
    ("name", "chosen", "message"),
    [
        ("heterogeneous", {"shares": "given", "values": THREE[:2]}, r"participation\.values: got 2 .* each of 3 clients"),
        ("heterogeneous", {"shares": "labels", "values": (0.5,)}, r"participation\.values: got 1 .* each of 3 classes"),
        ("heterogeneous", {"shares": "given", "values": (0.5, 0.5, 1.5)}, r"participation\.values = .* should be prob"),
        ("heterogeneous", {"shares": "two_groups", "groups": (0.5, -0.1)}, r"participation\.groups = .* should be prob"),
        ("heterogeneous", {"shares": "beta", "beta": (0.0, 1.0)}, r"participation\.beta = .* should be two positive"),
        ("heterogeneous", {"shares": "given", "values": (1e-12, 0.0, 0.0)}, "availabilities of at most 1e-12 are too small"),
        ("markov", {"shares": "given", "values": THREE, "mean_on": 2.0}, r"mean_on = 2 should be at least 4, .* client 2"),
        ("markov", {"shares": "given", "values": (0.5, 0.5, 0.8), "stability": -0.5}, r"stability = -0\.5 .* client 2"),
        ("dpfl_reference", {"pattern": "round_robin", "step": 1}, "overlap = 1 should be less than step = 1"),
        ("bernoulli", {"probability": 1e-12}, r"participation\.probability = 1e-12 is too small for 3 present clients"),
        ("active", {}, "participation active requires scenario calendar; scenario .* has no sample times"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    name: str, chosen: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("_available", "bernoulli"):
        monkeypatch.setattr(f"fedtide.world.participation.{module}._ATTEMPTS", 5)
    with pytest.raises((SettingsError, ValidationError), match=message):
        first_cohort(name, chosen)
