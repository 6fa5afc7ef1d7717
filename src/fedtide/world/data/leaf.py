"""Tasks of the LEAF benchmark (Caldas et al. 2018), from its JSON files: samples by user."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import Field, model_validator
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.world.adapters.arrays import stacked, typed
from fedtide.world.adapters.columns import Column, classes
from fedtide.world.adapters.leaf_files import read_users
from fedtide.world.adapters.tensors import from_tensors
from fedtide.world.data._text import UNKNOWN, learn, padded, words
from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.splits.split import SplitSettings, split_samples


class Leaf(DatasetPlugin):
    """Classification tasks in the JSON format of the LEAF benchmark (Caldas et al. 2018): users are clients.

    Inputs ``x`` are numbers (a vector; with ``shape`` an image), texts, or lists of texts. The vocabulary is learned from the
    training samples: the most frequent tokens, one id for all others, one for padding. Labels ``y`` are integers or texts;
    classes are all labels of the files in sorted order, unless ``classes`` lists them.

    Shakespeare: ``tokens: characters``. Sent140: ``field: 4`` (the words of a tweet). FEMNIST: data ``femnist``, or
    ``shape: [28, 28]`` for LEAF's own split.
    """

    class Settings(DatasetSettings):
        name: str = "leaf"
        path: str = Field("train", description="folder of .json files, or one file")
        test: str | None = Field(
            None, description="folder or file of test samples; null: a share of every user's samples is held out"
        )
        shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(
            (), description="images: height and width, or channels, height and width"
        )
        tokens: Literal["words", "characters"] = Field("words", description="unit of a text's tokens")
        field: int | None = Field(
            None, ge=0, description="index of the input among several texts; null: each is a token"
        )
        length: int | None = Field(None, ge=1, description="tokens per sample; null: of the longest training sample")
        vocabulary: int = Field(10_000, ge=3, description="most token IDs, with padding and unknown")
        classes: tuple[str, ...] = Field((), description="all classes, in order; default: the labels in the files")
        split: SplitSettings = Field(SplitSettings(), description="which samples are held out without test files")

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if len(self.shape) not in (0, 2, 3):
                raise SettingsError(f"shape = {list(self.shape)} should be [height, width], or with channels in front")
            return self

    settings: Settings

    def files(self) -> tuple[Path, ...]:
        return (*_files(self.settings.path), *(_files(self.settings.test) if self.settings.test else ()))

    def read(self, raw: Path) -> Dataset:
        """Vectors float32 [n, features], images float32 [n, channels, height, width] or token ids int64 [n, length]."""
        chosen = self.settings
        samples = _Samples()
        samples.add("path", chosen.path)
        count = len(samples.y)
        if chosen.test:
            samples.add("test", chosen.test)
            train, held = np.arange(count), np.arange(count, len(samples.y))
        else:
            number = np.unique(samples.user, return_inverse=True)[1].astype(np.int64)
            train, held = split_samples(chosen.split, number, np.zeros_like(number), None)
        labels, names = classes(Column(pd.Series(samples.y), "y", samples.place), chosen.classes)
        first = samples.x[0]
        text = isinstance(first[0] if isinstance(first, list) and first else first, str)
        inputs, vocabulary = self._text(samples, train) if text else (self._numbers(samples), None)
        who = np.array(samples.user)
        return from_tensors(
            inputs[train],
            labels[train],
            who[train],
            test=(inputs[held], labels[held], who[held]),
            kind="text" if text else "image" if chosen.shape else "vector",
            classes=names,
            vocabulary=vocabulary,
            name="leaf",
        )

    def _numbers(self, samples: _Samples) -> Tensor:
        shape = self.settings.shape
        values = stacked(samples.x, samples.place).float()
        values = values[:, None] if values.dim() == 1 else values
        if shape and values[0].numel() != math.prod(shape):
            raise SettingsError(
                f"{samples.place(0)}: {values[0].numel()} numbers, but data.shape = {list(shape)} has {math.prod(shape)}"
            )
        values = values.reshape(len(values), *(1,) * (3 - len(shape)), *shape) if shape else values.flatten(1)
        return typed(values, None, samples.place)[0]

    def _text(self, samples: _Samples, train: Ints) -> tuple[Tensor, int]:
        texts = [self._tokens(x, samples, row) for row, x in enumerate(samples.x)]
        known = learn((texts[row] for row in train), self.settings.vocabulary)
        length = self.settings.length or max(1, *(len(texts[row]) for row in train))
        ids = ([known.get(token, UNKNOWN) for token in text] for text in texts)
        return padded(ids, length), len(known) + UNKNOWN + 1

    def _tokens(self, x: Any, samples: _Samples, row: int) -> Sequence[str]:
        field = self.settings.field
        if isinstance(x, list) and field is not None:
            if field >= len(x):
                raise SettingsError(f"{samples.place(row)}: x has {len(x)} texts, but data.field = {field}")
            x = x[field]
        if isinstance(x, list) and all(isinstance(token, str) for token in x):
            return x
        if not isinstance(x, str):
            raise SettingsError(
                f"{samples.place(row)}: x is {type(x).__name__}, expected a text, as in the first sample"
            )
        return words(x) if self.settings.tokens == "words" else x


class _Samples:
    """Samples of all users of some files, in their order: inputs ``x``, labels ``y``, and the name of each one's ``user``."""

    def __init__(self) -> None:
        self.x: list[Any] = []
        self.y: list[Any] = []
        self.user: list[str] = []
        self._begins: list[tuple[int, Path]] = []

    def add(self, setting: str, place: str) -> None:
        """Read a file, or the .json files of a folder."""
        files = _files(place)
        if not files:
            raise SettingsError(f"data.{setting} = {place!r}: no such file, or no .json files in this folder")
        for file, name, user in read_users(files):
            self._begins.append((len(self.y), file))
            self.x += user.x
            self.y += user.y
            self.user += [name] * len(user.y)

    def place(self, row: int) -> str:
        """File, user and number of a sample, for errors."""
        begin, file = max(known for known in self._begins if known[0] <= row)
        return f"{file}: user {self.user[row]!r}, sample {row - begin}"


def _files(place: str) -> list[Path]:
    path = Path(place)
    return [path] if path.is_file() else sorted(path.glob("*.json"))
