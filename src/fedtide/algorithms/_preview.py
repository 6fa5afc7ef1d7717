"""What is known of a run before its first round, for advice on settings that are known to be unstable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunPreview:
    """A run as planned.

    Attributes:
        lr, last_lr: learning rates of the first and of the last round.
        steps: K, local steps of a client of mean size. rounds: T.
        participation_fraction: p, expected share of the clients that take part in a round.
        smallest: relative size omega of the smallest client that has data.
    """

    lr: float
    last_lr: float
    steps: int
    rounds: int
    participation_fraction: float
    smallest: float

    def stiff(self, key: str, strength: float, what: str = "proximal step") -> list[str]:
        """A warning if an explicit step on (strength / 2) |theta - w|^2 diverges; ``key`` is the setting of the strength."""
        product = self.lr * strength
        return [f"local.lr * algorithm.{key} = {product:g} is not below 2: the {what} diverges"] if product >= 2 else []
