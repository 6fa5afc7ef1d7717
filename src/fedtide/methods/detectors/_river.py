"""Detectors of the library river (Montiel et al., JMLR 2021), which is optional and imported when a stream begins."""

from importlib.metadata import version

from fedtide.core import extras
from fedtide.methods.detectors.base import Detector, DetectorSettings

DIRECTION = "up: alarm where the loss rises; both: also where it falls, as it does while a model learns"


class RiverDetector(Detector):
    """One of river's; each begins again after it has detected a change."""

    settings: DetectorSettings

    def require(self) -> None:
        extras.require("drift", f"detector = {self.settings.name}")

    def libraries(self) -> dict[str, str]:
        return {"river": version("river")}
