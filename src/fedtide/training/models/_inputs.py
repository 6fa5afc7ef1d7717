"""Checks that a model can take the samples of a dataset."""

from __future__ import annotations

import math

from fedtide.core.errors import SettingsError


def require_image(model: str, shape: tuple[int, ...], vocabulary: int, smallest: int = 1) -> tuple[int, int, int]:
    """Channels, height and width of a sample, which has to be an image with sides of ``smallest`` pixels or more."""
    if vocabulary or len(shape) != 3 or min(shape[1:]) < smallest:
        raise _misfit(
            model, f"images (channels, height, width) of at least {smallest} x {smallest} pixels", shape, vocabulary
        )
    channels, height, width = shape
    return channels, height, width


def require_series(model: str, shape: tuple[int, ...], vocabulary: int) -> tuple[int, int]:
    """Channels and length of a sample, which has to be a series."""
    if vocabulary or len(shape) != 2:
        raise _misfit(model, "series (channels, time)", shape, vocabulary)
    channels, length = shape
    return channels, length


def require_numbers(model: str, shape: tuple[int, ...], vocabulary: int) -> int:
    """Number of values of a sample, which has to hold numbers."""
    if vocabulary:
        raise _misfit(model, "images or vectors", shape, vocabulary)
    return math.prod(shape)


def require_tokens(model: str, shape: tuple[int, ...], vocabulary: int) -> int:
    """Size of the vocabulary of samples, which have to be token ids."""
    if not vocabulary or len(shape) != 1:
        raise _misfit(model, "text (token ids of shape (length,))", shape, vocabulary)
    return vocabulary


def _misfit(model: str, needs: str, shape: tuple[int, ...], vocabulary: int) -> SettingsError:
    values = "token ids" if vocabulary else "numbers"
    return SettingsError(f"model.name = {model!r} requires {needs}; the data's samples are {values} of shape {shape}")
