"""``fedtide diagnose``."""

from __future__ import annotations


def diagnose() -> None:
    """Stub."""
