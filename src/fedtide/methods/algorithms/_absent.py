"""What methods share that give absent clients their share of the population."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, AlgorithmSettings, Round, ServerVector
from fedtide.settings.choices import WeightingChoice, choice_field


class AbsentSettings(AlgorithmSettings):
    weighting: WeightingChoice = choice_field(
        "uniform", "how participants, and clients in the population, are weighted"
    )


class UpdateSettings(AbsentSettings):
    units: Literal["gradient", "displacement"] = Field(
        "gradient", description="stored update: divided by the round's learning rate, or unscaled"
    )
    buffer: int = Field(10, ge=1, description="results per server update; only with `mode: async`")


def by_size(settings: AlgorithmSettings) -> bool:
    """Whether q_j, the weights of the population, are n_j / sum n (weighting ``samples``); they are 1 / K otherwise."""
    return settings.weighting.name == "samples"


def share(r: Round, settings: AlgorithmSettings) -> Tensor:
    """q_i [C, 1] of the participants; the sum over all K clients present is one."""
    return (r.omega if by_size(settings) else torch.ones_like(r.omega)) / r.population


def shares(r: Round, settings: AlgorithmSettings) -> Tensor:
    """q_j, float64 [K], of the clients present by ascending id."""
    samples = torch.from_numpy(r.services.population().samples).to(torch.float64)
    return samples / samples.sum() if by_size(settings) else torch.full_like(samples, 1 / len(samples))


class LastUpdates(Algorithm):
    """Every client keeps its last update ``h_i = (base - y_i) / u``, zero before the first, the server their mean ``h_mean``.

    ``u`` is one, or with ``units: gradient`` the learning rate that the client trained at: the update is then the sum of the
    directions of its local optimizer. ``h_mean = sum_j q_j h_j`` over the clients present. With ``mode: async`` the last update
    of a client in the buffer is stored, unless the client has left by then.
    """

    modes = ("sync", "async")

    settings: UpdateSettings

    server: Sequence[str | ServerVector] = ()
    client: Sequence[str] = ("h",)

    def __init__(self, settings: UpdateSettings) -> None:
        super().__init__(settings)
        self.server = (ServerVector("h_mean", mean_of="h", by_size=by_size(settings)),)
        self.buffer = settings.buffer

    def unit(self, r: Round) -> float:
        """u of the server's step."""
        return r.lr if self.settings.units == "gradient" else 1.0

    def update(self, r: Round) -> Tensor:
        """(w - y_i) / u [C, d]."""
        return (r.base - r.W) / (r.job.rate if self.settings.units == "gradient" else 1.0)

    def renew(self, r: Round) -> None:
        """The participants' h_i, and their part of the mean."""
        r.move("h", self.update(r) - r.client.h, r.job.keeps * share(r, self.settings))
