"""The honest mean, reversed."""

from torch import Tensor

from fedtide.core.plugins import Tunable
from fedtide.methods.attacks.base import Attack, AttackSettings


class Ipm(Attack):
    """Inner-product manipulation (Xie et al. 2020): attackers send the opposite of the honest updates' mean, times a factor."""

    class Settings(AttackSettings):
        name: str = "ipm"
        factor: float = Tunable(0.5, low=0.1, high=10.0, log=True, gt=0, description="multiple of the honest mean")

    settings: Settings
    colludes = True

    def forge(self, D: Tensor, honest: Tensor) -> Tensor:
        return (-self.settings.factor * honest.mean(0)).expand_as(D)
