"""A link at an earlier place."""

from __future__ import annotations

from torch import Tensor

from fedtide.methods.uplink.base import Link, Sending


class Double(Link):
    """Updates plus one, times two: not the same after ``shrink`` as before it."""

    place = 1

    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        D.add_(1.0).mul_(2.0)
        return {}
