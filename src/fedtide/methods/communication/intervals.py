"""Averages inside a round at client-specific intervals."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field, field_validator

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.methods.algorithms.base import Algorithm, Round
from fedtide.methods.communication._budgets import Budget, FixBudget, affordable
from fedtide.methods.communication.base import Communication, Schedule
from fedtide.methods.selection.base import Candidates, Selection
from fedtide.settings.choices import SelectionChoice, choice_field
from fedtide.settings.groups.local import LocalSettings

LETTERS = {"a": 1, "b": 4, "c": 16, "d": 32, "e": 64, "f": 128, "g": 256}
_INTERVAL = r"[a-g]|[1-9]\d*"
_NAMED = re.compile(rf"(?P<high>{_INTERVAL})(?:-(?P<low>{_INTERVAL})|(?P<star>\*))?")


class Notation(NamedTuple):
    """Intervals in local steps: of the group, of the others, and whether the group alone trains."""

    high: int
    low: int
    star: bool


def read_notation(name: str) -> Notation:
    """``x``: all clients at interval x; ``x-y``: the group at x, the others at y >= x; ``x*``: the group alone, at x."""
    parts = _NAMED.fullmatch(name)
    if parts is None:
        raise SettingsError(f"{name!r} should be like a, a-g or a* with letters a to g or numbers of steps")
    high, low = (int(LETTERS.get(interval, interval)) for interval in (parts["high"], parts["low"] or parts["high"]))
    if high > low:
        raise SettingsError(f"{name!r}: the group's interval comes first and is the shorter one")
    return Notation(high, low, bool(parts["star"]))


Counting = Literal["paper", "legacy"]


def uploads(length: int, interval: int, counting: Counting = "paper") -> list[int]:
    """The nu_m local steps (1-based) after which client m exchanges models, in a round of ``length`` of them (eq. 2).

    ``paper``: after every ``interval``-th step and after the last. ``legacy``: the released code starts blocks at 1, 1 + I,
    1 + 2I, ... *below* L and the last one ends at L, so an upload after step L - 1 is missing (interval a only, in practice).
    """
    interval = min(interval, length)
    blocks = max(1, -(-(length - (counting == "legacy")) // interval))
    return [interval * block for block in range(1, blocks)] + [length]


class Intervals(Communication):
    """DynamicFL: clients average every few steps, a selected group more often (Le et al. 2024).

    After each local step, *one* average over the clients that are due (with the weights of the average at the end of the
    round) replaces their models; all are due after the last step. ``a-g`` is DynamicAvg with intervals of 1 and 256 steps
    (letters a to g: 1, 4, 16, 32, 64, 128, 256, cut to the length L of the round; or any two numbers of steps), ``a`` is
    DynamicSGD, an interval of L or more is FedAvg with L equal steps, and with ``a*`` only the group trains. ``selection``
    chooses the group among the clients that can afford it.

    Deviations: local momentum starts at zero every round (``local.momentum_scope: client`` is the released code). Moments of
    other local optimizers stay the clients' own. The transfer of label counts and of the label-private sketches is not charged.
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
            None, gt=0, le=1, description="exact share of the active clients in the group; null: the selection decides"
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
            read_notation(value)
            return value

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.high, self.low, self.star = read_notation(settings.intervals)
        self.selection = plugins.create(Selection, settings.selection)

    @property
    def needs_classes(self) -> bool:
        """If the selection does and there is a group to select."""
        return self.selection.needs_classes and (self.star or self.high != self.low)

    def schedule(self, r: Round) -> Schedule:
        """The group z of the active clients A, then those due after each step l < L: U_l = {m in A: l mod I_m = 0}."""
        L, A = int(r.steps.max()), range(len(r.ids))
        often, seldom = (set(uploads(L, interval, self.settings.schedule)) for interval in (self.high, self.low))
        if self.star:
            seldom = set()
        z = set(A if often == seldom else self._group(r, len(often), len(seldom)))
        U = {step: [m for m in A if step in (often if m in z else seldom)] for step in sorted((often | seldom) - {L})}
        idle = [m for m in A if m not in z] if self.star else []
        return Schedule([pair for pair in U.items() if pair[1]], idle, self.settings.star_mode == "damped")

    def _group(self, r: Round, high: int, low: int) -> Sequence[int]:
        """z: rows whose models cost ``high`` exchanges a round instead of ``low`` (eq. 5)."""
        eligible, most = affordable(self.settings.budget, r, high, low)
        if most == 0:
            return []
        portion = self.settings.portion
        size = None if portion is None else min(max(1, round(portion * len(r.ids))), most)
        return self.selection.choose(Candidates(r, eligible, most, size))

    def require(self, algorithm: Algorithm, local: LocalSettings) -> None:
        if "exchanges" not in algorithm.admits:
            raise SettingsError(
                f"communication.name = 'intervals' cannot be combined with algorithm {algorithm.settings.name!r}: its updates "
                "assume that clients average only at the end of the round; fedavg and fedprox, for example, can be combined"
            )
        if (weighting := algorithm.settings.weighting.name) not in ("samples", "uniform"):
            raise SettingsError(
                f"communication.name = 'intervals' cannot be combined with algorithm.weighting {weighting!r}, which depends on "
                "the whole cohort; use samples or uniform"
            )
        if local.unit not in ("steps", "mean_epochs"):
            raise SettingsError(
                f"local.{local.unit} = {local.amount}: communication intervals requires equal numbers of steps; use "
                "local.steps or local.mean_epochs"
            )
