"""Sessions are periods of the data's own time."""

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedtide.core.array_types import Ints
from fedtide.core.bounds import WHOLE
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import OMIT_DEFAULT, PluginSettings
from fedtide.world.dataset import Samples
from fedtide.world.presence.calendar import HOURS, Periods, periods
from fedtide.world.scenarios.base import Scenario, WorldInput, assign
from fedtide.world.timeline import Assignment, HeldOut, Timeline


class Calendar(Scenario):
    """Sessions are periods of the data's own time; present are the clients that have samples.

    For datasets with client IDs and timestamps, with partition ``natural``. A period is a session of ``rounds_per_period``
    rounds. A client is present if it has training samples of the period, or of the ``memory`` periods before, which it still
    holds; with participation ``active``, those take part that have samples of the round's equal part of the period. Models
    are evaluated on the period's held-out samples (of clients that have had training samples by then) and, with
    ``next_period``, on the next period: on all its samples but those for validation, also of clients that have no training
    sample yet or never get one, unless ``next_period_on`` says otherwise. Periods without training samples are skipped; the
    timeline's notes name them. Periods without test samples have no score. Parts of weeks or of days recur: a session returns
    to earlier ones of its kind.

    Nothing depends on later samples, except the number of clients that ``partition.min_samples`` and ``max_clients`` leave,
    and the bounds of ``equal`` periods.
    """

    class Settings(PluginSettings):
        name: str = "calendar"
        period: (
            Literal["year", "month", "week", "day", "weekpart", "daypart", "equal"] | Annotated[int, Field(ge=1)]
        ) = Field(
            "month",
            description="year, month, week, day, weekpart (weekdays and weekends in turn) or daypart, a length "
            "in the data's time unit, or equal: equal size",
        )
        hours: Annotated[tuple[int, ...], OMIT_DEFAULT] = Field(
            HOURS,
            min_length=2,
            description="daypart: hours at which the parts of a day begin; the last part ends with the day's first "
            "hour",
        )
        equal_periods: int = Field(12, ge=1, description="number of periods of `equal`")
        first: int = Field(1, ge=1, description="first period to train on, counted from 1")
        last: int | None = Field(None, ge=1, description="last period to train on; null: the last one")
        rounds_per_period: int = Field(10, ge=1, description="communication rounds per period")
        memory: int = Field(0, ge=0, description="earlier periods whose samples a client still holds")
        next_period: Annotated[Literal[0, 1], WHOLE] = Field(
            1, description="1: evaluate also on the next period; 0: do not"
        )
        next_period_on: Literal["all", "known", "held_out"] = Field(
            "all",
            description="samples of the next period to test on: all but those for validation (none has been trained on yet), "
            "those of clients with training samples by its end (known), or the held-out test samples of these alone",
        )

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            if list(self.hours) != sorted({*self.hours} & {*range(24)}):
                raise SettingsError(
                    f"scenario.hours = {list(self.hours)} should be different hours from 0 to 23, ascending"
                )
            if self.last is not None and self.last < self.first:
                raise SettingsError(f"scenario.last = {self.last} should be at least first = {self.first}")
            return self

    settings: Settings

    def period_of(self, times: Ints, unit: str) -> Ints:
        return self._periods(times, unit).of(times)

    def _periods(self, times: Ints, unit: str) -> Periods:
        return periods(times, self.settings.period, self.settings.equal_periods, unit, self.settings.hours)

    def timeline(self, world: WorldInput) -> Timeline:
        chosen = self.settings
        (client, time), (test_client, test_time) = _origins(world.samples), _origins(world.test)
        calendar = self._periods(time, world.unit)
        last = len(calendar.names) if chosen.last is None else chosen.last
        if max(last, chosen.first) > len(calendar.names):
            raise SettingsError(f"scenario.last = {last}: the data has {len(calendar.names)} periods")
        dealt = assign(world, world.train, None)
        if not len(dealt.origins):
            raise SettingsError(f"scenario calendar requires partition natural, not {world.partition.settings.name}")
        holdings = _Holdings(dealt.shards, calendar.of(time), len(calendar.names))
        sessions = [number for number in range(chosen.first - 1, last) if holdings.present(number, 0)]
        if not sessions:
            raise SettingsError("scenario calendar: no client has training samples in these periods")
        began = {
            int(origin): int(calendar.of(time[shard]).min())
            for origin, shard in zip(dealt.origins, dealt.shards, strict=True)
        }
        known = [
            (np.arange(len(test_time)), test_client, calendar.of(test_time)),
            (world.validation, client[world.validation], calendar.of(time[world.validation])),
        ]
        held_out = [_by_period(*samples, began, sessions) for samples in known]
        shards: list[Ints] = []
        assignments = []
        for number in sessions:
            clients = holdings.present(number, chosen.memory)
            assignments.append(Assignment(np.array(clients), len(shards) + np.arange(len(clients))))
            shards += [holdings.held(client, number, chosen.memory) for client in clients]
        session_of_round = np.repeat(np.arange(len(sessions)), chosen.rounds_per_period)
        own = [HeldOut(*parts) for parts in zip(*held_out, strict=True)]
        later: list[HeldOut] = []
        following = np.append(np.arange(1, len(sessions)), -1)
        if chosen.next_period and chosen.next_period_on != "held_out":
            everybody = chosen.next_period_on == "all"
            whose = _but_left_out(known, client[world.train], dealt.origins) if everybody else began
            test, validation = (_by_period(*samples, whose, sessions) for samples in known)
            later = [HeldOut(test[place], validation[place], holdings.of(sessions[place])) for place in following[:-1]]
            following[:-1] += len(sessions) - 1
        return Timeline(
            num_clients=len(dealt.shards),
            num_classes=world.num_classes,
            shards=shards,
            assignments=assignments,
            assignment_of_round=session_of_round,
            session_of_round=session_of_round,
            label_views=np.ones((1, world.num_classes), dtype=np.bool_),
            view_of_round=np.zeros_like(session_of_round),
            validation=world.validation,
            notes={"scenario": "calendar", "partition": "natural", **_facts(calendar, sessions), **dealt.notes},
            held_out=[*own, *later],
            held_out_of_round=session_of_round,
            next_of_round=following[session_of_round] if chosen.next_period else np.full_like(session_of_round, -1),
            origin_of_client=dealt.origins,
            active=_active(dealt.shards, time, calendar, sessions, chosen.rounds_per_period),
        )


