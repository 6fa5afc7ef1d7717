"""Sessions of a run, and recovery in one: time to a share of a reference's best score, its cost, the gain (Chang et al.)."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedtide.core.array_types import Floats
from fedtide.records.measures import metrics


@dataclass(frozen=True)
class Session:
    """Rounds t = 1..T of one session.

    Attributes:
        score: [T], after each round; NaN where not evaluated.
        gradient_rounds: V, gradient rounds before them.
        latency, energy: [T], seconds and joules of each round, the first including the gradient rounds before it; NaN if
            not recorded.
        kappa: [T], normalized communication cost of each round; NaN if not recorded.
        information_loss: the last measured in the session, NaN if there is none.
    """

    score: Floats
    gradient_rounds: float
    latency: Floats
    energy: Floats
    kappa: Floats
    information_loss: float = math.nan


def sessions(history: pd.DataFrame, column: str) -> dict[int, Session]:
    """The sessions of a run by number, from the rows of its history; ``column`` has the score."""
    wanted = [column, "gradient_rounds", "latency", "energy", "kappa", "information_loss"]
    rows = history.reindex(columns=wanted).astype(float).fillna({"gradient_rounds": 0.0})  # a running total
    found: dict[int, Session] = {}
    total = 0.0
    for number, rounds in rows.groupby(history["session"]):
        before, total = total, float(rounds["gradient_rounds"].max())
        score, latency, energy, kappa = (rounds[name].to_numpy() for name in (column, "latency", "energy", "kappa"))
        loss = metrics.final(rounds["information_loss"])
        found[int(str(number))] = Session(score, total - before, latency, energy, kappa, loss)
    return found


RECOVERY = (
    "rounds", "rounds_gradient", "speed_up", "speed_up_gradient", "gain", "latency", "latency_gradient", "energy",
    "energy_gradient",
)  # fmt: skip


def recovery(own: Session, reference: Session, share: float, sign: int = 1) -> dict[str, float]:
    """What :data:`RECOVERY` names: how soon a session reaches ``share`` times the best score of the reference's.

    ``rounds`` is ``T_rho = min{t : score(t) >= share max_t' score_ref(t')}``, infinite if there is none; ``latency`` [s] and
    ``energy`` [J] are T_rho times the mean of a round; ``speed_up`` is T_rho over that of the reference; ``gain`` is ``sum_t
    (score_ref(t) - score(t))`` over the rounds in which both were evaluated. Those that end in ``_gradient`` include the
    gradient rounds before a session. ``sign`` makes higher scores better.
    """
    target = share * metrics.best(sign * reference.score)
    rounds, base = (metrics.rounds_to_target(sign * each.score, target) for each in (own, reference))
    done = len(own.score) + own.gradient_rounds
    latency, energy = (float(spent.sum() / done) for spent in (own.latency, own.energy))
    found = {"gain": float(np.nansum(sign * (reference.score - own.score)))}
    for ending, mine, theirs in (("", 0.0, 0.0), ("_gradient", own.gradient_rounds, reference.gradient_rounds)):
        spent = rounds + mine
        found |= {f"rounds{ending}": spent, f"speed_up{ending}": spent / (base + theirs)}
        found |= {f"latency{ending}": spent * latency, f"energy{ending}": spent * energy}
    return found
