"""Settings that all plug-ins of a kind have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedtide.core.plugins import INCIDENTAL, PluginSettings
from fedtide.settings.choices import WeightingChoice, choice_field


class AlgorithmSettings(PluginSettings):
    """Settings every algorithm has."""

    weighting: WeightingChoice = choice_field("samples", "how participants are weighted")


class DatasetSettings(PluginSettings):
    """Settings every dataset has."""

    root: Annotated[str, INCIDENTAL] = Field("data", description="folder for downloaded and prepared files")
    mirror: Annotated[str | None, INCIDENTAL] = Field(
        None, description="folder searched before the network; default: $FEDTIDE_MIRROR"
    )


class InitializerSettings(PluginSettings):
    """Settings every initializer has."""

    post_pilot_start: Literal["carry", "reset"] = Field(
        "carry", description="first session after the pilot: carry: continue; reset: start from the initial model"
    )
