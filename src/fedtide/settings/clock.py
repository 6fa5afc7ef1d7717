"""Settings of the clock: rounds in lockstep, or jobs that overlap in simulated seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import SettingsModel


class Rounds(SettingsModel):
    """A round ends when all its participants have finished."""

    name: Literal["rounds"] = "rounds"


class Events(SettingsModel):
    """Clients work at their own pace, and the server updates its model as their results arrive."""

    name: Literal["events"] = "events"
    concurrency: int = Field(10, ge=1, description="most clients that train at once, each on its share of the band")
    max_staleness: int | None = Field(
        None, ge=0, description="results that are more updates behind are thrown away; null: none are"
    )
    leave: Literal["cancel", "finish"] = Field(
        "cancel",
        description="a client that leaves while it trains: cancel: its work is lost; finish: its result still arrives",
    )


def _named(value: Any) -> Any:
    """A mapping with a known name."""
    if isinstance(value, Rounds | Events):
        return value
    value = {"name": value} if isinstance(value, str) else value
    name = value.get("name") if isinstance(value, Mapping) else None
    if name not in ("rounds", "events"):
        raise SettingsError("should be rounds, events, or a mapping with one of them as its name")
    return value


ClockChoice = Annotated[Rounds | Events, Field(discriminator="name"), BeforeValidator(_named)]
