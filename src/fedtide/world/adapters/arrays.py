"""Inputs of samples as one tensor of the shape and type that their kind has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtide.core.errors import SettingsError, shortened
from fedtide.world.dataset import SHAPES, Kind

_SHAPES = {**SHAPES, "image": f"{SHAPES['image']}, uint8 or floating point", "text": f"{SHAPES['text']}, integers"}
_KINDS: dict[int, Kind] = {2: "vector", 3: "series", 4: "image"}


def stacked(values: Any, place: Callable[[int], str]) -> Tensor:
    """A tensor, an array, or a sequence of tensors, arrays or lists of one shape as a tensor [n, ...] on the CPU.

    It may share the memory of ``values``; ``place`` names a sample in errors.

    Raises:
        SettingsError: shapes differ, or something is no number.
    """
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
    else:
        array = np.asarray(values) if hasattr(values, "dtype") else None
        if array is None or array.dtype.kind not in "buif":
            array = _stack(values, place)
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def typed(inputs: Tensor, kind: Kind | None, place: Callable[[int], str]) -> tuple[Tensor, Kind]:
    """Inputs in the type of their kind; without one it is ``vector``, ``series`` or ``image``, by their dimensions.

    Raises:
        SettingsError: shape or type are not those of the kind, or a number is not finite.
    """
    found = kind or _KINDS.get(inputs.dim())
    shown = f"inputs are {str(inputs.dtype).removeprefix('torch.')} {list(inputs.shape)}"
    if found is None or found not in _SHAPES:
        allowed = "; ".join(f"{name}: {shape}" for name, shape in _SHAPES.items())
        raise SettingsError(f"{shown}; allowed are {allowed}")
    number = inputs.is_floating_point()
    fits = number or inputs.dtype == torch.uint8 if found == "image" else not number or found != "text"
    if inputs.dim() != {"image": 4, "series": 3}.get(found, 2) or not fits or not inputs.shape[1:].numel():
        raise SettingsError(f"{shown}; expected for kind {found}: {_SHAPES[found]}")
    if number and len(wrong := (~inputs.flatten(1).isfinite().all(1)).nonzero()):
        raise SettingsError(f"{place(int(wrong[0]))}: an input is not a finite number")
    if found == "text":
        inputs = inputs.long()
    elif found != "image" and not number:
        inputs = inputs.float()
    return inputs, found


def _stack(values: Any, place: Callable[[int], str]) -> NDArray[Any]:
    """Samples one by one, so that an error names the first that is wrong."""
    try:
        samples = list(values)
    except TypeError:
        raise SettingsError(f"inputs are {type(values).__name__}, expected a tensor, an array or a list") from None
    rows: list[NDArray[Any]] = []
    for row, sample in enumerate(samples):
        try:
            array = _array(sample)
        except ValueError:
            raise SettingsError(f"{place(row)}: inputs have rows of different lengths") from None
        if array.dtype.kind not in "buif":
            raise SettingsError(f"{place(row)}: inputs are {shortened(repr(sample))}, expected numbers")
        if rows and array.shape != rows[0].shape:
            shapes = f"shape {list(array.shape)}, the first one {list(rows[0].shape)}"
            raise SettingsError(f"{place(row)}: inputs have {shapes}; all must be equal")
        rows.append(array)
    return np.stack(rows) if rows else np.zeros((0, 0))


def _array(value: Any) -> NDArray[Any]:
    """Numbers, also from arrays of arrays."""
    array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if array.dtype == object and array.ndim and len(array):
        return np.stack([_array(part) for part in array])
    return array
