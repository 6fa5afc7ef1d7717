"""Detectors of the library river (Montiel et al., JMLR 2021), which is optional and imported when a stream begins."""

import math
from abc import abstractmethod
from collections import deque
from importlib.metadata import version
from itertools import islice
from statistics import fmean, stdev

from pydantic import Field

from fedtide.core import extras
from fedtide.core.bounds import LARGEST
from fedtide.methods.detectors.base import Detector, DetectorSettings, Stream

DIRECTION = "up: alarm where the loss rises; both: also where it falls, as it does while a model learns"

_EQUAL = 1e-6  # standard deviation, in units of the loss, of losses that are equal


class RiverSettings(DetectorSettings):
    """What the tests of river are shown.

    Losses fall while a model learns and differ in size from task to task, so no threshold for the losses as they are suits two
    worlds. The defaults of all detectors are calibrated by ``benchmarks/detectors.py`` in three worlds: about one false alarm
    in ten stationary runs, and as many changes of ten points of accuracy seen as that admits.
    """

    reference: int | None = Field(
        10,
        ge=2,
        le=LARGEST,
        description="losses whose mean and standard deviation each later one is compared with; null: losses as they are",
    )
    gap: int = Field(5, ge=0, le=LARGEST, description="losses between these and the one that is compared")


class RiverDetector(Detector):
    """One of river's; each begins again after it has detected a change.

    A loss l is shown as (l - m) / s, with mean m and sample standard deviation s of ``reference`` losses of the stream, the
    last ``gap`` ones before l left out, since those after a change would hide it. Where only rises are looked for
    (``direction: up``), less than one standard deviation is shown as one, so that noise and slower learning are no change.
    There are no alarms before ``reference`` + ``gap`` losses.
    """

    settings: RiverSettings

    def begin(self, seed: int) -> Stream:
        test, s = self.test(seed), self.settings
        least = -math.inf if getattr(s, "direction", "up") == "both" else 1.0
        return test if s.reference is None else _standardized(test, s.reference, s.gap, least)

    @abstractmethod
    def test(self, seed: int) -> Stream:
        """A new stream of what is shown."""

    def require(self) -> None:
        extras.require("drift", f"detector = {self.settings.name}")

    def libraries(self) -> dict[str, str]:
        return {"river": version("river")}


def _standardized(test: Stream, reference: int, gap: int, least: float) -> Stream:
    past = deque[float](maxlen=reference + gap)

    def alarms(loss: float) -> bool:
        earlier = list(islice(past, reference)) if len(past) == reference + gap else []
        past.append(loss)
        return bool(earlier) and test(max(least, (loss - fmean(earlier)) / max(stdev(earlier), _EQUAL)))

    return alarms
