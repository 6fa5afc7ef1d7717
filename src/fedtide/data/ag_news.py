"""AG News topics."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.data._text import BERT_VOCABULARY, encode
from fedtide.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.sources import Resource
from fedtide.world.validation import stratified_split

ADDRESS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
TRAIN = Resource("train.csv", (f"{ADDRESS}train.csv",), "md5:b1a00f826fdfbd249f79597b59e1dc12")
TEST = Resource("test.csv", (f"{ADDRESS}test.csv",), "md5:d52ea96a97a2d943681189a97654912d")
TEST_FRACTION = 0.2
SPLIT_SEED = 0


class AgNews(DatasetPlugin):
    """AG News: 120,000 + 7,600 news headlines with a first sentence, 4 topics (Zhang, Zhao and LeCun 2015).

    A text is title and description as hashed words (:mod:`fedtide.data._text`), truncated or padded to ``length``.

    ``source = test_only`` needs only the published test file: its 7,600 rows are split into 6,080 + 1,520 with a fixed
    key, stratified by topic. Its numbers are not comparable with published ones.
    """

    class Settings(DatasetSettings):
        name: str = "ag_news"
        source: Literal["full", "test_only"] = Field(
            "full", description="full: the published split; test_only: a split of the published test rows"
        )
        length: int = Field(64, description="words per text", ge=1)
        vocabulary: int = Field(BERT_VOCABULARY, description="rows of the embedding table, row 0 is padding", ge=2)

    settings: Settings

    resources: Sequence[Resource] = (TRAIN, TEST)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.source == "test_only":
            self.resources = (TEST,)

    def read(self, raw: Path) -> Dataset:
        """Token ids int64 [n, length]."""
        test_inputs, test_labels = self._read_csv(TEST.path(raw))
        if self.settings.source == "full":
            train_inputs, train_labels = self._read_csv(TRAIN.path(raw))
        else:
            train, test = stratified_split(test_labels, np.arange(len(test_labels)), TEST_FRACTION, SPLIT_SEED)
            train_inputs, train_labels = test_inputs[train], test_labels[train]
            test_inputs, test_labels = test_inputs[test], test_labels[test]
        return Dataset(
            name="ag_news",
            kind="text",
            train_inputs=train_inputs,
            train_labels=torch.from_numpy(train_labels),
            test_inputs=test_inputs,
            test_labels=torch.from_numpy(test_labels),
            num_classes=4,
            digest="",
            vocabulary=self.settings.vocabulary,
        )

    def _read_csv(self, path: Path) -> tuple[Tensor, NDArray[np.int64]]:
        try:
            with path.open(newline="", encoding="utf-8") as content:
                rows = [(int(topic), f"{title} {description}") for topic, title, description in csv.reader(content)]
        except (ValueError, csv.Error) as error:
            raise SettingsError(f"{path}: a row is not topic, title, description ({error}); fetch it again") from error
        labels = np.array([topic - 1 for topic, _ in rows], dtype=np.int64)
        return encode((text for _, text in rows), self.settings.length, self.settings.vocabulary), labels
