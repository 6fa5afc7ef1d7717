"""Updates in the opposite direction."""

from pydantic import Field
from torch import Tensor

from fedtide.methods.attacks.base import Attack, AttackSettings


class SignFlip(Attack):
    """Attackers send the opposite of their update, times a factor."""

    class Settings(AttackSettings):
        name: str = "sign_flip"
        factor: float = Field(1.0, gt=0, description="norm sent, as a multiple of the update's norm")

    settings: Settings

    def forge(self, D: Tensor, honest: Tensor) -> Tensor:
        return -self.settings.factor * D
