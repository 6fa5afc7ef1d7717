"""Settings of a search: its space, objective and length."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from fedtide.core.bounds import Threads
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import INCIDENTAL, SettingsModel
from fedtide.settings.choices import Choice
from fedtide.settings.run import Seed
from fedtide.settings.scores import OF_ERASED, SCORES

Value = bool | int | float | str | None
"""A value of a tuned setting."""


class SearchRange(SettingsModel):
    """Range of one tuned setting."""

    low: float = Field(description="smallest value")
    high: float = Field(description="largest value")
    log: bool = Field(False, description="search on a logarithmic scale")

    @model_validator(mode="after")
    def _ordered(self) -> SearchRange:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise SettingsError(f"requires low < high (and low > 0 with log), got {self.low} and {self.high}")
        return self


class SearchChoices(SettingsModel):
    """Unordered values of one tuned setting."""

    choices: tuple[Value, ...] = Field(description="two values or more: words, numbers, true, false, null")

    @field_validator("choices", mode="before")
    @classmethod
    def _several_plain(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) < 2:
            raise SettingsError(f"should be a list of two values or more, got {value!r}")
        if groups := [item for item in value if isinstance(item, Mapping | list | tuple)]:
            raise SettingsError(f"should be words, numbers, true, false or null, got {groups[0]!r}")
        if twice := [item for place, item in enumerate(value) if item in value[:place]]:
            raise SettingsError(f"lists {twice[0]!r} twice")
        return tuple(str(item) if item in (math.inf, -math.inf) else item for item in value)  # settings parse the words


def _either(value: Any) -> Any:
    """The range or the choices of a mapping, so that errors refer to the right one."""
    if isinstance(value, SearchRange | SearchChoices):
        return value
    if not isinstance(value, Mapping):
        raise SettingsError(f"should be like {{low: 0.1, high: 1.0}} or {{choices: [a, b]}}, got {value!r}")
    return (SearchChoices if "choices" in value else SearchRange).model_validate_json(json.dumps(value), strict=True)


Searched = Annotated[SearchRange | SearchChoices, BeforeValidator(_either)]


class OptunaClass(SettingsModel):
    """A class of Optuna by its name here, with Optuna's own arguments, which are checked when the search begins."""

    model_config = ConfigDict(extra="allow")


class Sampler(OptunaClass):
    """Proposes the settings of a trial."""

    name: Literal["tpe", "gp", "cmaes", "random", "grid"] = "tpe"


class Pruner(OptunaClass):
    """Decides which trials are stopped early."""

    name: Literal["median", "percentile", "halving", "hyperband", "threshold", "wilcoxon", "none"] = "median"


TuneMetric: Any = Literal[
    (
        *(f"validation_{name}" for name in SCORES),
        *("served_accuracy_mean", "served_accuracy_newcomers", "served_accuracy_worst_decile"),
        *("finetuned_accuracy_mean", "finetuned_accuracy_newcomers", "finetuned_accuracy_worst_decile"),
        *(f"erased_{name}" for name in OF_ERASED),
    )
]
"""Every score on the validation split, and accuracies over clients, each with the model it is served, or with what local steps
make of it; and measures of what erased clients have left."""


class TuneSettings(SettingsModel):
    """The study of ``fedtide tune``."""

    trials: int = Field(20, ge=1, description="finished trials (complete or pruned); raise it to resume")
    workers: Threads = Field(0, ge=0, description="trials at once; 0 for one per core")
    seed: int = Field(
        1000, ge=0, lt=2**63, description="seed of the sampler, and of runs without `seeds`; not one of compare.seeds"
    )
    seeds: tuple[Seed, ...] = Field((), description="seeds of each trial, which is scored by their mean; empty: `seed`")
    metric: TuneMetric = Field(
        "validation_accuracy",
        description="metric to optimize, averaged over some rounds; loss, calibration error and mean absolute error are "
        "minimized; `_next`: on the next period, with `scenario.next_period: 1`; validation_served: of the models that clients "
        "are served, each sample by its owner's; served_accuracy: over clients, each with the model that it is served; "
        "finetuned_accuracy: after `evaluation.finetune_steps` local steps from there; erased: of what the clients of "
        "`erase` have left, the nearest to 0 is the best; if not given, r2 for regression, "
        "mean_ap for multilabel, and with `scenario.next_period: 1` the served one of those on the next period",
    )
    over: Literal["auto", "end", "changes", "periods", "drifts"] = Field(
        "auto",
        description="rounds to average: end: the last tenth; changes: the first ten of every session that is a transition "
        "under `report.transition_counting: stored`; periods: the last of every period of a calendar; drifts: the first ten "
        "from every drift on; auto: periods on a calendar, else drifts if there is one, else changes if there is one",
    )
    until: int | None = Field(
        None,
        ge=1,
        description="last period of a search on a calendar, counted as `scenario.first`; null: the first half of the periods, "
        "at least two",
    )
    cost: Literal["kappa"] | None = Field(
        None, description="kappa: also minimize the rounds' mean communication cost, and find the Pareto front"
    )
    seconds: Annotated[float | None, INCIDENTAL] = Field(
        None,
        gt=0,
        le=1e9,
        description="wall-clock time after which trials in progress are interrupted and no others start; the same command "
        "continues; null: no limit",
    )
    sampler: Annotated[Sampler, Choice(Sampler, "tpe")] = Field(
        Sampler(),
        description="proposes the settings of a trial: tpe, gp, cmaes, random or grid; a name, or a mapping with `name` and "
        "arguments of Optuna's sampler (grid: `points`, values of a range)",
    )
    prune: bool = Field(True, description="stop poor trials early, as `pruner` decides; ignored with `cost`")
    pruner: Annotated[Pruner, Choice(Pruner, "median")] = Field(
        Pruner(),
        description="decides by the first seed which trials are stopped early: median, percentile, halving, hyperband, "
        "threshold, wilcoxon or none; a name, or a mapping with `name` and arguments of Optuna's pruner (steps are rounds)",
    )
    space: dict[str, Searched] = Field(
        {}, description="dotted setting -> range or choices; empty: what algorithm and initializer declare and local.lr"
    )

    @model_validator(mode="after")
    def _fit_together(self) -> TuneSettings:
        if twice := [seed for place, seed in enumerate(self.seeds) if seed in self.seeds[:place]]:
            raise SettingsError(f"seeds lists {twice[0]} twice")
        if self.cost and self.sampler.name == "cmaes":
            raise SettingsError("sampler = cmaes supports a single objective, and cost adds one; use tpe or gp")
        return self

    @property
    def run_seeds(self) -> tuple[int, ...]:
        return self.seeds or (self.seed,)

    @property
    def prunes(self) -> bool:
        return self.prune and self.pruner.name != "none" and not self.cost
