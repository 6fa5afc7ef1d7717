"""What a model plug-in provides, which inputs it takes, and layers whose randomness is keyed."""

import math
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fedtide.core.errors import SettingsError
from fedtide.core.plugins import Plugin
from fedtide.core.randomness import hashed_uniform


class Outputs(NamedTuple):
    """A network's outputs on a batch: ``logits`` [B, L] and the ``features`` [B, q] that contrastive terms compare."""

    logits: Tensor
    features: Tensor


class Network(nn.Module):
    """A classifier in two parts, which sub-classes define: ``features`` and ``head``, the last layer.

    Parameters that require no gradient are constants: they are neither trained nor sent. So are the floating buffers named in
    ``constants``, which training does not change.
    """

    head: nn.Module
    constants: tuple[str, ...] = ()

    @property
    def has_linear_head(self) -> bool:
        """Whether the logits are one linear map of the features."""
        return isinstance(self.head, nn.Linear)

    @property
    def has_fixed_features(self) -> bool:
        """Whether the features of a sample are the same in all rounds: only the head is trained."""
        return False

    def stored_name(self, name: str) -> str:
        """Name of a parameter or buffer in files of the model."""
        return name

    @abstractmethod
    def features(self, inputs: Tensor) -> Tensor:
        """Penultimate representation [B, q], the input of ``head``."""

    def contrast(self, features: Tensor, logits: Tensor) -> Tensor:
        """Representation [B, q] that contrastive objectives compare."""
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [B, L]."""
        logits: Tensor = self.head(self.features(inputs))
        return logits

    def outputs(self, inputs: Tensor) -> Outputs:
        """Logits and contrastive features from one pass."""
        features = self.features(inputs)
        logits = self.head(features)
        return Outputs(logits, self.contrast(features, logits))


class SequentialNetwork(Network):
    """Layers one after the other: those of ``body``, whose output are the features, and the ``head``."""

    def __init__(self, body: nn.Sequential, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def features(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.body(inputs)
        return features


class Keyed(nn.Module):
    """Has a ``key``, a buffer that the engine sets per (seed, round, client, step), for draws that depend on nothing else."""

    key: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)


class KeyedDropout(nn.Dropout, Keyed):
    """Dropout whose mask is a pure function of ``key``.

    Args:
        probability: of a zero.
        salt: tells the layers of a network apart, whose keys are equal; any 64-bit integer.
        dims: leading dimensions of the inputs that have draws of their own; None for all.
    """

    def __init__(self, probability: float, salt: int = 0, dims: int | None = None) -> None:
        super().__init__(probability)
        self.salt, self.dims = salt, dims

    def forward(self, inputs: Tensor) -> Tensor:
        """Zeroes entries with the given probability in training mode and rescales the rest."""
        if not self.training or self.p == 0.0:
            return inputs
        return dropped(inputs, self.p, self.key + self.salt if self.salt else self.key, self.dims)


def dropped(inputs: Tensor, probability: float, key: Tensor, dims: int | None = None) -> Tensor:
    """Inputs with entries set to zero by a key, the rest rescaled; as :class:`KeyedDropout`."""
    shape = inputs.shape
    if dims is not None:
        shape = torch.Size([*shape[:dims], *[1] * (inputs.dim() - dims)])
    draw = hashed_uniform(key, shape.numel()).view(shape)
    return inputs * (draw >= probability).to(inputs.dtype) / (1.0 - probability)


class Model(Plugin):
    """Builds the network of a run."""

    kind: ClassVar[str] = "models"

    family: ClassVar[str] = "convolutional"
    """``linear``, ``mlp``, ``convolutional`` or ``embedding``: the engine chooses an executor by it."""

    channels_last: ClassVar[bool] = False
    """Whether training on a CPU is faster with images in channels-last layout (measured)."""

    def sources(self) -> dict[str, Path]:
        """Source files outside of fedtide that the network depends on, by module; part of the run key."""
        return {}

    def files(self) -> tuple[Path, ...]:
        """Files whose content the network depends on, such as weights; part of the run key."""
        return ()

    def libraries(self) -> dict[str, str]:
        """Versions of installed packages that the network depends on, by name; recorded."""
        return {}

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        """A freshly initialized network.

        Called with the global torch generator seeded for (seed, "model"), so library default initializations are keyed.

        Args:
            input_shape: shape of one sample: (channels, height, width), (features,) or (tokens,).
            num_classes: number of logits L.
            vocabulary: number of token ids, 0 unless the data is text.

        Raises:
            SettingsError: the model cannot take such inputs.
        """


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
