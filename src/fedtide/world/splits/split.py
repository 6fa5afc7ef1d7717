"""The test set of data that comes without one."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import SettingsModel
from fedtide.world.presence.calendar import periods
from fedtide.world.splits.holdout import hold_out


class SplitSettings(SettingsModel):
    """How test samples are chosen."""

    share: float = Field(0.2, gt=0, lt=1, description="share of test samples of every client (or class) and period")
    by: Literal["random", "time"] = Field("random", description="random: any samples; time: the last ones")
    period: Literal["year", "month", "week", "day", "all"] | Annotated[int, Field(ge=1)] = Field(
        "month",
        description="year, month, week or day, a length in the unit of the times, or all; the first one scales features",
    )
    seed: int = Field(0, ge=0, description="random seed")


def period_of(settings: SplitSettings, times: Ints | None, count: int, unit: str = "s") -> Ints:
    """The period of each of ``count`` samples, from 0, int64; all 0 without times. A calendar needs times in seconds."""
    if times is None or settings.period == "all":
        return np.zeros(count, dtype=np.int64)
    if isinstance(settings.period, str) and unit != "s":
        raise SettingsError(
            f"data.split.period = {settings.period!r} requires times in seconds, but the unit is {unit!r}; use a number, or all"
        )
    return periods(times, settings.period, unit=unit).of(times)


def split_samples(settings: SplitSettings, groups: Ints, period: Ints, times: Ints | None) -> tuple[Ints, Ints]:
    """Positions of training and of test samples, both ascending; ``groups``: client or class of each sample.

    Raises:
        SettingsError: there are too few samples, or no times to choose by.
    """
    if settings.by == "time" and times is None:
        raise SettingsError("data.split.by = 'time' requires samples with timestamps; use random")
    chosen = times if settings.by == "time" else None
    train, test = hold_out(np.arange(len(groups)), groups, period, chosen, settings.share, settings.seed, "data.split")
    if not len(train) or not len(test):
        raise SettingsError(f"{len(groups)} samples are too few for split.share = {settings.share:g}")
    return train, test
