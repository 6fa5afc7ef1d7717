"""Clients are named as the data name them, in settings, messages and records, and by numbers where the data have no names."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.federation.features.attack import Attacking
from fedtide.federation.features.erasure import Erasure
from fedtide.world.clients import ClientNames
from fedtide.world.dataset import Dataset, Origins
from fedtide.world.drift.base import Drift
from fedtide.world.timeline import Timeline
from support import deal, federation, one, settings, timeline, vectors

NAMES = ("0003", "10", "0012", "NA", "north, east")


def named() -> tuple[Timeline, Dataset]:
    """Four of the five hospitals of the data, in another order: numbers 0 to 3 are 0012, 0003, north, east and 10."""
    owner = np.repeat(np.arange(5), 12)
    data = replace(vectors(), origins=Origins(train_client=owner, test_client=owner, clients=NAMES))
    world = timeline(deal([12] * 4), [{client: client for client in range(4)}] * 4)
    return replace(world, origin_of_client=np.array([2, 0, 4, 1])), data


def test_names_and_numbers() -> None:
    names = ClientNames.of(*named())
    assert [names[client] for client in range(4)] == ["0012", "0003", "north, east", "10"]
    assert names.numbers(["0012", 10, " 10 ", "north, east"], "clients") == [0, 3, 2]
    assert (names.listed([0]), names.listed([0, 3])) == ("client 0012", "clients 0012 and 10")
    many = ClientNames(40)
    assert many.listed(range(40)) == "clients 0, 1, 2, 3, 4 and 35 more"
    assert (many.numbers(["7", 39, 7], "clients"), many.shown([7]), names.shown([0])) == ([7, 39], [7], ["0012"])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (12, "key: unknown client 12; the run has clients 0012, 0003, north, east and 10; did you mean '0012'?"),
        ("0", "key: unknown client '0'; the run has clients 0012, 0003, north, east and 10"),
        (
            "0021",
            "key: unknown client '0021'; the run has clients 0012, 0003, north, east and 10; did you mean '0012'?",
        ),
        ("NA", "key: unknown client 'NA'; the run has clients 0012, 0003, north, east and 10"),
    ],
)
def test_what_is_no_name_is_refused_with_the_nearest(given: Any, line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        ClientNames.of(*named()).numbers([given], "key")
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("given", [True, 0.5, None, [1]])
def test_what_is_neither_a_name_nor_a_number_is_refused(given: Any) -> None:
    with pytest.raises(SettingsError, match=r"attack\.clients.*should be a valid integer, or a valid string"):
        settings(attack={"name": "nan", "clients": [given]})


def test_settings_name_clients_as_the_data_do() -> None:
    """Attackers, requests to erase and groups that drift."""
    world, data = named()
    erase = [{"name": "retrain", "clients": ["0012", 10], "at": 2}]
    chosen = settings(erase=erase, attack={"name": "nan", "clients": ["0003"]})
    fed = federation(chosen, world, data)
    fed.parts.workers.close()
    assert one(fed.parts, Attacking).attackers.ids == {1}
    assert one(fed.parts, Erasure).requests[0].ids.tolist() == [0, 3]
    drift: Any = plugins.create(Drift, settings(drift={"name": "sudden", "clients": [["north, east"]]}).drift)
    assert drift.settings.groups(ClientNames.of(world, data), 0).tolist() == [-1, -1, 0, -1]
    twice = settings(erase=[*erase, {"name": "retrain", "clients": ["0012"], "at": 3}])
    with pytest.raises(SettingsError, match="erase: client 0012 asks twice"):
        federation(twice, world, data)
