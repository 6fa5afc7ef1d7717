"""The test set of data that comes without one."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtide.core.plugins import SettingsModel
from fedtide.world.calendar import periods
from fedtide.world.holdout import hold_out

Ints = NDArray[np.int64]


class SplitSettings(SettingsModel):
    """How test samples are chosen."""

    share: float = Field(0.2, gt=0, lt=1, description="share of test samples of every client (or class) and period")
    by: Literal["random", "time"] = Field("random", description="random: any samples; time: the last ones")
    period: Literal["month", "week", "day", "all"] | int = Field(
        "month",
        description="month, week or day (UTC), a length in the unit of the times, or all; features are scaled by the first one",
    )
    seed: int = Field(0, ge=0, description="seed of the draw")


def period_of(settings: SplitSettings, times: Ints | None, count: int, unit: str = "s") -> Ints:
    """The period of each of ``count`` samples, from 0, int64; all 0 without times."""
    if times is None or settings.period == "all":
        return np.zeros(count, dtype=np.int64)
    return periods(times, settings.period, unit=unit).of(times)


def split(settings: SplitSettings, groups: Ints, period: Ints, times: Ints | None) -> tuple[Ints, Ints]:
    """Positions of training and of test samples, both ascending; ``groups``: client or class of each sample."""
    chosen = times if settings.by == "time" else None
    return hold_out(np.arange(len(groups)), groups, period, chosen, settings.share, settings.seed, "data.split")
