"""Extra losses of every kind."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from fedtide.core.randomness import hashed_uniform
from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Round, Term
from fedtide.training.engine.local import TermBatch


class Contrast(Algorithm):
    """Two extra terms: features against two reference models, and the head on keyed random features."""

    class Settings(AlgorithmSettings):
        """Settings of the test's algorithm."""

        name: str = "contrast"

    client = ("last",)

    def terms(self, r: Round) -> list[Term]:
        """References [d] and [C, d]; the first term is switched off for clients without a last model."""
        width = next(slot.shape[-1] for slot in r.problem.layout.parameters if slot.name == "head.weight")
        return [
            Term(_pair, {"received": r.w, "last": r.client.last}, 0.5 * r.seen),
            Term(partial(_imagined, width), weight=0.1),
        ]

    def finish(self, r: Round) -> Tensor:
        """Remember the models."""
        r.client.last = r.W
        return r.average()


def _pair(batch: TermBatch) -> Tensor:
    """Softplus of the difference of two cosines."""
    mine = batch.outputs.features
    near, far = (functional.cosine_similarity(mine, batch.references[k].features) for k in ("received", "last"))
    return functional.softplus(far - near)


def _imagined(width: int, batch: TermBatch) -> Tensor:
    """Cross-entropy of the head on one random input per sample of the batch."""
    draw = hashed_uniform(batch.key, len(batch.labels) * width).view(len(batch.labels), width)
    logits = batch.head(draw.to(batch.outputs.logits.dtype))
    return functional.cross_entropy(logits, torch.zeros_like(batch.labels), reduction="none")
