"""Departures from New York City, from the package's real files."""

import zipfile

import numpy as np
import pandas as pd
import pytest

from fedtide.world.data.flights import Flights
from fedtide.world.presence.calendar import periods

OUTCOMES = ["dep_time", "dep_delay", "arr_time", "air_time"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The real files, with a tenth of the flights."""
    flights, planes, weather = Flights(Flights.Settings()).files()
    part = tmp_path_factory.mktemp("flights") / "flights.csv.zip"
    with zipfile.ZipFile(flights) as archive:
        frame = pd.read_csv(archive.open("flights.csv"))
    frame[::10].to_csv(part, index=False, compression={"method": "zip", "archive_name": "flights.csv"})
    return part, planes, weather


class Tenth(Flights):
    """The data set with other files."""

    chosen = ()

    def files(self):
        return self.chosen


def read(files, tmp_path, **settings):
    plugin = Tenth(Tenth.Settings(**settings))
    plugin.chosen = files
    return plugin.read(tmp_path)


@pytest.mark.slow
def test_flights_that_arrived_and_how_late_they_are(files, tmp_path):
    data = read(files, tmp_path)
    assert len(data.train_labels) + len(data.test_labels) == 32_729
    labels = np.concatenate([data.train_labels.numpy(), data.test_labels.numpy()])
    times = np.concatenate([data.origins.train_time, data.origins.test_time])
    calendar = periods(times, "month")
    assert calendar.names == tuple(f"2013-{month:02}" for month in range(1, 13))
    late = [labels[calendar.of(times) == month].mean() for month in range(12)]
    assert (np.argmin(late), np.argmax(late)) == (8, 11)
    assert late[8] == pytest.approx(0.13, abs=0.02)
    assert late[11] == pytest.approx(0.33, abs=0.02)
    assert bool(data.train_inputs.isfinite().all())


@pytest.mark.slow
def test_outcomes_are_not_among_the_features(files, tmp_path):
    flights, *others = files
    frame = pd.read_csv(flights).drop(columns=OUTCOMES)
    without = tmp_path / "flights.csv"
    frame.to_csv(without, index=False)
    whole, bare = read(files, tmp_path), read((without, *others), tmp_path)
    assert (whole.train_inputs == bare.train_inputs).all()
    assert (whole.test_inputs == bare.test_inputs).all()


@pytest.mark.parametrize(("client", "count"), [("carrier", 16), ("destination", 99)])
def test_clients_are_a_setting(files, tmp_path, client, count):
    assert len(read(files, tmp_path, client=client).origins.clients) == count


def test_minutes_of_delay_are_those_of_the_same_flights(files, tmp_path):
    late, minutes = (read(files, tmp_path, target=target) for target in ("late", "minutes"))
    assert (minutes.task, minutes.num_classes, minutes.outputs) == ("regression", 1, 1)
    for split in ("train", "test"):
        assert ((getattr(minutes, f"{split}_labels") > 15).long() == getattr(late, f"{split}_labels")).all()
        assert (getattr(minutes, f"{split}_inputs") == getattr(late, f"{split}_inputs")).all()
    assert minutes.train_labels.min() < 0
    assert "target" not in Flights.Settings().canonical()
    assert Flights.Settings(target="minutes").canonical()["target"] == "minutes"
