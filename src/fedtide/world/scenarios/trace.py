"""Availability read from a file."""

import csv
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import Field

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.world.presence.visits import Visits
from fedtide.world.scenarios._presence import write_presence
from fedtide.world.scenarios.base import Scenario, WorldInput, write_visits
from fedtide.world.timeline import Timeline

_LAST_ROUND = 10_000_000  # a larger number is a time stamp
_LARGEST = {"client": 2**62, "join": _LAST_ROUND, "leave": _LAST_ROUND}


class Interval(NamedTuple):
    """One row: ``client`` is present from ``join`` up to but not including ``leave``; ``line`` is its line in the file."""

    client: int
    join: int
    leave: int
    line: int


class Trace(Scenario):
    """Clients come and go as listed in a file, by rounds or by seconds.

    The file is a CSV with a header and the integer columns ``client,join,leave`` (others are ignored): the client is
    present from round ``join`` up to but not including round ``leave``, counted from 0. A client may have several rows;
    clients are numbered by ascending id and the data is dealt to all of them. A session is evaluated on the labels that its
    clients hold. A client that returns has the same data, but its state is lost, unless ``session_at_change`` is set: then
    ``client_state.on_session_start`` decides.

    With ``seconds_per_round``, ``join`` and ``leave`` are seconds, and a client is present in the rounds in whose first second
    it is. With ``mode: async`` it then comes and goes at these seconds of simulated time, between two updates of the server.
    """

    class Settings(PluginSettings):
        name: str = "trace"
        file: str = Field("trace.csv", description="path of the CSV file, relative to the working directory")
        rounds: int | None = Field(None, ge=1, le=_LAST_ROUND, description="rounds; null: until all have left")
        seconds_per_round: int | None = Field(
            None,
            ge=1,
            description="seconds between starts of rounds, if join and leave are seconds; null: they are rounds",
        )
        session_at_change: bool = Field(False, description="begin a new session at every arrival or departure")

    settings: Settings

    def files(self) -> tuple[Path, ...]:
        return (Path(self.settings.file),)

    def timeline(self, world: WorldInput) -> Timeline:
        chosen = self.settings
        intervals = read_trace(Path(chosen.file))
        ids = sorted({interval.client for interval in intervals})
        notes = {"scenario": "trace", "file": Path(chosen.file).name, "ids": ids}
        if world.events and self.in_seconds:
            if chosen.rounds is None:
                raise SettingsError(
                    "scenario.rounds = null: with mode: async and a trace in seconds the number of updates is "
                    "required; give a number"
                )
            own = [[(row.join, row.leave) for row in rows] for _, rows in groupby(intervals, lambda row: row.client)]
            visits = Visits.of(own, [0] * len(ids), [0] * len(ids))
            return write_visits(world, visits, chosen.rounds, chosen.session_at_change, notes)
        if (seconds := chosen.seconds_per_round) is not None:  # the rounds in whose first seconds clients are present
            first = [row._replace(join=-(-row.join // seconds), leave=-(-row.leave // seconds)) for row in intervals]
            intervals = [row for row in first if row.join < row.leave]
        present = np.zeros(
            (len(ids), chosen.rounds or max((row.leave for row in intervals), default=1)), dtype=np.bool_
        )
        number = {client: place for place, client in enumerate(ids)}
        for row in intervals:
            present[number[row.client], row.join : row.leave] = True
        return write_presence(world, present, chosen.session_at_change, notes)

    @property
    def in_seconds(self) -> bool:
        return self.settings.seconds_per_round is not None


def read_trace(path: Path) -> list[Interval]:
    """The rows of a trace file, sorted by client and then by time; a bad one is a SettingsError with line and value."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [column for column in _LARGEST if column not in (reader.fieldnames or ())]
            if missing:
                raise SettingsError(
                    f"{path}, line 1: no column {missing[0]!r}; the header requires {','.join(_LARGEST)}"
                )
            intervals = sorted(_interval(path, reader.line_num, row) for row in reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SettingsError(f"scenario.file = {str(path)!r} is not a readable CSV file: {error}") from None
    if not intervals:
        raise SettingsError(f"{path}: no rows below the header")
    for earlier, later in pairwise(intervals):
        if earlier.client == later.client and later.join < earlier.leave:
            raise SettingsError(
                f"{path}, line {later.line}: client {later.client} joins in round {later.join}, but is present until "
                f"{earlier.leave} by line {earlier.line}"
            )
    return intervals


def _interval(path: Path, line: int, row: dict[str, str]) -> Interval:
    values = []
    for column, largest in _LARGEST.items():
        text = (row[column] or "").strip()
        if not text.isdecimal() or len(text) > 19 or int(text) > largest:
            raise SettingsError(f"{path}, line {line}: {column} = {text!r} should be an integer from 0 to {largest}")
        values.append(int(text))
    client, join, leave = values
    if leave <= join:
        raise SettingsError(f"{path}, line {line}: leave = {leave} should be greater than join = {join}")
    return Interval(client, join, leave, line)
