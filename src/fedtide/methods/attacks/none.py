"""No attack."""

from __future__ import annotations

from fedtide.methods.attacks.base import Attack, AttackSettings


class NoAttack(Attack):
    """All clients are honest."""

    class Settings(AttackSettings):
        name: str = "none"
