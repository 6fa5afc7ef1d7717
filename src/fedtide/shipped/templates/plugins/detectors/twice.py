from pydantic import Field

from fedtide.methods.detectors.base import Detector, DetectorSettings, Stream


class Twice(Detector):
    """The loss is a multiple of the least one so far."""

    class Settings(DetectorSettings):
        name: str = "twice"
        multiple: float = Field(2.0, gt=1, description="of the least loss, which is an alarm")

    settings: Settings

    def begin(self, seed: int) -> Stream:
        losses = list[float]()

        def alarms(loss: float) -> bool:
            losses.append(loss)
            return loss > self.settings.multiple * min(losses)

        return alarms
