"""Averages inside a round at client-specific intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from fedtide.algorithms.base import Algorithm, Round
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.exchange._budgets import Budget, FixBudget
from fedtide.exchange.base import Exchange, Schedule
from fedtide.selection.base import Candidates, Selection
from fedtide.settings.choices import SelectionChoice, choice_field
from fedtide.settings.run import LocalSettings

LETTERS = {"a": 1, "b": 4, "c": 16, "d": 32, "e": 64, "f": 128, "g": 256}
_INTERVAL = r"[a-g]|[1-9]\d*"
_NAMED = re.compile(rf"(?P<high>{_INTERVAL})(?:-(?P<low>{_INTERVAL})|(?P<star>\*))?")

Counting = Literal["paper", "legacy"]


def uploads(length: int, interval: int, counting: Counting = "paper") -> list[int]:
    """Local steps (1-based) after which a client exchanges models, in a round of ``length`` of them.

    ``paper``: after every ``interval``-th step and after the last. ``legacy``: the released code starts blocks at 1, 1 + I,
    1 + 2I, ... *below* L and the last one ends at L, so an upload after step L - 1 is missing (interval a only, in practice).
    """
    interval = min(interval, length)
    blocks = max(1, -(-(length - (counting == "legacy")) // interval))
    return [interval * block for block in range(1, blocks)] + [length]


class Intervals(Exchange):
    """DynamicFL: clients average every few steps, a selected group more often (Le et al. 2024).

    After each local step, *one* average over the clients that are due (with the weights of the average at the end of the
    round) replaces their models; all are due after the last step. ``a-g`` is DynamicAvg with intervals of 1 and 256 steps
    (letters a to g: 1, 4, 16, 32, 64, 128, 256, cut to the length L of the round; or any two numbers of steps), ``a`` is
    DynamicSGD, an interval of L or more is FedAvg with L equal steps, and with ``a*`` only the group trains. ``selection``
    chooses the group among the clients that can afford it.

    Deviations: local momentum starts at zero every round (``local.momentum_scope: client`` is the released code). With other
    local optimisers than SGD models are averaged too, and moments stay the clients' own. The
    transfer of label counts (once) and of the label-private sketches is not charged.
    """

    class Settings(PluginSettings):
        name: str = "intervals"
        intervals: str = Field(
            "a-g",
            description="x: all clients; x-y: the selected group x, the others y; x*: only the group trains, at x",
        )
        selection: SelectionChoice = choice_field("dynacomm", "how the group is chosen")
        budget: Budget = Field(FixBudget(), description="which clients can afford to be in the group, and how many")
        portion: float | None = Field(
            None,
            gt=0,
            le=1,
            description="exact share of the active clients in the group; null: the selection decides",
        )
        schedule: Counting = Field(
            "paper", description="legacy: without the upload after the last step but one, as in the released code"
        )
        star_mode: Literal["exclusive", "damped"] = Field(
            "exclusive",
            description="x*: the last average is over the group alone, or (as published) includes the others' unchanged models",
        )

        @field_validator("intervals")
        @classmethod
        def _named(cls, value: str) -> str:
            if not _NAMED.fullmatch(value):
                raise SettingsError(f"{value!r} should be like a, a-g or a* with letters a to g or numbers of steps")
            high, _, low = value.rstrip("*").partition("-")
            if low and _steps(high) > _steps(low):
                raise SettingsError(f"{value!r}: the group's interval comes first and is the shorter one")
            return value

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        parts = _NAMED.fullmatch(settings.intervals)
        assert parts is not None
        self.high = _steps(parts["high"])
        self.low = _steps(parts["low"] or parts["high"])
        self.star = bool(parts["star"])
        self.selection = plugins.create(Selection, settings.selection)

    @property
    def needs_classes(self) -> bool:
        """See :class:`Plugin`: if the selection does and there is a group to select."""
        return self.selection.needs_classes and (self.star or self.high != self.low)

    def schedule(self, r: Round) -> Schedule:
        length, all_rows = int(r.steps.max()), range(len(r.ids))
        often, seldom = (uploads(length, interval, self.settings.schedule) for interval in (self.high, self.low))
        if self.star:
            seldom = []
        group = set(self._group(r, len(often), len(seldom)) if often != seldom else all_rows)
        others = set(all_rows) - group
        due = [(group, set(often)), (set() if self.star else others, set(seldom))]
        averages = [
            (step, sorted(set().union(*(rows for rows, steps in due if step in steps))))
            for step in sorted({*often, *seldom} - {length})
        ]
        idle = sorted(others) if self.star else []
        return Schedule([pair for pair in averages if pair[1]], idle, self.settings.star_mode == "damped")

    def _group(self, r: Round, high: int, low: int) -> Sequence[int]:
        """Rows of the group that uses the short interval, which costs ``high`` exchanges instead of ``low``."""
        active, budget = len(r.ids), self.settings.budget
        affordable = budget.of_clients(r.clients, high, low, r.randomness)[r.ids] >= high
        most = int(min(active, budget.of_server(active, high) // high))
        eligible = np.flatnonzero(affordable)
        portion = self.settings.portion
        size = None if portion is None else min(max(1, round(portion * active)), most, len(eligible))
        if min(most, len(eligible)) == 0:
            return []
        return self.selection.choose(Candidates(r, eligible, most, size))

    def require(self, algorithm: Algorithm, local: LocalSettings) -> None:
        if not algorithm.averages_inside_round:
            raise SettingsError(
                f"exchange.name = 'intervals' cannot be combined with algorithm {algorithm.settings.name!r}: its updates "
                "assume that clients average only at the end of the round; fedavg and fedprox, for example, can be combined"
            )
        if (weighting := algorithm.settings.weighting.name) not in ("samples", "uniform"):
            raise SettingsError(
                f"exchange.name = 'intervals' cannot be combined with algorithm.weighting {weighting!r}, which depends on "
                "the whole cohort; use samples or uniform"
            )
        if local.unit not in ("steps", "mean_epochs"):
            raise SettingsError(
                f"local.unit = {local.unit!r}: exchange.name = 'intervals' needs equal numbers of steps: steps or mean_epochs"
            )


def _steps(interval: str) -> int:
    return LETTERS[interval] if interval in LETTERS else int(interval)
