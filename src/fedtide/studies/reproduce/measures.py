"""Measures of a session, as settings of an experiment: how a published number is computed from runs.

A measure turns the session of a run (and that of a reference run with the same seed) into a number for each of its
quantities, and defines how the seeds are combined. What was never reached is infinite.
"""

import math
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Floats
from fedtide.core.plugins import SettingsModel
from fedtide.records.measures import metrics
from fedtide.records.measures.sessions import Session, recovery
from fedtide.settings.scores import Score, ScoreName


class Quantity(NamedTuple):
    """A measured quantity; all its variants are compared with the same published value."""

    name: str
    variant: str = ""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.variant}" if self.variant else self.name


Run = tuple[str, str]
"""Labels of the algorithm and the method (initializer) of a run."""

COUNTED = "gradient rounds counted"


class _Scored(SettingsModel):
    """A measure of one score of the model."""

    median: ClassVar[bool] = False

    metric: ScoreName = Field(
        "accuracy",
        description="test metric in place of the accuracy; except loss, it has to be among `evaluation.metrics`",
    )

    @property
    def score(self) -> Score:
        return Score(self.metric)

    def reference_run(self, algorithm: str, method: str) -> Run | None:
        """The run that a run of these labels is compared with; by default none."""
        return None

    def center(self, values: Floats) -> float:
        """Of the seeds: their mean or, which one that never gets there does not make infinite, their median."""
        return float(np.median(values) if self.median else values.mean())


class TransitionAccuracy(_Scored):
    """Mean accuracy of the first rounds of a session, in percent: (1/n) sum_{t=1..n} Acc(t), n = min(window, T).

    The model at the start of the session is left out. Seeds are averaged.
    """

    name: Literal["transition_accuracy"] = "transition_accuracy"
    windows: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (10,), min_length=1, description="numbers of rounds n; each gives a variant"
    )

    @property
    def quantities(self) -> list[Quantity]:
        """What is measured: one variant per window."""
        return [Quantity(self.metric, f"{window} round{'s' if window > 1 else ''}") for window in self.windows]

    def measure(self, session: Session, _: Session) -> list[float]:
        return [metrics.mean_of_last(session.score[:window], window) for window in self.windows]


class Recovery(_Scored):
    """How soon, and at which cost, a session reaches a share of the reference method's best accuracy in it.

    As :func:`fedtide.records.measures.sessions.recovery`, with *energy* in kJ and *gain* in percentage points. The published
    numbers leave out the V gradient rounds at the start of a session; a second variant includes them. Seeds: median.
    """

    median = True
    name: Literal["recovery"] = "recovery"
    share: float = Field(0.95, gt=0, le=1, description="rho, share of the reference's best accuracy")
    reference: str = Field("dynamic", description="method that sets the accuracy to reach")

    @property
    def quantities(self) -> list[Quantity]:
        """What is measured, without and with the gradient rounds."""
        names = ("rounds", "latency", "energy", "speedup")
        return [*(Quantity(name, variant) for variant in ("", COUNTED) for name in names), Quantity("gain")]

    def reference_run(self, algorithm: str, method: str) -> Run | None:
        return algorithm, self.reference

    def measure(self, session: Session, reference: Session) -> list[float]:
        share = 1 / self.share if self.score.lower else self.share
        found = recovery(session, reference, share, self.score.sign)
        names = [f"{name}{end}" for end in ("", "_gradient") for name in ("rounds", "latency", "energy", "speed_up")]
        return [found[name] / (1000 if name.startswith("energy") else 1) for name in (*names, "gain")]


