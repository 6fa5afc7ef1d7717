"""A part of Fashion-MNIST."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from fedtide.core.randomness import generator
from fedtide.world.data.fashion_mnist import FashionMnist
from fedtide.world.dataset import Dataset


class FashionPart(FashionMnist):
    """Some images of Fashion-MNIST, drawn once; for searches tested on training images that are not trained on."""

    class Settings(FashionMnist.Settings):
        name: str = "fashion_part"
        samples: int = Field(2000, ge=1, le=50_000, description="training images")
        tested: int = Field(2000, ge=1, le=10_000, description="test images")
        held_out: bool = Field(False, description="test on further training images instead")

    settings: Settings
    resources = FashionMnist.resources

    def read(self, raw: Path) -> Dataset:
        """Images uint8 [n, 1, 28, 28]; those trained on are the same with and without ``held_out``."""
        chosen, whole = self.settings, super().read(raw)
        train = generator(0, "fashion_part.train").permutation(len(whole.train_labels))
        used, others = train[: chosen.samples], train[chosen.samples : chosen.samples + chosen.tested]
        first = whole.train_inputs[used], whole.train_labels[used]
        if chosen.held_out:
            second = whole.train_inputs[others], whole.train_labels[others]
        else:
            test = generator(0, "fashion_part.test").permutation(len(whole.test_labels))[: chosen.tested]
            second = whole.test_inputs[test], whole.test_labels[test]
        return self.dataset("image", (first, second), num_classes=10, mean=(self.mean,), std=(self.std,))
