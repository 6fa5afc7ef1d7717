"""A little is enough."""

from statistics import NormalDist

from pydantic import Field
from torch import Tensor

from fedtide.methods.attacks.base import Attack, AttackSettings


class Alie(Attack):
    """A little is enough (Baruch et al. 2019): the honest mean minus z standard deviations of every coordinate.

    The published z is the largest with which enough honest updates lie farther from the mean for a majority. In small cohorts
    it is 0, no attack at all.
    """

    class Settings(AttackSettings):
        name: str = "alie"
        z: float | None = Field(1.0, ge=0, description="standard deviations from the mean; null: as published")

    settings: Settings
    colludes = True

    def forge(self, D: Tensor, honest: Tensor) -> Tensor:
        z = published(len(honest), len(D)) if self.settings.z is None else self.settings.z
        spread = honest.std(0) if len(honest) > 1 else 0.0 * honest[0]
        return (honest.mean(0) - z * spread).expand_as(D)


def published(honest: int, attackers: int) -> float:
    """z for these numbers of participants; the share that it is the quantile of is at least 0.5 and at most 0.999."""
    supporters = (honest + attackers) // 2 + 1 - attackers
    return NormalDist().inv_cdf(min(max((honest - supporters) / honest, 0.5), 0.999))
