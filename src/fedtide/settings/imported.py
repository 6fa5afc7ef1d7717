"""Objects of other packages, named by their import paths."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fedtide.core.plugins import SettingsModel


class Imported(SettingsModel):
    """An object that a class or function of another package makes."""

    path: str = Field(min_length=1, description="the class as MODULE:NAME or MODULE.NAME")
    arguments: dict[str, Any] = Field({}, description="constructor arguments")
