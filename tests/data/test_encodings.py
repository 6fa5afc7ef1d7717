"""Datasets that carry an encoding: kept when they are prepared, part of their digest, refused if it is another's."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from fedtide.core.errors import SettingsError
from fedtide.world.adapters.encoding import Encoding
from fedtide.world.data.base import Dataset, DatasetPlugin, DatasetSettings
from fedtide.world.data.table import Table
from fedtide.world.storage.prepared import load

ROWS = pd.DataFrame({"size": [1.25, 2.5, None, 4.75] * 5, "color": ["red", "blue", "red", None] * 5})
LABELS = ["no", "no", "yes", "yes"] * 5


def encoding(outputs: Sequence[str] = ("no", "yes"), **others: Any) -> Encoding:
    return Encoding.fit(ROWS, ["size"], ["color"], outputs=outputs, **others)


class Own(DatasetPlugin):
    """Rows of the user's."""

    class Settings(DatasetSettings):
        name: str = "own"

    given: Any = None

    def read(self, raw: Path) -> Dataset:
        inputs, labels = encoding().apply(ROWS), torch.tensor([name == "yes" for name in LABELS]).long()
        parts = ((inputs[rows], labels[rows]) for rows in (slice(4, None), slice(4)))
        return self.dataset("vector", parts, 2, encoding=self.given)


def own(given: Any, folder: Path) -> Dataset:
    plugin = Own(Own.Settings())
    plugin.given = given
    return load(plugin, folder)


def test_a_prepared_table_keeps_the_encoding_of_its_inputs(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    frame = ROWS.assign(label=LABELS)
    frame.to_csv(file, index=False)
    plugin = Table(Table.Settings(file=str(file)))
    read, again = load(plugin, tmp_path), load(plugin, tmp_path)
    assert isinstance(read.encoding, Encoding)
    assert again.encoding == read.encoding
    assert (read.encoding.outputs, read.encoding.task) == (("no", "yes"), "classification")
    found = {tuple(row) for row in read.encoding.apply(pd.read_csv(file)).tolist()}
    assert found == {tuple(row) for row in torch.cat([read.train_inputs, read.test_inputs]).tolist()}


def test_other_names_are_other_data(tmp_path: Path) -> None:
    """Equal numbers, so that a run is not taken for one whose predictions have other names."""
    plain, one, other = (
        own(given, tmp_path / str(place)) for place, given in enumerate((None, encoding(), encoding(("a", "b"))))
    )
    assert torch.equal(one.train_inputs, other.train_inputs)
    assert len({plain.digest, one.digest, other.digest}) == 3
    assert own(encoding(), tmp_path / "again").digest == one.digest


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            encoding(("no", "perhaps", "yes")),
            r"an encoding of classification, inputs \[5\], 2 outputs, got .* 3 outputs",
        ),
        (Encoding.fit(ROWS, ["size"], [], outputs=("no", "yes")), r"got .* inputs \[2\], 2 outputs"),
        (DatasetSettings(name="own"), "an Encoding, got DatasetSettings"),
    ],
)
def test_an_encoding_of_something_else_is_one_line(given: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"read of own should return .*{message}"):
        own(given, tmp_path)


def test_features_of_a_network_have_no_encoding(tmp_path: Path) -> None:
    data = own(encoding(), tmp_path)
    assert data.with_features(data.train_inputs, data.test_inputs).encoding is None
    assert replace(data, name="x").encoding == data.encoding
