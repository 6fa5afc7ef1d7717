"""AG News topics."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.world.data._text import BERT_VOCABULARY, encode
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.splits.holdout import stratified_split
from fedtide.world.storage.sources import Resource

ADDRESS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
TRAIN = Resource("train.csv", (f"{ADDRESS}train.csv",), "md5:b1a00f826fdfbd249f79597b59e1dc12")
TEST = Resource("test.csv", (f"{ADDRESS}test.csv",), "md5:d52ea96a97a2d943681189a97654912d")
TEST_FRACTION = 0.2
SPLIT_SEED = 0


class AgNews(DatasetPlugin):
    """AG News: 120,000 + 7,600 news headlines with a first sentence, 4 topics (Zhang, Zhao and LeCun 2015).

    A text is title and description as hashed words (:mod:`fedtide.world.data._text`), truncated or padded to ``length``.

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
        inputs, labels = test = self._read_csv(TEST.path(raw))
        if self.settings.source == "full":
            parts = [self._read_csv(TRAIN.path(raw)), test]
        else:
            split = stratified_split(labels.numpy(), np.arange(len(labels)), TEST_FRACTION, SPLIT_SEED)
            parts = [(inputs[part], labels[part]) for part in split]
        return self.dataset("text", parts, num_classes=4, vocabulary=self.settings.vocabulary)

    def _read_csv(self, path: Path) -> tuple[Tensor, Tensor]:
        with path.open(newline="", encoding="utf-8") as content:
            rows = [(int(topic), f"{title} {description}") for topic, title, description in csv.reader(content)]
        labels = torch.tensor([topic - 1 for topic, _ in rows])
        return encode((text for _, text in rows), self.settings.length, self.settings.vocabulary), labels
