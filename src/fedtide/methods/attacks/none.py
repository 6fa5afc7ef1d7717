"""No attack."""

from pydantic import Field

from fedtide.methods.attacks.base import Attack, AttackSettings


class NoAttack(Attack):
    """All clients are honest."""

    class Settings(AttackSettings):
        name: str = "none"
        share: None = Field(None, description="null: there are no attackers")
        number: None = Field(None, description="null: there are no attackers")
        clients: tuple[()] = Field((), description="empty: there are no attackers")
        start: None = Field(None, description="null: there are no attackers")
