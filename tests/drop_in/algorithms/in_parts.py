"""Two trainings of a part of the model each, and a model for every client."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Local, Phase, Round, Served, ServedTo


class InParts(Algorithm):
    """The head first, then the body; the client's own head is kept, and served with the body of all."""

    class Settings(AlgorithmSettings):
        name: str = "in_parts"
        first: str = Field("head", description="what is trained first")
        amount: int | None = Field(None, description="local work of the first training")
        lr: float | None = Field(None, description="rate of the first training")
        serve: bool = Field(True, description="false: the global model")

    settings: Settings
    client = ("own",)

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        part = r.problem.layout.mask(self.settings.first)
        y = yield Phase(r.base, trains=part, amount=self.settings.amount, lr=self.settings.lr)
        r.client.own = y
        yield Phase(y, Local(pull=0.1, toward=r.w), trains=~part)

    def served(self, s: ServedTo) -> Served | None:
        if not self.settings.serve:
            return None
        own = s.layout.mask("head") & (s.seen > 0)
        return Served(torch.where(own, s.client.own, s.w), np.arange(len(s.ids)))
