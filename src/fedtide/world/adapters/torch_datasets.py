"""A dataset from one of PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.world.adapters.arrays import is_picture, pixels
from fedtide.world.adapters.tensors import Options, Part, from_tensors
from fedtide.world.dataset import Dataset

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchDataset

Field = int | str


def from_torch(
    dataset: TorchDataset[Any],
    *,
    test: TorchDataset[Any] | None = None,
    inputs: Field = 0,
    label: Field = 1,
    client: Any = None,
    time: Any = None,
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
        inputs, label: position or key of inputs and label in what it returns; pictures of Pillow's become uint8 images.
        client, time: the same, if they are among it; or a sequence with one value for each sample of ``dataset`` (then
            test samples are held out).
        options: those of :func:`fedtide.from_tensors`.

    Raises:
        SettingsError: a sample is not what it should be; the message names it.
    """
    fields = (inputs, label, client, time)
    if test is not None and any(not isinstance(field, Field | None) for field in fields):
        raise SettingsError("client and time: with a test set, expected the index or key in every sample")
    held = None if test is None else _part(test, "test", fields)
    return from_tensors(*_part(dataset, "training", fields), test=held, **options)


def _part(dataset: Any, which: str, fields: tuple[Any, ...]) -> Part:
    """All samples; a field that is no position or key is what it is."""
    try:
        count = len(dataset)
    except TypeError:
        raise SettingsError(f"the {which} set is {type(dataset).__name__}, expected a map-style one with len") from None
    read = [field for field in fields if isinstance(field, Field)]
    values: dict[Field, list[Any]] = {field: [] for field in read}
    for row in range(count):
        try:
            sample = dataset[row]
        except OSError as error:
            raise SettingsError(f"{which} sample {row}: {error}") from None
        for field in read:
            values[field].append(_plain(_take(sample, field, f"{which} sample {row}")))
    return Part(*(values[field] if isinstance(field, Field) else field for field in fields))


def _take(sample: Any, field: Field, place: str) -> Any:
    if not isinstance(sample, tuple | list | Mapping):
        raise SettingsError(f"{place} is {type(sample).__name__}, expected a tuple, a list or a mapping")
    try:
        return sample[field]  # type: ignore[index]
    except (LookupError, TypeError):
        known = ", ".join(map(repr, sample)) if isinstance(sample, Mapping) else f"0 to {len(sample) - 1}"
        raise SettingsError(f"{place} has no {field!r}; it has {known}") from None


def _plain(value: Any) -> Any:
    """Pictures as arrays, tensors of one number as numbers."""
    if is_picture(value):
        return pixels(value)
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value
