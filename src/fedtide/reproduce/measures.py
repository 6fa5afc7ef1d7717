"""What is measured in the session that a published number speaks of, as settings of an experiment.

A measure turns the session of one run (and that of the reference method with the same seed) into a number for each
of its quantities, and says how the numbers of several seeds become one.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedtide.plugins import SettingsModel
from fedtide.report import metrics
from fedtide.reproduce.history import Floats, Session


class Quantity(NamedTuple):
    """What was measured; variants of one quantity are all compared with the same published value."""

    name: str
    variant: str = ""

    @property
    def title(self) -> str:
        """As a heading."""
        return f"{self.name}, {self.variant}" if self.variant else self.name


COUNTED = "gradient rounds counted"


class TransitionAccuracy(SettingsModel):
    """Mean accuracy of the first rounds of a session, in percent: (1/n) sum_{t=1..n} Acc(t), n = min(window, T).

    The model a session starts from is not counted. Seeds are averaged.
    """

    name: Literal["transition_accuracy"] = "transition_accuracy"
    windows: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (10,), min_length=1, description="numbers of rounds n; each gives a variant"
    )

    reference: ClassVar[None] = None

    @property
    def quantities(self) -> list[Quantity]:
        """What is measured: one variant per window."""
        return [Quantity("accuracy", f"{window} round{'s' if window > 1 else ''}") for window in self.windows]

    def measure(self, session: Session, _: Session) -> list[float]:
        """In the order of :attr:`quantities`."""
        return [metrics.mean_of_last(session.accuracy[:window], window) for window in self.windows]

    def center(self, values: Floats) -> float:
        """Mean."""
        return float(values.mean())


class Recovery(SettingsModel):
    """How soon, and at which cost, a session reaches a share of the reference method's best accuracy in it.

    ``T_rho = min{t : Acc(t) >= rho max_t' Acc_ref(t')}``, infinite if there is none; *latency* [s] and *energy* [kJ] are
    T_rho times those of a round; *speedup* is T_rho over that of the reference; *gain* is sum_t (Acc_ref(t) - Acc(t)) in
    percentage points. The published numbers leave out the V gradient rounds a session begins with; a second variant
    counts them. Of several seeds the median is taken.
    """

    name: Literal["recovery"] = "recovery"
    share: float = Field(0.95, gt=0, le=1, description="rho, share of the reference's best accuracy")
    reference: str = Field("dynamic", description="method that sets the accuracy to reach")

    @property
    def quantities(self) -> list[Quantity]:
        """What is measured, without and with the gradient rounds."""
        names = ("rounds", "latency", "energy", "speedup")
        return [*(Quantity(name, variant) for variant in ("", COUNTED) for name in names), Quantity("gain")]

    def measure(self, session: Session, reference: Session) -> list[float]:
        """In the order of :attr:`quantities`."""
        target = self.share * metrics.best(reference.accuracy)
        rounds, base = (metrics.rounds_to_target(part.accuracy, target) for part in (session, reference))
        seconds, joules = (_per_round(spent, session.gradient_rounds) for spent in (session.latency, session.energy))
        found = []
        for own, other in ((0.0, 0.0), (session.gradient_rounds, reference.gradient_rounds)):
            spent = rounds + own
            found += [spent, spent * seconds, spent * joules / 1000, spent / (base + other)]
        return [*found, float(np.nansum(reference.accuracy - session.accuracy))]

    def center(self, values: Floats) -> float:
        """Median."""
        return float(np.median(values))


class BestAccuracy(SettingsModel):
    """Largest accuracy of a session's rounds, in percent, beside its communication cost kappa (the mean of its rounds).

    The largest of 800 rounds is larger than what a run ends with; a second quantity is the mean of the last ten. Seeds are
    averaged.
    """

    name: Literal["best_accuracy"] = "best_accuracy"

    reference: ClassVar[None] = None

    @property
    def quantities(self) -> list[Quantity]:
        """What is measured."""
        return [Quantity("accuracy"), Quantity("accuracy of the last 10"), Quantity("kappa")]

    def measure(self, session: Session, _: Session) -> list[float]:
        """In the order of :attr:`quantities`."""
        accuracy = session.accuracy
        return [metrics.best(accuracy), metrics.mean_of_last(accuracy, 10), float(session.kappa.mean())]

    def center(self, values: Floats) -> float:
        """Mean."""
        return float(values.mean())


Measure = Annotated[TransitionAccuracy | Recovery | BestAccuracy, Field(discriminator="name")]


def _per_round(spent: Floats, gradient_rounds: float) -> float:
    """Mean cost of a round, gradient rounds being rounds too."""
    return float(spent.sum() / (len(spent) + gradient_rounds))
