"""ConDa: parameters that the erased clients moved most are dampened."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.erasers.base import Eraser, EraserSettings, Erasing, Tunable


class ConDa(Eraser):
    """ConDa (Chundawat et al. 2024, arXiv:2410.04144): contribution dampening at the server alone.

    c_i sums, entry by entry, how far client i moved the parameters over its rounds; c_U is the mean over the erased clients,
    c_R that over all others that took part::

        r = c_R / c_U;    r_j < cutoff:  w_j := w_j min(dampening r_j, upper)

    The released program passes its two contributions in the wrong order (``variant: release``), so it dampens what the erased
    clients moved least. It measures from the run's first model (``base: initial``) instead of the one that was sent.

    References:
        Chundawat et al. 2024. ConDa: Fast Federated Unlearning with Contribution Dampening.
    """

    class Settings(EraserSettings):
        name: str = "conda"
        cutoff: float = Tunable(
            0.5, low=0.1, high=2.0, log=True, ge=0, description="ratio below which entries are dampened"
        )
        dampening: float = Field(0.5, ge=0, description="factor of the ratio")
        upper: float = Field(0.5, ge=0, description="largest factor of an entry")
        base: Literal["broadcast", "initial"] = Field(
            "broadcast", description="what movement is measured from: the model that was sent, or the run's first"
        )
        variant: Literal["text", "release"] = Field(
            "text", description="text: as the paper says; release: contributions exchanged, as in the released program"
        )

    settings: Settings
    keeps = ("movement",)
    single = True

    def moved(self, W: Tensor, sent: Tensor, initial: Tensor) -> Tensor:
        return (W - (initial if self.settings.base == "initial" else sent)).abs()

    def erase(self, e: Erasing) -> Tensor:
        w, dampened = self._dampened(e, e.w)
        e.note(dampened=dampened)
        return w

    def on_stored(self, e: Erasing, session: int, w: Tensor) -> Tensor:
        return self._dampened(e, w)[0]

    def _dampened(self, e: Erasing, w: Tensor) -> tuple[Tensor, int]:
        """The model [d], and how many of its entries have changed."""
        c, moved = self.settings, e.rows("movement")
        erased, others = moved[e.ids].mean(0), moved[e.others].mean(0)
        if c.variant == "release":
            erased, others = others, erased
        ratio = torch.where(erased == 0, torch.inf, others / erased)
        low = ratio < c.cutoff
        return w.where(~low, w * (c.dampening * ratio).clamp(max=c.upper)), int(low.sum())
