"""A run as planned, for advice on settings that are known to be unstable."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunPreview:
    """What is known of a run before its first round.

    Attributes:
        lr, last_lr: learning rates of the first and of the last round. steps: K of a client of mean size. rounds: T.
        participation_fraction: p, expected share of the clients in a round. smallest: omega of the smallest client with data.
        size: d, trained parameters. fresh_starts: whether client state is kept over a session's start from an untrained model.
        personalize: local steps of clients before their own evaluation.
    """

    lr: float
    last_lr: float
    steps: int
    rounds: int
    participation_fraction: float
    smallest: float
    size: int
    fresh_starts: bool = False
    personalize: int = 0


def explicit_step(run: RunPreview, key: str, strength: float, what: str = "proximal step") -> list[str]:
    """A step on (strength / 2) |theta - w|^2 diverges unless lr * strength < 2; ``key`` is the setting of the strength."""
    product = run.lr * strength
    return [f"local.lr * algorithm.{key} = {product:g} is not below 2: the {what} diverges"] if product >= 2 else []
