"""Tiny-ImageNet-200."""

import io
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.dataset import Dataset
from fedtide.world.storage.sources import Resource, read_all

NORMALIZATIONS = {
    "default": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "fedwcm": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


class TinyImagenet(DatasetPlugin):
    """Tiny-ImageNet: 100,000 + 10,000 color 64x64 photographs, 200 classes (Le and Yang 2015).

    The test set is the published validation set, because the labels of the published test set are not public. Classes
    are numbered in the order of their WordNet ids.

    ``normalization``: ``default`` uses the ImageNet statistics (dynamic-initialization paper), ``fedwcm`` mean and
    standard deviation 0.5.
    """

    class Settings(DatasetSettings):
        name: str = "tiny_imagenet"
        normalization: Literal["default", "fedwcm"] = Field("default", description="which mean and standard deviation")

    settings: Settings

    resources = (
        Resource(
            "tiny-imagenet-200.zip",
            ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
            "md5:90528d7ca1a48142e341f4ef8d21d0de",
        ),
    )

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 3, 64, 64]; greyscale photographs get three equal channels."""
        files = read_all(self.resources[0].path(raw), _wanted)
        train = sorted(name for name in files if PurePosixPath(name).parts[1] == "train")
        test = sorted(name for name in files if name.endswith(".JPEG") and PurePosixPath(name).parts[1] == "val")
        wordnet_ids = sorted({PurePosixPath(name).parts[2] for name in train})
        number = {wordnet_id: label for label, wordnet_id in enumerate(wordnet_ids)}
        annotations = next(content for name, content in files.items() if name.endswith("val_annotations.txt"))
        lines = [line.split("\t") for line in annotations.decode().splitlines()]
        validation = {line[0]: number[line[1]] for line in lines}
        test_labels = [validation[PurePosixPath(name).name] for name in test]
        mean, std = NORMALIZATIONS[self.settings.normalization]
        train_labels = [number[PurePosixPath(name).parts[2]] for name in train]
        parts = (
            (_decode([files[name] for name in names]), torch.tensor(labels))
            for names, labels in ((train, train_labels), (test, test_labels))
        )
        return self.dataset("image", parts, num_classes=len(number), mean=mean, std=std)


def _wanted(name: str) -> bool:
    parts = PurePosixPath(name).parts
    if len(parts) < 3 or parts[1] not in ("train", "val"):
        return False
    return parts[-1].endswith(".JPEG") or parts[-1] == "val_annotations.txt"


def _decode(files: Sequence[bytes]) -> Tensor:
    from PIL import Image

    pixels = np.empty((len(files), 3, 64, 64), dtype=np.uint8)
    for target, content in zip(pixels, files, strict=True):
        with Image.open(io.BytesIO(content)) as image:
            target[:] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return torch.from_numpy(pixels)
