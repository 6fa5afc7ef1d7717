"""Updates that are too long."""

from pydantic import Field
from torch import Tensor

from fedtide.methods.attacks.base import Attack, AttackSettings


class Scale(Attack):
    """Attackers send their update times a factor (model replacement, Bagdasaryan et al. 2020)."""

    class Settings(AttackSettings):
        name: str = "scale"
        factor: float = Field(10.0, description="factor applied to the update; may be negative")

    settings: Settings

    def forge(self, D: Tensor, honest: Tensor) -> Tensor:
        return self.settings.factor * D
