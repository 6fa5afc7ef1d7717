"""No detector."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from fedtide.core.errors import SettingsError
from fedtide.methods.detectors.base import Detector, DetectorSettings, Stream


class NoDetector(Detector):
    """Nothing is watched."""

    class Settings(DetectorSettings):
        name: str = "none"

        @model_validator(mode="after")
        def _nothing_else(self) -> Self:
            if self.watch != "server" or self.response != "none":
                chosen = "watch = clients" if self.watch != "server" else f"response = {self.response}"
                raise SettingsError(f"{chosen} requires a detector, such as name: adwin")
            return self

    def begin(self, seed: int) -> Stream:
        return lambda loss: False
