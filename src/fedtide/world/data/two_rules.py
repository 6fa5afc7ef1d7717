"""Points of the unit square, labeled by two rules."""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from fedtide.core.array_types import Floats, Ints
from fedtide.core.bounds import LARGEST
from fedtide.core.randomness import generator
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset


class TwoRules(DatasetPlugin):
    """Uniform points x of the unit square, whose label follows one of two rules: SINE or CIRCLE of the drift literature.

    ======== ============================================== ==============================================
    rule     labels, table 0                                table 1
    ======== ============================================== ==============================================
    sine     1 where x_2 <= sin(x_1)                        the opposite
    circle   0 within 0.15 of (0.2, 0.5)                    0 within 0.25 of (0.6, 0.5)
    ======== ============================================== ==============================================

    For concept drift: ``drift: {name: sudden, concepts: [{table: 1}]}``. Rules as in Jothimurugesan et al. 2023, whose data
    come from Pesaranghader et al. 2016.
    """

    class Settings(DatasetSettings):
        name: str = "two_rules"
        rule: Literal["sine", "circle"] = Field("sine", description="pair of rules")
        samples: int = Field(5000, ge=2, le=LARGEST, description="training samples")
        tested: int = Field(1000, ge=2, le=LARGEST, description="test samples")
        draw: int = Field(0, ge=0, le=LARGEST, description="seed of the points")

    settings: Settings

    def read(self, raw: Path) -> Dataset:
        """Vectors float32 [n, 2]; nothing is read from ``raw``."""
        chosen, parts, tables = self.settings, [], []
        for name, count in (("train", chosen.samples), ("test", chosen.tested)):
            points = generator(chosen.draw, f"two_rules.{name}").random((count, 2)).astype(np.float32)
            labels = torch.from_numpy(labels_of(points, chosen.rule))
            parts.append((torch.from_numpy(points), labels[0]))
            tables.append(labels)
        return self.dataset("vector", parts, num_classes=2, tables=tuple(tables))


def labels_of(points: NDArray[np.floating], rule: str) -> Ints:
    """Labels [2, n] of points [n, 2] under both tables."""
    x: Floats = points.astype(np.float64)
    if rule == "sine":
        first = x[:, 1] <= np.sin(x[:, 0])
        return np.stack([first, ~first]).astype(np.int64)
    circles = (((0.2, 0.5), 0.15), ((0.6, 0.5), 0.25))
    return np.stack([((x - center) ** 2).sum(1) > radius**2 for center, radius in circles]).astype(np.int64)
