"""Columns of a table as features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.array_types import Bools


def encode(
    frame: pd.DataFrame, numeric: Sequence[str], categorical: Sequence[str], fit: Bools
) -> tuple[Tensor, list[str]]:
    """Features of a table's rows, learnt from some of them.

    A numeric column becomes (x - mean) / deviation; a missing value becomes 0, and a column with missing values among the rows
    to learn from has an indicator beside it. A categorical column becomes one column per category of the rows to learn from,
    a missing value being a category; what is unknown there becomes zeros in all of them.

    Args:
        frame: n rows. numeric, categorical: names of its columns. fit: bool [n], the rows to learn from.

    Returns:
        float32 [n, features], and their names.
    """
    parts: list[NDArray[np.float32]] = []
    names: list[str] = []
    for column in numeric:
        values = frame[column].to_numpy(dtype=np.float64, na_value=np.nan)
        known = values[fit & np.isfinite(values)]
        # The deviation of equal numbers may be above 0 by rounding.
        varies = len(known) > 0 and known.min() < known.max()
        mean, deviation = (known.mean(), known.std()) if varies else (known[:1].sum(), 1.0)
        scaled = np.where(np.isfinite(values), (values - mean) / deviation, 0.0)
        parts.append(scaled[:, None].astype(np.float32))
        names.append(column)
        if len(known) < fit.sum():
            parts.append((~np.isfinite(values))[:, None].astype(np.float32))
            names.append(f"{column} is missing")
    for column in categorical:
        texts = frame[column].astype("string").fillna("missing")
        categories = sorted(texts[fit].unique())
        codes = pd.Categorical(texts, categories=categories).codes
        hot = np.zeros((len(frame), len(categories)), dtype=np.float32)
        known_rows = np.flatnonzero(codes >= 0)
        hot[known_rows, codes[known_rows]] = 1.0
        parts.append(hot)
        names += [f"{column} is {category}" for category in categories]
    return torch.from_numpy(np.concatenate(parts, axis=1)), names
