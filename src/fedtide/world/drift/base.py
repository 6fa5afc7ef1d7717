"""What a kind of drift is: the concept of every client in every round."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from fedtide.core.array_types import Bools, Ints
from fedtide.core.bounds import LARGEST
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Plugin, PluginSettings, SettingsModel
from fedtide.core.randomness import generator
from fedtide.world.clients import Client, ClientNames
from fedtide.world.concepts import Concept
from fedtide.world.timeline import Timeline


class ConceptSettings(SettingsModel):
    """What a client makes of a sample."""

    swap: tuple[tuple[int, int], ...] = Field((), description="pairs of labels to swap")
    labels: tuple[int, ...] | None = Field(None, description="label map: y becomes labels[y]")
    table: int | None = Field(None, ge=0, description="index of the data's label table for this concept")
    turns: int = Field(0, ge=0, le=3, description="counter-clockwise quarter turns of an image")
    matrix: tuple[tuple[float, ...], ...] | None = Field(None, description="A of x -> A x + b, row by row")
    shift: tuple[float, ...] | None = Field(None, description="b of x -> A x + b")

    @model_validator(mode="after")
    def _one_map_of_labels(self) -> Self:
        if bool(self.swap) + (self.labels is not None) + (self.table is not None) > 1:
            raise SettingsError("swap, labels and table exclude each other; give one of them")
        return self

    def concept(self, classes: int) -> Concept:
        """The concept for labels 0 to ``classes - 1``."""
        labels = self.labels
        if self.swap:
            if wrong := [label for pair in self.swap for label in pair if not 0 <= label < classes]:
                raise SettingsError(f"swap: unknown label {wrong[0]}; labels are 0 to {classes - 1}")
            order = list(range(classes))
            for one, other in self.swap:
                order[one], order[other] = order[other], order[one]
            labels = tuple(order)
        return Concept(labels, self.table, self.turns, self.matrix, self.shift)


class Moment(SettingsModel):
    """A round of the run, as a number or by its session or period."""

    round: int | None = Field(None, ge=0, le=LARGEST, description="rounds before it")
    session: int | None = Field(None, ge=1, le=LARGEST, description="session number, from 1; its first round")
    period: str | None = Field(None, description="calendar period, as in 2013-07; its first round")

    @model_validator(mode="before")
    @classmethod
    def _number_or_mapping(cls, value: Any) -> Any:
        return {"round": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(value is not None for value in (self.round, self.session, self.period)) != 1:
            raise SettingsError("should be a number of rounds, {session: 3} or {period: 2013-07}")
        return self

    def of(self, timeline: Timeline, key: str) -> int:
        """The round, 0-based; refused if the run has none of that number or name."""
        if self.round is not None:
            if self.round >= timeline.rounds:
                raise SettingsError(f"{key} = {self.round}: the run has {timeline.rounds} rounds")
            return self.round
        if self.session is not None:
            if self.session > timeline.sessions:
                raise SettingsError(f"{key}.session = {self.session}: the run has {timeline.sessions} sessions")
            return int(timeline.session_starts[self.session - 1])
        periods = timeline.notes.get("periods", [])
        if self.period not in periods:
            known = f"periods {periods[0]} to {periods[-1]}" if periods else "no periods; use scenario calendar"
            raise SettingsError(f"{key}.period = {self.period}: the run has {known}")
        return int(timeline.session_starts[periods.index(self.period)])


def round_of(moment: Moment | None, timeline: Timeline, key: str, share: float) -> int:
    """The round of a setting; without one, after this share of the rounds."""
    return int(share * timeline.rounds) if moment is None else moment.of(timeline, key)


When = Moment | None


@dataclass(frozen=True)
class Population:
    """Who may drift when: the timeline without drift, the group of each client (-1: never drifts), the world's seed."""

    timeline: Timeline
    group: Ints
    seed: int


class DriftSettings(PluginSettings):
    """Concepts, and who changes to which. Group g sees concept g + 1 while it is under drift, else concept 0."""

    concepts: tuple[ConceptSettings, ...] = Field(
        (ConceptSettings.model_construct(swap=((0, 1),)),),
        min_length=1,
        description="new concepts of the groups: 1, 2, ..., each {swap: [[1, 2]]}, {turns: 1}, ...",
    )
    initial: ConceptSettings = Field(ConceptSettings.model_construct(), description="concept 0, the initial concept")
    share: float = Field(
        1.0, gt=0, le=1, description="share of clients that drift, sampled and dealt to the groups in turn"
    )
    clients: tuple[tuple[Client, ...], ...] = Field(
        (), description="names of each group's clients, or IDs where the data name none, instead of `share`"
    )
    modulus: int | None = Field(
        None, ge=1, le=LARGEST, description="groups by ID modulo this number, instead of `share`"
    )
    bounds: tuple[int, ...] = Field((), description="the group is the first whose bound exceeds ID modulo `modulus`")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ways = [self.share < 1, bool(self.clients), self.modulus is not None]
        if sum(ways) > 1:
            raise SettingsError("share, clients and modulus exclude each other; give one of them")
        if (self.modulus is None) != (not self.bounds):
            raise SettingsError("modulus and bounds require each other; give both, or neither")
        if self.bounds and (
            list(self.bounds) != sorted(set(self.bounds)) or not 0 < self.bounds[-1] <= (self.modulus or 0)
        ):
            raise SettingsError(f"bounds = {list(self.bounds)} should ascend, up to modulus = {self.modulus}")
        groups = len(self.clients) or len(self.bounds)
        if groups > len(self.concepts):
            raise SettingsError(f"concepts lists {len(self.concepts)}, but there are {groups} groups")
        return self

    def groups(self, names: ClientNames, seed: int) -> Ints:
        """The group of each client, -1 for those that never drift, int64 [N]."""
        clients = names.count
        group = np.full(clients, -1, dtype=np.int64)
        if self.modulus is not None:
            place = np.searchsorted(self.bounds, np.arange(clients) % self.modulus, side="right")
            return np.where(place < len(self.bounds), place, -1)
        if self.clients:
            for number, listed in enumerate(self.clients):
                ids = names.numbers(listed, "drift.clients")
                if twice := [id_ for id_ in ids if group[id_] >= 0]:
                    raise SettingsError(f"drift.clients: client {names[twice[0]]} is listed twice")
                group[ids] = number
            return group
        drawn = generator(seed, "drift.clients").permutation(clients)[: round(self.share * clients)]
        group[drawn] = np.arange(len(drawn)) % len(self.concepts)
        return group


class StartSettings(DriftSettings):
    """Concepts that change from some round on."""

    start: When = Field(
        None, description="rounds before the first change, {session: 3} or {period: 2013-07}; null: half of all rounds"
    )

    def start_round(self, p: Population) -> int:
        """The round of the first change, 0-based."""
        return round_of(self.start, p.timeline, "drift.start", 0.5)


class Drift(Plugin):
    """Says under which concept every client is in every round, whether or not it is present."""

    kind: ClassVar[str] = "drift"

    @abstractmethod
    def concepts(self, p: Population) -> Ints:
        """Number of the concept of each client in each round, int64 [rounds, N].

        Raises:
            SettingsError: the run has no such round; the message names the setting.
        """

    def share(self, t: int, p: Population) -> float:
        """Share of a client's samples that it sees under its concept in round ``t``; the others under concept 0."""
        return 1.0


def from_start(p: Population, drifting: Bools) -> Ints:
    """Concepts [rounds, N] of clients that see that of their group where ``drifting`` [rounds, 1] or [rounds, N]."""
    return np.where(drifting & (p.group >= 0), p.group + 1, 0)
