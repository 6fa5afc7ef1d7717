"""Datasets of rows whose features are learned from some of them; windows of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.settings.scores import TaskName
from fedtide.world.adapters.columns import origins_of
from fedtide.world.adapters.encoding import Encoding
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.dataset import Dataset
from fedtide.world.splits.split import SplitSettings, period_of, split_samples


def encoded(
    plugin: DatasetPlugin,
    frame: pd.DataFrame,
    client: Ints,
    clients: tuple[str, ...],
    time: Ints,
    split: SplitSettings,
    numeric: list[str],
    categorical: list[str],
    labels: Tensor,
    outputs: tuple[str, ...],
    task: TaskName = "classification",
) -> Dataset:
    """A dataset whose features are learned from the training rows of the first period of ``split``."""
    period = period_of(split, time, len(frame))
    train, test = split_samples(split, client, period, time)
    fit = np.zeros(len(frame), dtype=np.bool_)
    fit[train] = period[train] == 0
    encoding = Encoding.fit(frame, numeric, categorical, fit, outputs=outputs, task=task)
    inputs, origins = encoding.apply(frame), origins_of(client, time, (train, test), clients, "s")
    parts = ((inputs[part], labels[part]) for part in (train, test))
    count = len(outputs) if task == "classification" else 1
    return plugin.dataset("vector", parts, count, origins=origins, task=task, encoding=encoding)


def windows(client: Ints | None, count: int, length: int, stride: int) -> Ints:
    """Windows of ``length`` consecutive rows of one client, int64 [m, length], in the order of their last rows.

    ``client`` is that of each of ``count`` rows, in the order of time; a client's windows begin ``stride`` rows apart.
    """
    groups = np.zeros(count, dtype=np.int64) if client is None else client
    rows = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[rows], prepend=-1))
    parts = [
        np.lib.stride_tricks.sliding_window_view(part, length)[::stride]
        for part in np.split(rows, starts[1:])
        if len(part) >= length
    ]
    found = np.concatenate([*parts, np.zeros((0, length), dtype=np.int64)])
    return found[np.argsort(found[:, -1])].astype(np.int64)
