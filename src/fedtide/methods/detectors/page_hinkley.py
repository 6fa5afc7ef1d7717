"""The Page-Hinkley test."""

from typing import Literal

from pydantic import Field

from fedtide.methods.detectors._river import DIRECTION, RiverDetector
from fedtide.methods.detectors.base import DetectorSettings, Stream


class PageHinkley(RiverDetector):
    """Page-Hinkley: the losses above their mean add up to more than a threshold (Page, Biometrika 1954).

    Differs from river's defaults, which are for longer streams: ``min_instances`` 30, ``threshold`` 50, direction both.
    """

    class Settings(DetectorSettings):
        name: str = "page_hinkley"
        min_instances: int = Field(10, ge=1, le=2**31 - 1, description="losses before the first test")
        delta: float = Field(0.005, ge=0, description="tolerated deviation from the mean")
        threshold: float = Field(1.0, gt=0, description="sum of deviations that is an alarm, in units of the loss")
        alpha: float = Field(0.9999, gt=0, le=1, description="decay factor of the sum per loss")
        direction: Literal["up", "both"] = Field("up", description=DIRECTION)

    settings: Settings

    def begin(self, seed: int) -> Stream:
        from river.drift import PageHinkley as Test

        s = self.settings
        test = Test(s.min_instances, s.delta, s.threshold, s.alpha, mode=s.direction)

        def alarms(loss: float) -> bool:
            test.update(loss)
            return bool(test.drift_detected)

        return alarms
