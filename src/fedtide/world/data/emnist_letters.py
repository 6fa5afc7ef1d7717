"""EMNIST, letters split."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from fedtide.world.data.base import DatasetPlugin, DatasetSettings
from fedtide.world.data.mnist import parse_idx
from fedtide.world.dataset import Dataset
from fedtide.world.storage.sources import Resource, read_all

FILES = tuple(
    f"emnist-letters-{split}-{content}-ubyte.gz"
    for split in ("train", "test")
    for content in ("images-idx3", "labels-idx1")
)


class EmnistLetters(DatasetPlugin):
    """EMNIST letters: 124,800 + 20,800 greyscale 28x28 handwritten letters, upper and lower case merged (Cohen et al. 2017).

    ``classes = 10`` keeps the first ten letters only, 48,000 + 8,000 images: the "EMNIST-L" of the FedDyn and FedSSG
    papers. Raw values 0..255 are standardized with the scalar mean and standard deviation of the training images in
    use. Images are transposed, as in the files.
    """

    class Settings(DatasetSettings):
        name: str = "emnist_letters"
        classes: Literal[26, 10] = Field(26, description="all letters, or a to j only")

    settings: Settings

    resources = (
        Resource(
            "gzip.zip",
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
            "md5:58c8d27c78d21e728a6bc7b3cc06412e",
            alternatives=("emnist-gzip.zip",),
        ),
    )

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 1, 28, 28]; ``scale`` is 1, so the constants are in raw gray values."""
        files = read_all(self.resources[0].path(raw), lambda member: Path(member).name in FILES)
        found = {Path(member).name: content for member, content in files.items()}
        train_images, train_labels, test_images, test_labels = (parse_idx(found[file]) for file in FILES)
        parts = []
        for images, labels in ((train_images, train_labels), (test_images, test_labels)):
            kept = labels <= self.settings.classes
            parts.append((images[kept].unsqueeze(1), labels[kept].long() - 1))
        pixels = parts[0][0].numpy()
        constants = {"mean": (float(pixels.mean()),), "std": (float(pixels.std()),)}
        return self.dataset("image", parts, self.settings.classes, **constants, scale=1.0)
