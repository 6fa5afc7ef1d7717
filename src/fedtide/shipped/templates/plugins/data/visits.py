from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from fedtide import SplitSettings, from_torch
from fedtide.world.data.base import Dataset, DatasetPlugin, DatasetSettings


class Visits(DatasetPlugin):
    """Visits to three shops in the first 200 days of 1970."""

    class Settings(DatasetSettings):
        name: str = "visits"

    def read(self, raw: Path) -> Dataset:
        inputs = torch.rand(600, 4, generator=torch.Generator().manual_seed(0))
        shop, second = torch.arange(600) % 3, torch.arange(600) * 28_800
        visits = TensorDataset(inputs, (inputs.sum(1) > 2).long(), shop, second)
        return from_torch(visits, client=2, time=3, split=SplitSettings(share=0.25))
