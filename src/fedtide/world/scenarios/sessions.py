"""Devices arrive and depart between sessions."""

from collections.abc import Iterable
from contextlib import suppress
from fractions import Fraction
from math import floor
from typing import Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from fedtide.core.array_types import Ints
from fedtide.core.bounds import Clients, Rounds
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.world.scenarios._presence import cycle, markov
from fedtide.world.scenarios.base import Scenario, Span, WorldInput, assign, refuse_too_many, session_labels, write
from fedtide.world.timeline import Timeline


class Sessions(Scenario):
    """Devices arrive and depart between sessions, and with them labels (Chang et al. 2025).

    The population consists of groups of ``num_devices``. A partition of scope ``group`` deals each group's labels (see
    :func:`label_groups`) to its devices, so a sample of a label that two groups share is held once in each; a partition
    of scope ``population`` deals everything at once. A device keeps its id and its data. A session is evaluated on the
    labels that its devices hold.
    """

    class Settings(PluginSettings):
        name: str = "sessions"
        num_devices: Clients = Field(10, ge=1, description="devices per group")
        groups: Clients = Field(2, ge=1, description="groups of devices; group g has IDs from g num_devices")
        num_sessions: Rounds = Field(7, ge=1, description="sessions, pilot included")
        rounds_per_session: Rounds = Field(10, ge=1, description="communication rounds of a session")
        pilot_sessions: int = Field(1, ge=1, description="number of initial sessions, which train the pilot model")
        rounds_pilot: Rounds | None = Field(None, ge=1, description="rounds of a pilot session; null: as in the others")
        label_overlap: float | str = Field(
            "0", description="fraction of its labels that a group shares with the next one, a decimal number below 1"
        )
        pattern: Literal["alternate", "cycle", "markov", "explicit"] = Field(
            "alternate",
            description="alternate: two groups take turns; cycle: any number of groups take turns; markov: devices of "
            "all groups leave and arrive at random, starting with group 0; explicit: as listed",
        )
        p_leave: float = Field(0.5, ge=0, le=1, description="markov: probability that a device leaves at a boundary")
        arrivals: int = Field(5, ge=0, description="markov: devices that arrive at a boundary, at most all absent ones")
        min_devices: int = Field(1, ge=1, description="markov: smallest number of devices that remain at a boundary")
        explicit: tuple[tuple[int, ...], ...] = Field((), description="explicit: device IDs of each session")

        @field_validator("label_overlap")
        @classmethod
        def _decimal(cls, value: float | str) -> float | str:
            parse_overlap(value)
            return value

        @model_validator(mode="after")
        def _consistent(self) -> Self:
            if self.pilot_sessions > self.num_sessions:
                raise SettingsError(
                    f"pilot_sessions = {self.pilot_sessions} should be at most num_sessions = {self.num_sessions}"
                )
            if self.pattern == "alternate" and self.groups != 2:
                raise SettingsError(f"groups = {self.groups}: pattern alternate has 2 groups; use pattern cycle")
            if self.pattern == "markov" and self.min_devices > self.num_devices:
                raise SettingsError(
                    f"min_devices = {self.min_devices} should be at most num_devices = {self.num_devices}"
                )
            if (self.pattern == "explicit") != bool(self.explicit):
                raise SettingsError(
                    f"explicit lists {len(self.explicit)} sessions with pattern {self.pattern}; use both or none"
                )
            if self.explicit and len(self.explicit) != self.num_sessions:
                raise SettingsError(f"explicit lists {len(self.explicit)} sessions, num_sessions = {self.num_sessions}")
            devices = self.groups * self.num_devices
            for session, ids in enumerate(self.explicit):
                if len(set(ids) & set(range(devices))) < len(ids):
                    raise SettingsError(
                        f"explicit, session {session + 1}: {list(ids)} should be different device IDs from 0 to {devices - 1}"
                    )
            return self

    settings: Settings
    needs_classes = True

    def timeline(self, world: WorldInput) -> Timeline:
        chosen = self.settings
        shards, labels_of_group = self._deal(world)
        pilot = chosen.rounds_per_session if chosen.rounds_pilot is None else chosen.rounds_pilot
        refuse_too_many(chosen.num_sessions * chosen.rounds_per_session)
        spans = [
            Span(present, pilot if session < chosen.pilot_sessions else chosen.rounds_per_session, session)
            for session, present in enumerate(self._present(world.seed))
        ]
        notes = {
            "scenario": "sessions",
            "pattern": chosen.pattern,
            "pilot_sessions": chosen.pilot_sessions,
            "devices_per_session": [len(span.clients) for span in spans],
            "labels_of_group": [list(labels) for labels in labels_of_group],
        }
        return write(world, shards, spans, session_labels(world, shards, spans), notes)

    def _deal(self, world: WorldInput) -> tuple[list[Ints], list[range]]:
        """Shards of all devices, and the labels of each group where the scenario chooses them."""
        chosen = self.settings
        overlap = parse_overlap(chosen.label_overlap)
        if world.partition.scope == "group":
            groups = label_groups(world.num_classes, chosen.groups, overlap)
            return [shard for group, labels in enumerate(groups) for shard in self._group(world, group, labels)], groups
        if overlap:
            raise SettingsError(
                f"label_overlap = {chosen.label_overlap} has no effect with partition "
                f"{world.partition.settings.name}, which determines the labels of all devices; use 0"
            )
        return assign(world, world.train, chosen.groups * chosen.num_devices).shards, []

    def _group(self, world: WorldInput, group: int, labels: range) -> list[Ints]:
        inside = world.train[np.isin(world.labels[world.train], list(labels))]
        try:
            return assign(world, inside, self.settings.num_devices, group).shards
        except SettingsError as error:
            where = f"group {group} (labels {labels[0]} to {labels[-1]}) of num_devices each"
            raise SettingsError(f"{where}: {error}") from None

    def _present(self, seed: int) -> Iterable[Ints]:
        """Ids present in each session, ascending."""
        chosen = self.settings
        if chosen.pattern == "explicit":
            return (np.array(sorted(ids), dtype=np.int64) for ids in chosen.explicit)
        if chosen.pattern == "markov":
            first, devices = np.arange(chosen.num_devices), chosen.groups * chosen.num_devices
            rule = (chosen.p_leave, chosen.arrivals, chosen.min_devices)
            return markov(first, devices, chosen.num_sessions, *rule, seed)
        return cycle(chosen.num_devices, chosen.groups, chosen.num_sessions)


