"""Detectors of the library river (Montiel et al., JMLR 2021), which is optional and imported when a stream begins."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

from fedtide.core.errors import SettingsError
from fedtide.detectors.base import Detector, DetectorSettings

DIRECTION = "up: alarm where the loss rises; both: also where it falls, as it does while a model learns"


class RiverDetector(Detector):
    """One of river's; each begins again after it has detected a change."""

    settings: DetectorSettings

    def require(self) -> None:
        if find_spec("river") is None:
            raise SettingsError(
                f"detector = {self.settings.name}: package river is not installed; pip install 'fedtide[drift]'"
            )

    def libraries(self) -> dict[str, str]:
        return {"river": version("river")}
