"""The Page-Hinkley test."""

from typing import Literal

from pydantic import Field

from fedtide.methods.detectors._river import DIRECTION, RiverDetector, RiverSettings
from fedtide.methods.detectors.base import Stream


class PageHinkley(RiverDetector):
    """Page-Hinkley: the losses above their mean add up to more than a threshold (Page, Biometrika 1954).

    Differs from river's defaults, which are for longer streams: ``min_instances`` 30, ``delta`` 0.005, ``threshold`` 50,
    direction both. ``delta`` is 2 standard deviations, since losses on the same rows deviate together.
    """

    class Settings(RiverSettings):
        name: str = "page_hinkley"
        min_instances: int = Field(1, ge=1, le=2**31 - 1, description="losses before the first test")
        delta: float = Field(2.0, ge=0, description="tolerated deviation from the mean, in the same units")
        threshold: float = Field(
            5.0,
            gt=0,
            description="sum of deviations that is an alarm, in standard deviations (`reference: null`: in units of the loss)",
        )
        alpha: float = Field(0.9999, gt=0, le=1, description="decay factor of the sum per loss")
        direction: Literal["up", "both"] = Field("up", description=DIRECTION)

    settings: Settings

    def test(self, seed: int) -> Stream:
        from river.drift import PageHinkley as Test

        s = self.settings
        test = Test(s.min_instances, s.delta, s.threshold, s.alpha, mode=s.direction)

        def alarms(loss: float) -> bool:
            test.update(loss)
            return bool(test.drift_detected)

        return alarms
