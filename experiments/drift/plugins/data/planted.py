"""Points whose labels follow one of two logistic rules, an angle apart."""

from __future__ import annotations

from math import cos, radians, sin
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from fedtide.core.array_types import Floats
from fedtide.core.randomness import generator
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset


class Planted(DatasetPlugin):
    """Normal points x whose label is 1 with probability sigmoid(slope w x); in table 1 w is turned by ``angle``.

    The points do not depend on the table, so that the angle is all of the drift: at 180 degrees the labels are reversed.
    For concept drift: ``drift: {name: window, concepts: [{table: 1}]}``.
    """

    class Settings(DatasetSettings):
        name: str = "planted"
        angle: float = Field(90.0, ge=0, le=180, description="degrees between the two rules")
        features: int = Field(10, ge=2, description="of a point; the label depends on two of them")
        slope: float = Field(4.0, gt=0, description="small values: much noise in the labels")
        samples: int = Field(1000, ge=2, description="training samples")
        tested: int = Field(4000, ge=2, description="test samples")
        draw: int = Field(0, ge=0, description="seed of the points")

    settings: Settings

    def read(self, raw: Path) -> Dataset:
        """Vectors float32 [n, features]; nothing is read from ``raw``."""
        chosen = self.settings
        parts, tables = [], []
        for name, count in (("train", chosen.samples), ("test", chosen.tested)):
            source = generator(chosen.draw, f"planted.{name}")
            points, luck = source.standard_normal((count, chosen.features)), source.random(count)
            odds = [chance(points, chosen.slope, angle) for angle in (0.0, chosen.angle)]
            labels = torch.from_numpy(np.stack([luck < odd for odd in odds]).astype(np.int64))
            parts.append((torch.from_numpy(points.astype(np.float32)), labels[0]))
            tables.append(labels)
        return self.dataset("vector", parts, num_classes=2, tables=tuple(tables))


def chance(points: Floats, slope: float, angle: float) -> Floats:
    """Probability [n] of label 1 at points [n, features] under the rule turned by ``angle`` degrees."""
    along = cos(radians(angle)) * points[:, 0] + sin(radians(angle)) * points[:, 1]
    return 1 / (1 + np.exp(-slope * along))


def accuracy(slope: float, apart: float) -> float:
    """Expected accuracy of the rule whose direction is ``apart`` degrees from the true one; 0: of the Bayes classifier.

    With z normal along the true direction, ``apart`` changes the prediction with probability Phi(-|z| / tan(apart)).
    """
    z = np.linspace(0, 10, 20_001)
    density = np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2)
    right = 1 / (1 + np.exp(-slope * z))
    along, across = z * cos(radians(apart)), sin(radians(apart))
    same = np.where(along >= 0, 1.0, 0.0) if across < 1e-12 else _normal(along / across)
    return float(np.trapezoid(density * (same * right + (1 - same) * (1 - right)), z))


def _normal(values: Floats) -> Floats:
    found: Floats = torch.special.ndtr(torch.from_numpy(values)).numpy()
    return found
