"""The learning rate over rounds."""

from __future__ import annotations

import math

from fedtide.settings.groups.local import LocalSettings


def learning_rate(local: LocalSettings, t: int, rounds: int) -> float:
    """Rate of round ``t`` (0-based) of ``rounds`` rounds; T is ``local.schedule_rounds`` or else ``rounds``.

    ``polynomial``: (lr - min)(1 - t/T)^power + min; ``cosine``: min + (lr - min)(1 + cos(pi t/T))/2, min = min_lr_ratio * lr,
    both at min after T rounds; ``exponential``: lr * decay^t. The first ``warmup`` rounds have lr (t + 1) / (warmup + 1), and
    the schedule begins after them, with t = 0 and T shorter by them unless it is given. Within a round the rate is constant:
    the formulas of many algorithms divide by it.
    """
    if t < local.warmup:
        return local.lr * (t + 1) / (local.warmup + 1)
    t, rounds = t - local.warmup, rounds - local.warmup
    lowest = local.min_lr_ratio * local.lr
    progress = min(t / (local.schedule_rounds or rounds), 1.0)
    if local.schedule == "exponential":
        return float(local.lr * local.decay**t)
    if local.schedule == "cosine":
        return lowest + (local.lr - lowest) * (1 + math.cos(math.pi * progress)) / 2
    if local.schedule == "polynomial":
        return float((local.lr - lowest) * (1 - progress) ** local.power + lowest)
    return local.lr
