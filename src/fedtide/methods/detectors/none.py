"""No detector."""

from typing import Literal

from pydantic import Field

from fedtide.methods.detectors.base import Detector, DetectorSettings, Stream


class NoDetector(Detector):
    """Nothing is watched."""

    class Settings(DetectorSettings):
        name: str = "none"
        watch: Literal["server"] = Field("server", description="clients requires a detector, such as name: adwin")
        response: Literal["none"] = Field("none", description="others require a detector, such as name: adwin")
        share: None = Field(None, description="null: there are no alarms")
        factor: None = Field(None, description="null: there are no alarms")

    def begin(self, seed: int) -> Stream:
        return lambda loss: False
