"""Synchronous rounds, or asynchronous updates in simulated seconds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedtide.core.plugins import SettingsModel
from fedtide.settings.choices import Choice


class Sync(SettingsModel):
    """A round ends when all its participants have finished."""

    name: Literal["sync"] = "sync"


class Async(SettingsModel):
    """Clients work at their own pace, and the server updates its model as their results arrive."""

    name: Literal["async"] = "async"
    concurrency: int = Field(10, ge=1, description="most clients that train at once, each on its share of the band")
    max_staleness: int | None = Field(None, ge=0, description="drop results with more staleness; null: none")
    leave: Literal["cancel", "finish"] = Field(
        "cancel",
        description="if a client leaves while it trains: cancel: its work is lost; finish: its result arrives",
    )


ModeChoice = Annotated[Sync | Async, Choice(Sync | Async)]
