"""Settings known to be unstable: the lines that algorithms return from :meth:`Algorithm.advice`."""

from __future__ import annotations

from fedtide.methods.algorithms._preview import RunPreview

_LATE = 0.65
"""Share of the first learning rate that is left in the last round; a run that ended at 0.55 was stable, one at 0.74 was not."""


def explicit_step(run: RunPreview, key: str, strength: float, what: str = "proximal step") -> list[str]:
    """A step on (strength / 2) |theta - w|^2 diverges unless lr * strength < 2; ``key`` is the setting of the strength."""
    product = run.lr * strength
    return [f"local.lr * algorithm.{key} = {product:g} is not below 2: the {what} diverges"] if product >= 2 else []


def early_gate(run: RunPreview, strength: float) -> list[str]:
    """A penalty weighted by participations over those expected *so far* starts at 1 / p times its strength."""
    p = run.participation_fraction
    weight = f"{strength / p:.3g}"
    return [
        f"algorithm.variant main_text: the penalty's weight starts at alpha / (omega p) = {weight}: the proximal step diverges"
    ] * (run.lr * strength / p >= 2)


def late_gate(run: RunPreview, beta: float) -> list[str]:
    """Over-relaxed memories (gate + beta near 2) in the last rounds of a run whose learning rate is still high."""
    left = run.last_lr / run.lr
    return [
        f"the gate approaches {1 + beta:g} while the learning rate is still {left:.0%} of its initial value: short "
        "runs of this kind have degraded toward their end; let local.lr decay faster"
    ] * (beta >= 1 and left > _LATE)


def dual_step(run: RunPreview, a: float, gamma: float) -> list[str]:
    """FedVRA's dual shrinks by the factor 1 - a gamma lr K in a round of K steps."""
    factor = a * gamma * run.lr * run.steps
    return [f"algorithm.a * gamma * local.lr * {run.steps} steps = {factor:g} is not below 2: the dual diverges"] * (
        factor >= 2
    )
