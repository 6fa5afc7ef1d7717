"""A dataset from one of Hugging Face's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import SettingsError, nearest
from fedtide.world.adapters.arrays import stacked
from fedtide.world.adapters.pictures import Pictures
from fedtide.world.adapters.tensors import Options, Part, from_tensors
from fedtide.world.dataset import Dataset

if TYPE_CHECKING:
    from datasets import Dataset as Rows


def from_huggingface(
    dataset: Rows,
    *,
    test: Rows | None = None,
    inputs: Sequence[str] | None = None,
    label: str = "label",
    client: str | None = None,
    time: str | None = None,
    size: tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    white_level: float | None = None,
    **options: Unpack[Options],
) -> Dataset:
    """A dataset from a Hugging Face dataset (extra ``huggingface``).

    Args:
        dataset: its training rows, for example ``load_dataset(...)["train"]``.
        test: its test rows; by default test samples are held out of ``dataset``.
        inputs: names of columns: one of images, or some of numbers or lists of numbers, which become the features of a vector
            in this order; by default all columns without another use.
        label, client, time: names of the columns of labels, clients and times.
        size, channels, white_level: of images, as of :func:`fedtide.from_torch`.
        options: those of :func:`fedtide.from_tensors`; the classes of a ``ClassLabel`` are known.

    Raises:
        SettingsError: there is no such column, or a row is not what it should be; the message names it.
    """
    for rows in (dataset, test):
        if isinstance(rows, dict) or not (
            rows is None or (hasattr(rows, "select_columns") and hasattr(rows, "__len__"))
        ):
            raise SettingsError(f"{type(rows).__name__} is not a datasets.Dataset, such as load_dataset(...)['train']")
    named = {"label": label, "client": client, "time": time}
    features = [name for name in dataset.column_names if name not in named.values()] if inputs is None else list(inputs)
    names = getattr(dataset.features.get(label), "names", None)
    if names is not None:
        options.setdefault("classes", names)
    pictures = Pictures({"size": size, "channels": channels, "white_level": white_level})
    train = _part(dataset, "training", features, named, pictures)  # first: its channels are those of the test rows
    held = None if test is None else _part(test, "test", features, named, pictures)
    return from_tensors(*train, test=held, **options)


def _part(rows: Any, which: str, inputs: list[str], named: dict[str, str | None], pictures: Pictures) -> Part:
    columns = [column for column in named.values() if column]
    for name in (*inputs, *columns):
        if name not in rows.column_names:
            raise SettingsError(nearest(f"the {which} rows have no column {name!r}", name, rows.column_names))
    if not inputs:
        raise SettingsError(f"no column is left for inputs; the {which} rows have {', '.join(rows.column_names)}")
    frame = rows.select_columns(columns).with_format(None).to_pandas()
    values = (frame[column] if column else None for column in named.values())
    images = [name for name in inputs if type(rows.features[name]).__name__ == "Image"]
    if images and len(inputs) > 1:
        raise SettingsError(f"inputs: {images[0]!r} holds images, which cannot be combined with other columns")
    return Part(_images(rows, images[0], which, pictures) if images else _numbers(rows, inputs, which), *values)


def _images(rows: Any, name: str, which: str, pictures: Pictures) -> NDArray[np.uint8]:
    column, place = rows.with_format(None)[name], partial("{} sample {}".format, which)

    def opened(row: int) -> Any:
        if (picture := column[row]) is None:
            raise SettingsError(f"{place(row)}: {name} is empty, expected an image")
        return picture

    images = (pictures.read(partial(opened, row), place(row)) for row in range(len(rows)))
    return pictures.stack(images, len(rows), place)


def _numbers(rows: Any, names: list[str], which: str) -> Tensor:
    """Columns of numbers, or of lists of numbers of one shape, side by side; a column alone keeps its shape."""
    frame = rows.select_columns(names).with_format(None).to_pandas()
    columns: list[Tensor] = []
    for name in names:
        try:
            values = stacked(frame[name], partial("{} sample {}".format, which))
        except SettingsError as error:
            raise SettingsError(f"column {name!r}: {error}") from None
        columns.append(values.reshape(len(rows), -1) if values.dim() == 1 or len(names) > 1 else values)
    return columns[0] if len(columns) == 1 else torch.cat([values.float() for values in columns], dim=1)
