"""How a search proposes trials, which it stops early, and when it ends: sampler, pruner and terminator by name."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedtide.core.plugins import SettingsModel
from fedtide.settings.choices import Choice


class TpeSampler(SettingsModel):
    """Tree-structured Parzen estimator: models where good and where bad trials lie."""

    name: Literal["tpe"] = "tpe"
    startup: int = Field(10, ge=0, description="trials drawn at random before the first is proposed")
    candidates: int = Field(24, ge=1, description="draws of which the most promising one is proposed")


class GpSampler(SettingsModel):
    """Gaussian process: models the value itself; for few, slow trials."""

    name: Literal["gp"] = "gp"
    startup: int = Field(10, ge=1, description="trials drawn at random before the first is proposed")


class CmaesSampler(SettingsModel):
    """CMA-ES: an evolution strategy for many trials of two ranges or more; needs the package cmaes."""

    name: Literal["cmaes"] = "cmaes"
    startup: int = Field(1, ge=1, description="trials drawn at random before the first is proposed")
    population: int | None = Field(None, ge=2, description="trials per generation; null: from the number of ranges")
    sigma: float | None = Field(None, gt=0, le=1, description="initial standard deviation over the range; null: 1/6")


class RandomSampler(SettingsModel):
    """Independent draws."""

    name: Literal["random"] = "random"


class GridSampler(SettingsModel):
    """Every combination of choices and of evenly spaced values of ranges, in shuffled order."""

    name: Literal["grid"] = "grid"
    points: int = Field(5, ge=2, le=1000, description="values of a range, both ends included")


class MedianPruner(SettingsModel):
    """Stops a trial that is worse than the median of the complete trials at the same round."""

    name: Literal["median"] = "median"
    startup: int = Field(4, ge=0, description="complete trials before any is stopped")
    warmup: float = Field(0.2, ge=0, le=1, description="fraction of the rounds in which no trial is stopped")


class HyperbandPruner(SettingsModel):
    """Stops trials in brackets of successive halving, from eager to patient."""

    name: Literal["hyperband"] = "hyperband"
    rounds: int = Field(1, ge=1, description="rounds of the first decision in the most eager bracket")
    reduction: int = Field(3, ge=2, description="factor n: after n times the rounds, one of n trials goes on")


class NoPruner(SettingsModel):
    """Every trial runs to its end."""

    name: Literal["none"] = "none"


class NoTerminator(SettingsModel):
    """The search ends after `tune.trials`."""

    name: Literal["none"] = "none"


class StagnationTerminator(SettingsModel):
    """Ends the search when the best value has not improved for a number of complete trials."""

    name: Literal["stagnation"] = "stagnation"
    trials: int = Field(30, ge=1, description="complete trials without a better value")


class RegretTerminator(SettingsModel):
    """Ends the search when a bound on what is still to be gained falls below the error of the best value."""

    name: Literal["regret"] = "regret"
    trials: int = Field(20, ge=2, description="complete trials before the bound is looked at")
    error: float | None = Field(
        None, gt=0, description="error of a value; null: from the spread of the best trial's seeds, two or more"
    )


Sampler = TpeSampler | GpSampler | CmaesSampler | RandomSampler | GridSampler
Pruner = MedianPruner | HyperbandPruner | NoPruner
Terminator = NoTerminator | StagnationTerminator | RegretTerminator

SamplerChoice = Annotated[Sampler, Choice(Sampler, "tpe")]
PrunerChoice = Annotated[Pruner, Choice(Pruner, "median")]
TerminatorChoice = Annotated[Terminator, Choice(Terminator, "none")]
