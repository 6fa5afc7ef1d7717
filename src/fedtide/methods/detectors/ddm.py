"""DDM."""

from pydantic import Field

from fedtide.methods.detectors._river import RiverDetector, RiverSettings
from fedtide.methods.detectors.base import Stream


class Ddm(RiverDetector):
    """Drift detection method: errors become more frequent than they were at best (Gama et al., SBIA 2004).

    It watches errors, here losses above ``limit``; the first one after none is an alarm. Differs from river's default:
    ``warm_start`` is 30 there, but the losses before the first that is shown are a warm start.
    """

    class Settings(RiverSettings):
        name: str = "ddm"
        limit: float = Field(
            5.5,
            ge=0,
            description="standard deviations (with `reference: null`, training loss) above which a loss is an error",
        )
        warm_start: int = Field(1, ge=1, le=2**31 - 1, description="losses before the first test")
        drift_threshold: float = Field(
            3.0, gt=0, description="standard deviations above the best rate that are an alarm"
        )

    settings: Settings

    def test(self, seed: int) -> Stream:
        from river.drift.binary import DDM

        s = self.settings
        test = DDM(s.warm_start, drift_threshold=s.drift_threshold)

        def alarms(loss: float) -> bool:
            test.update(loss > s.limit)
            return bool(test.drift_detected)

        return alarms
