"""A detector that alarms after some losses, whatever they are."""

from fedtide.methods.detectors.base import Detector, DetectorSettings, Stream


class After(Detector):
    """Every so many losses are an alarm."""

    class Settings(DetectorSettings):
        name: str = "after"
        losses: int = 3
        least: float = 0.0

    settings: Settings

    def begin(self, seed: int) -> Stream:
        seen = list[float]()

        def alarms(loss: float) -> bool:
            seen.append(loss)
            return len(seen) == self.settings.losses and loss >= self.settings.least

        return alarms
