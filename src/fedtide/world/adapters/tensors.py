"""A dataset from arrays of inputs and labels, or from a PyTorch dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.bounds import LARGEST
from fedtide.core.errors import SettingsError, shortened
from fedtide.settings.scores import TaskName
from fedtide.world.adapters import columns
from fedtide.world.adapters.arrays import stacked, typed
from fedtide.world.adapters.columns import Column
from fedtide.world.adapters.dates import times
from fedtide.world.adapters.pictures import Pictures, is_picture
from fedtide.world.dataset import Dataset, Kind, content_digest
from fedtide.world.splits.split import SplitSettings, period_of, split_samples

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchDataset

_NAMES = ("training", "test")

Field = int | str


class Options(TypedDict, total=False):
    """Options of :func:`from_tensors` that other functions pass on to it."""

    split: SplitSettings | None
    kind: Kind | None
    classes: int | Sequence[str] | None
    vocabulary: int | None
    name: str
    unit: str
    mean: Sequence[float]
    std: Sequence[float]
    task: TaskName


class Part(NamedTuple):
    """Training or test samples."""

    inputs: Any
    labels: Any
    client: Any = None
    time: Any = None


def from_tensors(
    inputs: Any,
    labels: Any,
    client: Any = None,
    time: Any = None,
    *,
    test: Sequence[Any] | None = None,
    split: SplitSettings | None = None,
    kind: Kind | None = None,
    classes: int | Sequence[str] | None = None,
    vocabulary: int | None = None,
    name: str = "own",
    unit: str = "s",
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    task: TaskName = "classification",
) -> Dataset:
    """A dataset from inputs and labels, and optionally who made each sample, and when.

    >>> import fedtide
    >>> data = fedtide.from_tensors([[0.5], [1.5], [2.5], [3.5]], [0, 1, 1, 0], ["ann", "ann", "bob", "bob"])
    >>> data.origins.clients, data.num_classes, len(data.train_labels) + len(data.test_labels)
    (('ann', 'bob'), 2, 4)

    Args:
        inputs: tensor, array or list: [n, features]; [n, channels, time]; [n, channels, height, width], uint8 or floating
            point; or, with ``kind="text"``, token ids [n, length].
        labels: n integers from 0, or n names; with another ``task`` numbers, see there.
        client: n names or numbers. time: n integers, dates, or texts such as ``2013-01-31``; dates become seconds since 1970
            of the clock in whose time zone, or with whose one offset, they are.
        test: the same four of the test set; by default test samples are held out.
        split: which samples are held out: by default a fifth of every client's (or class's) samples of a month.
        kind: of the inputs; by default ``vector``, ``series`` or ``image``, by their dimensions.
        classes: number of classes, or their names in order; by default one more than the largest label, or the names found.
        vocabulary: number of token ids (text only); by default one more than the largest.
        name: of the dataset. unit: of integer times: ``s``, ``ms``, ``us`` or ``ns`` since 1970, or another one.
        mean, std: constants per channel for uint8 images, applied after division by 255.
        task: ``regression`` takes targets [n] or [n, T], ``multilabel`` a 0 or 1 for each of T labels [n, T].

    Returns:
        The dataset, on the CPU, with the digest of its content.

    Raises:
        SettingsError: something does not fit; the message names the sample.
    """
    if test is not None and not 2 <= len(test) <= 4:
        raise SettingsError(f"test has {len(test)} parts, expected inputs, labels, and optionally client and time")
    parts = [Part(inputs, labels, client, time), *([] if test is None else [Part(*test)])]
    tensors, found = _inputs(parts, kind)
    sizes = [len(tensor) for tensor in tensors]
    names = tuple[str, ...]()
    if task == "classification":
        codes, num_classes, names = _labels(_column(parts, "labels", sizes), classes)
        label, groups = torch.tensor(codes), codes
    elif classes is not None:
        raise SettingsError(f"classes is not supported with task {task}")
    else:
        label, num_classes = _targets(parts, sizes, task), 1
        groups = np.zeros(len(label), dtype=np.int64)
    made_by, when, clients = None, None, tuple[str, ...]()
    if any(part.client is not None for part in parts):
        made_by, clients = columns.clients(_column(parts, "client", sizes))
    if any(part.time is not None for part in parts):
        when, unit = times(_column(parts, "time", sizes), unit)
    if test is not None:
        train, held = np.arange(sizes[0]), np.arange(sizes[0], sum(sizes))
        tensors = [tensor.clone() for tensor in tensors]  # the caller's may change
    else:
        chosen = split or SplitSettings()
        period = period_of(chosen, when, len(groups), unit)
        train, held = split_samples(chosen, groups if made_by is None else made_by, period, when)
        tensors = [tensors[0][train], tensors[0][held]]
    dataset = Dataset(
        name=name,
        kind=found,
        train_inputs=tensors[0],
        train_labels=label[train],
        test_inputs=tensors[1],
        test_labels=label[held],
        num_classes=num_classes,
        digest="",
        mean=_per_channel("mean", mean, tensors[0]),
        std=_per_channel("std", std, tensors[0]),
        vocabulary=_vocabulary(tensors, vocabulary) if found == "text" else 0,
        origins=columns.origins_of(made_by, when, (train, held), clients, unit),
        task=task,
        class_names=names,
    )
    return replace(dataset, digest=content_digest(dataset))


def _inputs(parts: list[Part], kind: Kind | None) -> tuple[list[Tensor], Kind]:
    tensors: list[Tensor] = []
    for part, which in zip(parts, _NAMES, strict=False):
        place = partial("{} sample {}".format, which)
        tensor, kind = typed(stacked(part.inputs, place), kind, place)
        floats = bool(tensors) and tensors[0].is_floating_point() and tensor.is_floating_point()
        tensors.append(tensor.to(tensors[0].dtype) if floats else tensor)
    shapes = [f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape[1:])}" for tensor in tensors]
    if shapes[0] != shapes[-1]:
        raise SettingsError(f"training samples are {shapes[0]}, test samples {shapes[-1]}; they must be equal")
    return tensors, kind or "vector"


def _column(parts: list[Part], what: str, sizes: list[int]) -> Column:
    """Labels, clients or times of all samples, training samples first."""
    pieces: list[Any] = []
    for part, size, which in zip(parts, sizes, _NAMES, strict=False):
        values = getattr(part, what)
        if values is None:
            raise SettingsError(f"the {which} samples have no {what}, but the other samples do")
        try:
            pieces.append(pd.Series(values.detach().cpu().numpy() if isinstance(values, Tensor) else values))
            if pieces[-1].dtype == object and pieces[-1].map(pd.api.types.is_list_like).any():
                raise ValueError("a value is a list")
        except (TypeError, ValueError) as error:
            raise SettingsError(f"{what} of the {which} samples: {error}; expected one value per sample") from None
        if len(pieces[-1]) != size or size == 0:
            raise SettingsError(
                f"{size} {which} samples, but {len(pieces[-1])} {what}; the counts should be equal and above 0"
            )
    if what == "client" and pieces[0].dtype != pieces[-1].dtype:
        pieces = [piece.astype(object) for piece in pieces]  # floats would lose digits
    first = sizes[0]
    return Column(
        values=pd.concat(pieces, ignore_index=True),
        name=what.removesuffix("s"),
        place=lambda row: f"training sample {row}" if row < first else f"test sample {row - first}",
    )


def _labels(column: Column, known: int | Sequence[str] | None) -> tuple[Ints, int, tuple[str, ...]]:
    """Labels int64 [n], the number of classes, and their names, if known: integers are kept, names are numbered."""
    labels = columns.integers(column, "a label", "an integer or a name")
    names = () if known is None or isinstance(known, int) else tuple(known)
    named = labels is None
    if labels is None:
        labels, names = columns.classes(column, names)
    if isinstance(known, int):
        count = known
    elif named or names:
        count = len(names)
    else:
        count = max(2, int(labels.max()) + 1)
    column.refuse((labels < 0) | (labels >= count), f"a label from 0 to {count - 1}")
    if count < 2:
        raise SettingsError("there is only one class")
    return labels, count, names


def _targets(parts: list[Part], sizes: list[int], task: TaskName) -> Tensor:
    """Targets of a regression, or zeros and ones of several labels, float32 [n, T]; training samples first."""
    tensors: list[Tensor] = []
    allowed = "[n] or [n, T]" if task == "regression" else "[n, T]"
    for part, size, which in zip(parts, sizes, _NAMES, strict=False):
        place = partial("{} sample {}".format, which)
        found = stacked(part.labels, place)
        if found.dim() not in ((1, 2) if task == "regression" else (2,)) or len(found) != size or not found.numel():
            raise SettingsError(f"{size} {which} samples have labels {list(found.shape)}; {task} expects {allowed}")
        rows = found.reshape(size, -1).float()
        fits = rows.isfinite() if task == "regression" else (rows == 0) | (rows == 1)
        if len(wrong := (~fits.all(1)).nonzero()):
            wanted = "finite numbers" if task == "regression" else "0 or 1"
            shown = shortened(str(rows[wrong[0, 0]].tolist()))
            raise SettingsError(f"{place(int(wrong[0]))}: labels are {shown}, expected {wanted}")
        tensors.append(rows)
    if tensors[0].shape[1] != tensors[-1].shape[1]:
        raise SettingsError(f"training samples have {tensors[0].shape[1]} labels, test samples {tensors[-1].shape[1]}")
    return torch.cat(tensors)


def _vocabulary(tensors: list[Tensor], known: int | None) -> int:
    low, high = min(int(ids.min()) for ids in tensors), max(int(ids.max()) for ids in tensors)
    if low < 0 or high >= (known or LARGEST):
        raise SettingsError(f"token ids run from {low} to {high}; allowed are 0 to {(known or LARGEST) - 1}")
    return known or high + 1


def _per_channel(what: str, constants: Sequence[float], inputs: Tensor) -> tuple[float, ...]:
    channels = inputs.shape[1] if inputs.dtype == torch.uint8 else 0
    if len(constants) not in (0, channels):
        raise SettingsError(
            f"{what} has {len(constants)} numbers; expected one for each of {channels} channels of uint8 images"
        )
    return tuple(constants)


def from_torch(
    dataset: TorchDataset[Any],
    *,
    test: TorchDataset[Any] | None = None,
    inputs: Field = 0,
    label: Field = 1,
    client: Any = None,
    time: Any = None,
    size: tuple[int, int] | None = None,
    channels: Literal[1, 3] | None = None,
    white_level: float | None = None,
    **options: Unpack[Options],
) -> Dataset:
    """A dataset from a map-style PyTorch dataset, such as those of torchvision. Every sample is read once.

    >>> import fedtide, torch
    >>> measured = torch.utils.data.TensorDataset(torch.rand(9, 4), torch.arange(9) % 3, torch.arange(9) // 3)
    >>> fedtide.from_torch(measured, client=2).origins.clients
    ('0', '1', '2')

    Args:
        dataset: has ``len`` and returns a tuple, list or mapping for each position.
        test: the test set, of the same kind; by default test samples are held out of ``dataset``.
        inputs, label: position or key of inputs and label in what it returns; Pillow's pictures become uint8 images.
        client, time: the same; or a sequence with one value per sample of ``dataset`` (then test samples are held out).
        size, channels, white_level: of pictures, as of data ``image_folder``; by default three channels if one
            picture has colors, else one.
        options: those of :func:`fedtide.from_tensors`.

    Raises:
        SettingsError: a sample is not what it should be; the message names it.
    """
    fields = (inputs, label, client, time)
    if test is not None and any(not isinstance(field, Field | None) for field in fields):
        raise SettingsError("client and time: with a test set, expected the index or key in every sample")
    pictures = Pictures({"size": size, "channels": channels, "white_level": white_level})
    train = _samples(dataset, "training", fields, pictures)  # first: its channels are those of the test set
    held = None if test is None else _samples(test, "test", fields, pictures)
    return from_tensors(*train, test=held, **options)


def _samples(dataset: Any, which: str, fields: tuple[Any, ...], pictures: Pictures) -> Part:
    """All samples; a field that is neither position nor key is a column already."""
    if not hasattr(dataset, "__len__"):
        raise SettingsError(f"the {which} set is {type(dataset).__name__}, expected a map-style one with len")
    count = len(dataset)
    values: dict[Field, Any] = {field: [] for field in fields if isinstance(field, Field)}
    place, read = partial("{} sample {}".format, which), 0
    for row in range(count):
        try:
            sample = dataset[row]
        except OSError as error:
            raise SettingsError(f"{place(row)}: {error}") from None
        for field, column in values.items():
            value = _take(sample, field, place(row))
            if field == fields[0] and is_picture(value):
                value, read = pictures.read(value, place(row)), read + 1
            column.append(value.item() if isinstance(value, Tensor) and value.dim() == 0 else value)
    if read and read == count:
        values[fields[0]] = pictures.stack(values[fields[0]], count, place)
    return Part(*(values[field] if isinstance(field, Field) else field for field in fields))


def _take(sample: Any, field: Field, place: str) -> Any:
    if not isinstance(sample, tuple | list | Mapping):
        raise SettingsError(f"{place} is {type(sample).__name__}, expected a tuple, a list or a mapping")
    try:
        return sample[field]  # type: ignore[index]
    except (LookupError, TypeError):
        known = ", ".join(map(repr, sample)) if isinstance(sample, Mapping) else f"0 to {len(sample) - 1}"
        raise SettingsError(f"{place} has no {field!r}; it has {known}") from None
