"""KSWIN."""

from statistics import fmean
from typing import Literal, Self

from pydantic import Field, model_validator

from fedtide.core.errors import SettingsError
from fedtide.methods.detectors._river import DIRECTION, RiverDetector, RiverSettings
from fedtide.methods.detectors.base import Stream


class Kswin(RiverDetector):
    """Kolmogorov-Smirnov windows: the latest losses are distributed unlike earlier ones (Raab et al., Neurocomputing 2020).

    Differs from river's defaults, which are for longer streams: ``window_size`` 100 and ``stat_size`` 30. With 6 against 6
    losses at most one may be out of order at ``alpha`` 0.03, none at 0.005. It looks at their order alone, and six losses on
    the same samples are not six observations, so losses of other periods count from five standard deviations on.
    """

    tolerance = 4.0

    class Settings(RiverSettings):
        name: str = "kswin"
        alpha: float = Field(0.005, gt=0, lt=1, description="significance level")
        window_size: int = Field(
            20, ge=2, le=2**31 - 1, description="losses in the window; none is tested before it is full"
        )
        stat_size: int = Field(
            6, ge=1, le=2**31 - 1, description="latest losses, compared with as many drawn from the earlier ones"
        )
        direction: Literal["up", "both"] = Field("up", description=DIRECTION)

        @model_validator(mode="after")
        def _windows_fit(self) -> Self:
            if 2 * self.stat_size > self.window_size:
                raise SettingsError(
                    f"stat_size = {self.stat_size} should be at most half of window_size = {self.window_size}"
                )
            return self

    settings: Settings

    def test(self, seed: int) -> Stream:
        from river.drift import KSWIN

        s = self.settings
        test = KSWIN(s.alpha, s.window_size, s.stat_size, seed=seed)

        def alarms(loss: float) -> bool:
            earlier = [*test.window, loss][-s.window_size : -s.stat_size]
            test.update(loss)  # keeps the latest losses alone when it detects a change
            return bool(test.drift_detected) and (s.direction == "both" or fmean(test.window) > fmean(earlier))

        return alarms