def parse_overlap(value: float | str) -> Fraction:
    """A decimal number in [0, 1) as an exact fraction, so that 0.2 is 1/5 and rounding moves no label."""
    with suppress(ValueError, ZeroDivisionError):
        if 0 <= (number := Fraction(str(value))) < 1:
            return number
    raise SettingsError(f"label_overlap should be a decimal number from 0 to below 1, e.g. 0.2, got {value!r}")


def label_groups(num_classes: int, groups: int, overlap: Fraction) -> list[range]:
    """Consecutive labels of each group, for ``num_classes`` labels 0, 1, ... and any number of groups.

    Every group has G labels and shares O = floor(overlap G) of them with the next one. G is the largest size for which all
    groups fit, G + (groups - 1) (G - O) <= num_classes (for two groups floor(num_classes / (2 - overlap)), Chang et al.
    2025); labels beyond the last group are not used. If O = 0, the labels are divided without overlap: group j has labels
    floor(j L / groups) up to floor((j + 1) L / groups).

    Raises:
        SettingsError: more groups than labels.
    """
    if groups > num_classes:
        raise SettingsError(
            f"groups = {groups} is too large: {num_classes} labels; the largest feasible value is {num_classes}"
        )
    reach = ((G, G + (groups - 1) * (G - floor(overlap * G))) for G in range(1, num_classes + 1))
    size = max(G for G, needed in reach if needed <= num_classes)
    shared = floor(overlap * size)
    if shared == 0:
        return [range(j * num_classes // groups, (j + 1) * num_classes // groups) for j in range(groups)]
    return [range(j * (size - shared), j * (size - shared) + size) for j in range(groups)]