class Learning(_Scored):
    """How well and how fast a session learns, as the FedDyn lineage reports it (Zhou et al. 2025, Tables 1 to 6).

    *accuracy* and *spread* [percent] are mean and population standard deviation over the last rounds; *rounds* is the first
    with at least the target accuracy; *speedup* is the reference algorithm's rounds over these. A run that never reaches the
    target counts with all its rounds. Seeds are averaged.
    """

    name: Literal["learning"] = "learning"
    last: int = Field(50, ge=1, description="number of last rounds")
    target: float | None = Field(None, gt=0, le=100, description="accuracy to reach in percent; null: none")
    reference: str = Field("fedavg", description="algorithm that speed-ups are relative to")

    @property
    def quantities(self) -> list[Quantity]:
        """What is measured; with a target, also the rounds to it."""
        timed = ("rounds", "speedup") if self.target is not None else ()
        return [Quantity(name) for name in (self.metric, "spread", *timed)]

    def reference_run(self, algorithm: str, method: str) -> Run | None:
        return None if self.target is None else (self.reference, method)

    def measure(self, session: Session, reference: Session) -> list[float]:
        last = session.score[-self.last :]
        last = last[~np.isnan(last)]
        found = [float(last.mean()), float(last.std())] if len(last) else [math.nan, math.nan]
        if self.target is not None:
            sign, both = self.score.sign, (session, reference)
            rounds, base = (metrics.rounds_to_target(sign * part.score, sign * self.target) for part in both)
            found += [rounds, min(base, len(reference.score)) / min(rounds, len(session.score))]
        return found


class BestRounds(_Scored):
    """Mean accuracy of the best rounds of a session, in percent. Seeds are averaged.

    With ``information_loss`` its last measured value is reported too (defined by the algorithms that measure it).
    """

    name: Literal["best_rounds"] = "best_rounds"
    rounds: int = Field(5, ge=1, description="number of best rounds, anywhere in the session")
    information_loss: bool = Field(False, description="report the information loss too")

    @property
    def quantities(self) -> list[Quantity]:
        return [Quantity(self.metric), *([Quantity("information_loss")] if self.information_loss else [])]

    def measure(self, session: Session, _: Session) -> list[float]:
        sign = self.score.sign
        evaluated = np.sort(sign * session.score[~np.isnan(session.score)])
        found = [sign * metrics.mean(evaluated[-self.rounds :])]
        return [*found, session.information_loss] if self.information_loss else found


class BestRound(_Scored):
    """Accuracy of a session's best round, in percent, as published in long-tail papers.

    The best of many noisy rounds is optimistic, the more so the noisier the method. Two more variants show what a user would
    get: the mean of the last rounds, and the last round. With ``kappa`` the mean communication cost of the rounds is
    reported too. Seeds are averaged.
    """

    name: Literal["best_round"] = "best_round"
    last: int = Field(10, ge=1, description="number of last rounds to average")
    kappa: bool = Field(False, description="report the communication cost too: exchanges per local step")

    @property
    def quantities(self) -> list[Quantity]:
        """What is measured, the published variant first."""
        names = ("best round", f"last {self.last} rounds", "last round")
        return [*(Quantity(self.metric, name) for name in names), *([Quantity("kappa")] if self.kappa else [])]

    def measure(self, session: Session, _: Session) -> list[float]:
        score, sign = session.score, self.score.sign
        found = [sign * metrics.best(sign * score), metrics.mean_of_last(score, self.last), metrics.final(score)]
        return [*found, float(session.kappa.mean())] if self.kappa else found


class SimulatedTime(_Scored):
    """Accuracy at equal simulated seconds, in percent, and what a target takes, for runs in lockstep or asynchronous.

    A model holds from the end of its round until the next one. *accuracy* is that of the last model evaluated until a second,
    not a number after the end of the run; *seconds* and *updates* are those of the first evaluated model with at least the
    target accuracy. Seeds: median.
    """

    median = True
    name: Literal["simulated_time"] = "simulated_time"
    seconds: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (), description="simulated seconds after the start of the session; each gives a variant"
    )
    target: float | None = Field(None, gt=0, le=100, description="value to reach, shares in percent; null: none")

    @property
    def quantities(self) -> list[Quantity]:
        reached = () if self.target is None else ("seconds", "updates")
        return [*(Quantity(self.metric, f"{second:g} s") for second in self.seconds), *map(Quantity, reached)]

    def measure(self, session: Session, _: Session) -> list[float]:
        elapsed, sign = np.cumsum(session.latency), self.score.sign
        found = [metrics.score_at(session.score, elapsed, second) for second in self.seconds]
        if self.target is not None:
            rounds = metrics.rounds_to_target(sign * session.score, sign * self.target)
            found += [metrics.seconds_to_target(sign * session.score, elapsed, sign * self.target), rounds]
        return found


Measure = Annotated[
    TransitionAccuracy | Recovery | Learning | BestRounds | BestRound | SimulatedTime, Field(discriminator="name")
]
