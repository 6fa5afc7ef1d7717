"""The clients of a run as people name them: as the data do, or by their numbers where the data have no names for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import StrictInt, StrictStr

from fedtide.core.errors import SettingsError, meant
from fedtide.world.adapters.names import name_of
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline

Client = StrictInt | StrictStr
"""A client in settings: its name in the data (``0012``, or ``7`` for the name ``"7"``), or else its number."""

_LISTED = 5


@dataclass(frozen=True)
class ClientNames:
    """``own`` [N]: the names that the data have for clients 0 to N - 1 (``count``), empty if the clients are not the data's."""

    count: int
    own: tuple[str, ...] = ()

    @staticmethod
    def of(timeline: Timeline, data: Dataset) -> ClientNames:
        names, numbers = data.origins.clients, timeline.origin_of_client.tolist()
        return ClientNames(timeline.num_clients, tuple(names[number] if names else str(number) for number in numbers))

    def __getitem__(self, client: int) -> str:
        return self.own[client] if self.own else str(client)

    def shown(self, clients: Iterable[int]) -> list[int | str]:
        """The clients, JSON-able: their names, or their numbers if they have none."""
        return [self.own[client] if self.own else client for client in clients]

    def listed(self, clients: Sequence[int]) -> str:
        """``client 3``, or ``clients 3, 5 and 7``; of many the first five and how many more there are."""
        names = [self[client] for client in clients]
        shown, last = (
            (names[:-1], names[-1]) if len(names) <= _LISTED else (names[:_LISTED], f"{len(names) - _LISTED:,} more")
        )
        return f"clients {', '.join(shown)} and {last}" if shown else f"client {last}"

    def numbers(self, clients: Iterable[Client], key: str) -> list[int]:
        """The numbers of clients that settings name, in their order, each once.

        Raises:
            SettingsError: there is no such client; the line names the ``key`` and the nearest name.
        """
        number_of = {name: number for number, name in enumerate(self.own)}
        found: dict[int, None] = {}
        for client in clients:
            name = name_of(client)
            number = number_of.get(str(client), number_of.get(name))
            if not self.own and name.isdecimal() and int(name) < self.count:
                number = int(name)
            if number is None:
                known = f"client IDs are 0 to {self.count - 1}"
                if self.own:
                    known = f"the run has {self.listed(range(self.count))}{meant(name, self.own)}"
                raise SettingsError(f"{key}: unknown client {client!r}; {known}")
            found[number] = None
        return list(found)
