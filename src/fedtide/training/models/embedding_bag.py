"""Averaged word embeddings."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from fedtide.core.plugins import PluginSettings
from fedtide.training.models.base import Model, Network, require_tokens

_PADDING = 0


class _AveragedEmbedding(Network):
    def __init__(self, vocabulary: int, size: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        with torch.no_grad():
            self.embedding.weight[_PADDING] = 0.0
        self.head = nn.Linear(size, num_classes)

    def features(self, inputs: Tensor) -> Tensor:
        vectors = self.embedding(inputs)
        present = (inputs != _PADDING).to(vectors.dtype)
        # Padding has weight zero, so its row gets no gradient.
        weights = present / (present.sum(1, keepdim=True) + 1e-6)
        mean: Tensor = (weights.unsqueeze(1) @ vectors).squeeze(1)
        return mean


class EmbeddingBag(Model):
    """Mean of the word embeddings of a text, then one linear layer.

    Takes token ids; id 0 is padding: its row is zero, does not enter the mean (whose denominator is the number of tokens
    + 1e-6) and gets no gradient. 9,157,804 parameters with 30,522 ids, 300 dimensions and 4 classes. Contrastive objectives
    compare the mean embedding.
    """

    family: ClassVar[str] = "embedding"

    class Settings(PluginSettings):
        name: str = "embedding_bag"
        size: int = Field(300, gt=0, description="dimensions of a word embedding")

    settings: Settings

    def build(self, input_shape: tuple[int, ...], num_classes: int, vocabulary: int) -> Network:
        rows = require_tokens(self.settings.name, input_shape, vocabulary)
        return _AveragedEmbedding(rows, self.settings.size, num_classes)
