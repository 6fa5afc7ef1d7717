"""Clipping of updates, at a fixed length or at a quantile of the lengths."""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedtide.core.array_types import Floats
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings, Tunable
from fedtide.methods.uplink.base import Link, Sending
from fedtide.training.engine.flat import Layout

_ADAPTIVE_START = 0.1


class Clip(Link):
    """Long updates are shortened to a bound C, which may follow a quantile of the updates' lengths.

    ``Delta <- Delta min(1, C / |Delta|)``, with one norm over all parameters. With ``quantile`` gamma (Andrew et al. 2021) the
    share of the participants whose updates are no longer than C moves it: ``C <- C exp(-rate (share - gamma))``. With link
    ``noise`` that share is ``1/2 + (sum (b - 1/2) + bit_noise nu) / m``, where b is 1 within the bound and 0 beyond.
    """

    class Settings(PluginSettings):
        name: str = "clip"
        bound: float | None = Tunable(
            1.0,
            low=0.01,
            high=10.0,
            log=True,
            gt=0,
            description="largest norm of an update; null: no limit; with quantile: in the first round (default 0.1)",
        )
        quantile: float | None = Field(
            None, gt=0, lt=1, description="quantile of the norms that the bound tracks, such as 0.5; null: none"
        )
        rate: float = Field(0.2, gt=0, description="step size of the bound's adaptation")
        bit_noise: float | None = Field(
            None,
            gt=0,
            description="with link noise: deviation of the noise in the count of updates within the bound; null: m/20",
        )

        @model_validator(mode="before")
        @classmethod
        def _adaptive_start(cls, values: Any) -> Any:
            adaptive = isinstance(values, dict) and values.get("quantile") is not None
            return {"bound": _ADAPTIVE_START, **values} if adaptive else values

        @model_validator(mode="after")
        def _has_a_start(self) -> Self:
            if self.quantile is not None and self.bound is None:
                raise SettingsError("bound = null: quantile requires an initial bound")
            if self.bit_noise is not None and self.quantile is None:
                raise SettingsError(
                    f"bit_noise = {self.bit_noise:g} is only used with quantile; set quantile, or leave bit_noise null"
                )
            return self

    settings: Settings

    place = 10
    noisy: tuple[Floats, Floats] | None = (
        None  # by round: m, the public size of cohorts, and the deviation in the count
    )

    def bind(self, links: Sequence[Link], layout: Layout) -> None:
        if self.settings.bit_noise is not None and not any(link.private for link in links):
            raise SettingsError(
                f"uplink clip: bit_noise = {self.settings.bit_noise:g} has no effect without link noise; add noise "
                "to uplink, or set it to null"
            )

    def extra(self, size: int) -> dict[str, Tensor]:
        adaptive = self.settings.quantile is not None
        return {"bound": torch.tensor(self.settings.bound, dtype=torch.float64)} if adaptive else {}

    def bound(self, extra: dict[str, Tensor]) -> float:
        """C of this round, from the link's tensors at the server; infinite if nothing is clipped."""
        if "bound" in extra:
            return float(extra["bound"])
        return math.inf if self.settings.bound is None else self.settings.bound

    def apply(self, D: Tensor, s: Sending) -> dict[str, Tensor]:
        return {"clip_factor": clip(D, self.bound(s.extra))}

    def finish(self, columns: dict[str, Tensor], s: Sending) -> dict[str, Tensor | float]:
        bound, within = self.bound(s.extra), (columns["clip_factor"] >= 1).to(torch.float64)
        inside = within.mean()
        if self.settings.quantile is not None:
            share = inside.cpu()
            if self.noisy is not None:
                expected, sigma = (float(values[s.t]) for values in self.noisy)
                share = 0.5 + ((within.cpu() - 0.5).sum() + sigma * s.shared().standard_normal()) / expected
            s.extra["bound"] = bound * torch.exp(-self.settings.rate * (share - self.settings.quantile))
        return {**columns, "clipped": 1.0 - float(inside), "clip_bound": bound if bound < math.inf else math.nan}


def clip(D: Tensor, bound: float) -> Tensor:
    """Shorten rows of ``D`` [c, d] to the length ``bound``; the factors [c, 1]. Shorter rows stay as they are, to the bit."""
    if bound == math.inf:
        return torch.ones_like(D[:, :1])
    lengths = torch.linalg.vector_norm(D, dim=1, keepdim=True)
    factors = torch.where(lengths > bound, bound / lengths, torch.ones_like(lengths))
    for row in (lengths[:, 0] > bound).nonzero()[:, 0].tolist():
        D[row].mul_(factors[row])
    return factors
