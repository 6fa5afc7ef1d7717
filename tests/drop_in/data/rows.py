"""A dataset in a CSV of the user's: label, then features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset


class Rows(DatasetPlugin):
    """Rows of a CSV: the first ones train, the last ten test. The file is not declared."""

    class Settings(DatasetSettings):
        """Settings of the table."""

        name: str = "rows"
        file: str = Field("table.csv", description="path of the CSV")

    settings: Settings

    def read(self, raw: Path) -> Dataset:
        """Features float32 [n, columns]."""
        rows = torch.from_numpy(np.loadtxt(self.settings.file, delimiter=",", dtype=np.float32))
        labels = rows[:, 0].long()
        return Dataset("rows", "vector", rows[:-10, 1:], labels[:-10], rows[-10:, 1:], labels[-10:], 3, digest="")