def _origins(samples: Samples | None) -> tuple[Ints, Ints]:
    """Client and time of each sample."""
    if samples is None or samples.client is None or samples.time is None:
        raise SettingsError("scenario calendar requires a dataset with client IDs and timestamps")
    return samples.client, samples.time


class _Holdings:
    """Positions of the training samples of each client and period."""

    def __init__(self, shards: list[Ints], period: Ints, count: int) -> None:
        self._parts: list[list[Ints]] = []
        for shard in shards:
            order = np.argsort(period[shard], kind="stable")
            self._parts.append(np.split(shard[order], np.searchsorted(period[shard][order], np.arange(1, count))))

    def held(self, client: int, period: int, memory: int) -> Ints:
        return np.sort(np.concatenate(self._parts[client][max(0, period - memory) : period + 1]))

    def of(self, period: int) -> Ints:
        """Those of all clients in a period."""
        return np.sort(np.concatenate([parts[period] for parts in self._parts]))

    def present(self, period: int, memory: int) -> list[int]:
        """Clients that hold samples in a period."""
        spans = range(max(0, period - memory), period + 1)
        return [client for client, parts in enumerate(self._parts) if any(len(parts[number]) for number in spans)]


def _active(shards: list[Ints], time: Ints, calendar: Periods, sessions: list[int], rounds: int) -> list[Ints]:
    """Clients with samples in each round's part of its period."""
    owner = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
    times = time[np.concatenate(shards)]
    period, part = calendar.of(times), calendar.part(times, rounds)
    return [
        np.unique(owner[inside & (part == number)])
        for inside in (period == session for session in sessions)
        for number in range(rounds)
    ]


def _by_period(positions: Ints, owner: Ints, period: Ints, began: dict[int, int], sessions: list[int]) -> list[Ints]:
    """Positions in each session's period, of clients that have trained by then; ``began``: the period in which each has."""
    clients, places = np.unique(owner, return_inverse=True)
    first = np.array([began.get(int(client), sessions[-1] + 1) for client in clients], dtype=np.int64)[places]
    return [positions[(period == number) & (first <= number)] for number in sessions]


def _but_left_out(known: list[tuple[Ints, Ints, Ints]], trained: Ints, clients: Ints) -> dict[int, int]:
    """The owners of some samples, but for those of training samples that the partition has left out; each with period 0."""
    owners = np.unique(np.concatenate([owner for _, owner, _ in known]))
    return dict.fromkeys(np.setdiff1d(owners, np.setdiff1d(trained, clients)).tolist(), 0)


def _facts(calendar: Periods, sessions: list[int]) -> dict[str, Any]:
    skipped = [name for number, name in enumerate(calendar.names) if sessions[0] <= number and number not in sessions]
    kinds = {"kinds": [calendar.kinds[number] for number in sessions]} if calendar.kinds else {}
    return {
        "periods": [calendar.names[number] for number in sessions],
        "numbers": [number + 1 for number in sessions],
        "skipped": skipped,
        **kinds,
    }
