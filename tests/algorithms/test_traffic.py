"""What travels: numbers that participants receive and send besides a model, in models of a thousand parameters."""

from typing import Any

import pytest

from fedtide.core import plugins
from support import settings, traffic


@pytest.mark.parametrize(
    ("algorithm", "down", "up"),
    [
        *((name, 0, 0) for name in ("fedacg", "feddyn", "fedvra", "moon", "fedsam", "fedspeed", "fedlesam")),
        *((name, 1000, 1000) for name in ("feddc", "fedssg", "fedsmoo", "mimelite", "scaffold_released")),
        *((name, 1000, 0) for name in ("fedcm", "mofedsam")),
        *((name, 1001, 0) for name in ("fedwcm", "fedwcm_x")),
        ("ca_fed", 0, 1),
        ("fednova", 0, 2),
        ("mime", 2000, 1000),
        ({"name": "feddc", "correction": False}, 0, 0),
        ({"name": "fedssg", "correction": False}, 0, 0),
        ({"name": "fedlesam", "base": "scaffold"}, 1000, 1000),
        ({"name": "fedlesam", "base": "feddyn"}, 0, 0),
    ],
)
def test_what_travels(algorithm: Any, down: int, up: int) -> None:
    """A model is sent with its floating buffers."""
    chosen = settings(algorithm=algorithm).algorithm
    sent = traffic(plugins.load("algorithms", chosen.name)(chosen), buffers=7)  # type: ignore[arg-type]
    assert (sent.down, sent.up) == (4 * (1007 + down), 4 * (1007 + up))
