"""Detectors of the library river (Montiel et al., JMLR 2021), which is optional and imported when a stream begins."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby
from operator import itemgetter
from statistics import fmean, stdev, variance
from typing import ClassVar

from pydantic import Field

from fedtide.core import extras
from fedtide.core.bounds import LARGEST
from fedtide.methods.detectors.base import Detector, DetectorSettings, Stream, Watch

DIRECTION = "up: alarm where the loss rises; both: also where it falls, as it does while a model learns"

PERIODS = 3
"""Fewest periods that a loss of another one is compared with."""

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

    Losses of a period are on the same samples, so they deviate together from those of other periods. Unless all ``reference``
    losses are of the period of l, there are therefore as many more as fill three periods; m is the mean of the means m_p of
    these periods, and ``s^2 = var(m_p) + var(l - m_p)``. Before there are so many, l is not shown.

    Attributes:
        tolerance: by how many standard deviations a loss that is compared with other periods is shown nearer to their mean.
    """

    tolerance: ClassVar[float] = 0.0
    settings: RiverSettings

    def begin(self, seed: int) -> Stream:
        alarms = self.watch(seed)
        return lambda loss: alarms(loss, 0)

    def watch(self, seed: int) -> Watch:
        test, s = self.test(seed), self.settings
        least = -math.inf if getattr(s, "direction", "up") == "both" else 1.0
        if s.reference is None:
            return lambda loss, period: test(loss)
        return _standardized(test, s.reference, s.gap, least, self.tolerance)

    @abstractmethod
    def test(self, seed: int) -> Stream:
        """A new stream of what is shown."""

    def require(self) -> None:
        extras.require("drift", f"detector = {self.settings.name}")

    def libraries(self) -> dict[str, str]:
        return {"river": version("river")}


def _standardized(test: Stream, reference: int, gap: int, least: float, tolerance: float) -> Watch:
    past = list[tuple[float, int]]()

    def alarms(loss: float, period: int) -> bool:
        earlier = past[: max(0, len(past) - gap)]
        past.append((loss, period))
        if len(earlier) < reference:
            return False
        own = all(other == period for _, other in earlier[-reference:])
        losses = [other for other, _ in earlier[-reference:]]
        scale = (fmean(losses), stdev(losses)) if own else _between_periods(earlier, reference)
        if scale is None:
            return False
        deviation = (loss - scale[0]) / max(scale[1], _EQUAL)
        beyond = deviation if own else math.copysign(max(0.0, abs(deviation) - tolerance), deviation)
        return test(max(least, beyond))

    return alarms


def _between_periods(earlier: Sequence[tuple[float, int]], reference: int) -> tuple[float, float] | None:
    """m and s of losses and their periods; None of fewer than three periods."""
    periods, seen = list[list[float]](), 0
    for _, group in groupby(reversed(earlier), key=itemgetter(1)):
        if len(periods) >= PERIODS and seen >= reference:
            break
        periods.append([loss for loss, _ in group])
        seen += len(periods[-1])
    if len(periods) < PERIODS:
        return None
    means = [fmean(losses) for losses in periods]
    within = math.fsum((loss - mean) ** 2 for losses, mean in zip(periods, means, strict=True) for loss in losses)
    return fmean(means), math.sqrt(variance(means) + within / max(1, seen - len(periods)))
