"""Numbers of an update at random places (Konečný et al. 2016)."""

from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.uplink._compress import Part, PartSettings
from fedtide.methods.uplink.base import Draws


class RandomK(Part):
    """K numbers of an update at random places are sent, which follow from a key that the server knows; 32 k bits.

    Times d / k they are right on average, with ``E|Q(v) - v|^2 = (d / k - 1) |v|^2``; unscaled the error is (1 - k / d) |v|^2.
    """

    class Settings(PartSettings):
        name: str = "random_k"
        scaled: bool = Field(True, description="scale by d / k; default with error_feedback: false")
        error_feedback: bool = Field(
            False,
            description="clients add the compression error to their next update; default without scaled: true",
        )

        @model_validator(mode="before")
        @classmethod
        def _one_of_both(cls, values: Any) -> Any:
            if isinstance(values, dict) and ("scaled" in values) != ("error_feedback" in values):
                given, other = ("scaled", "error_feedback") if "scaled" in values else ("error_feedback", "scaled")
                return {**values, other: not values[given]} if isinstance(values[given], bool) else values
            return values

        @model_validator(mode="after")
        def _not_both(self) -> Self:
            if self.scaled and self.error_feedback:
                raise SettingsError(
                    "error_feedback = true with scaled = true: the error-feedback residual would diverge; set scaled "
                    "to false"
                )
            return self

    settings: Settings

    def remedy(self, size: int) -> str:
        return "set scaled to false" if self.settings.scaled and 2 * self.count(size) <= size else ""

    def bits(self, size: int) -> int:
        return 32 * self.count(size)

    def compressed(self, v: Tensor, draws: Draws) -> Tensor:
        k = self.count(len(v))
        places = torch.topk(torch.from_numpy(draws().random(len(v))), k, largest=False, sorted=False).indices.to(
            v.device
        )
        sent = torch.zeros_like(v)
        sent[places] = v[places] * (len(v) / k if self.settings.scaled else 1.0)
        return sent
