"""A column that first appears in a later round is refused: the table has none for it."""

from pathlib import Path

import pytest

from fedtide.core.errors import SettingsError
from fedtide.records.run_directory import RunDirectory


@pytest.mark.parametrize("table", ["history", "clients"])
def test_a_column_that_earlier_rounds_lack_is_refused(tmp_path: Path, table: str) -> None:
    directory = RunDirectory(tmp_path)
    first = {"client": [0, 3], "speed": [1.0, 2.0]}
    directory.append({"round": 1, "loss": 0.5}, {}, first)
    late = {"mine": 1.0} if table == "history" else {}
    clients = first if table == "history" else {**first, "mine": [1.0, 2.0]}
    with pytest.raises(SettingsError, match=rf"{table}\.csv: round 2 records mine, which earlier rows lack"):
        directory.append({"round": 2, "loss": 0.4, **late}, {}, clients)


def test_a_column_without_a_value_is_empty(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.append({"round": 1, "loss": 0.5, "mine": None}, {})
    directory.append({"round": 2, "mine": 2.0}, {})
    rows = (tmp_path / "history.csv").read_text().splitlines()
    assert [row.split(",")[-2:] for row in rows] == [["loss", "mine"], ["0.5", ""], ["", "2.0"]]
