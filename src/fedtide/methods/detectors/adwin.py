"""ADWIN."""

from typing import Literal

from pydantic import Field

from fedtide.methods.detectors._river import DIRECTION, RiverDetector, RiverSettings
from fedtide.methods.detectors.base import Stream


class Adwin(RiverDetector):
    """Adaptive windows: two parts of a window have different means (Bifet and Gavalda, SDM 2007).

    Differs from river's defaults, which are for longer streams: ``clock`` 32, ``delta`` 0.002, ``min_window_length`` 5, with
    which a change that is unlearned within five rounds is not seen.
    """

    class Settings(RiverSettings):
        name: str = "adwin"
        delta: float = Field(0.07, gt=0, lt=1, description="significance level")
        clock: int = Field(1, ge=1, le=2**31 - 1, description="losses between two tests")
        grace_period: int = Field(10, ge=0, le=2**31 - 1, description="losses before the first test")
        min_window_length: int = Field(1, ge=1, le=2**31 - 1, description="minimum losses in each part")
        direction: Literal["up", "both"] = Field("up", description=DIRECTION)

    settings: Settings

    def test(self, seed: int) -> Stream:
        from river.drift import ADWIN

        s = self.settings
        window = ADWIN(s.delta, clock=s.clock, min_window_length=s.min_window_length, grace_period=s.grace_period)

        def alarms(loss: float) -> bool:
            before = window.estimation
            window.update(loss)
            return bool(window.drift_detected) and (s.direction == "both" or window.estimation > before)

        return alarms
