"""FedEraser: past updates, with directions that the remaining clients renew."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.erasers.base import Eraser, EraserSettings, Erasing, PastRound, Tunable
from fedtide.training.engine.flat import Layout


class FedEraser(Eraser):
    """FedEraser (Liu et al. 2021, arXiv:2012.13891) repeats every ``interval``-th round without the erased clients.

    From the last stored model v that they had no part in, and with D_i the updates of that time::

        first repeated round:  v := v + sum p_i D_i
        others:                H_i = update of i from v, ceil(ratio E) epochs;   v := v + sum p_i |D_i| H_i / |H_i|

    Sessions that begin in between start as the initializer says, from the rebuilt models. The released program (``variant:
    release``) repeats the last round of each interval, starts from the mean of the others' local models in the first one that
    has others, and takes tensor by tensor the length |sum p_i y_i - w_after| along sum p_i H_i, with w_after the model that the
    erased had part in.

    References:
        Liu et al. 2021. FedEraser: Enabling Efficient Client-Level Data Removal from Federated Learning Models.
    """

    class Settings(EraserSettings):
        name: str = "fed_eraser"
        interval: int = Tunable(2, low=1, high=10, ge=1, description="rounds between two repeated ones")
        ratio: float = Tunable(
            0.5, low=0.1, high=1.0, gt=0, le=1, description="local work of a repeated round, as a share"
        )
        direction: Literal["new", "stored"] = Field(
            "new", description="stored: past updates are added up as they are, without training"
        )
        absent: Literal["train", "stored", "skip"] = Field(
            "train",
            description="clients that have left: train: they come back for it; stored: their past update; skip: left out",
        )
        variant: Literal["text", "release"] = Field("text", description="release: as in the released program")

    settings: Settings
    helps = "retained"
    single = True
    store = "erase"

    @property
    def keeps_model_after(self) -> bool:
        return self.settings.variant == "release"

    def keeps_round(self, t: int, at: int) -> bool:
        m = self.settings.interval
        return t % m == (m - 1 if self.keeps_model_after else 0)

    def refuses(self, at: int, rounds: Sequence[int]) -> str | None:
        if rounds or not self.keeps_model_after:
            return None
        return (
            f"variant: release starts from every {self.settings.interval}th round, and no other client takes part in "
            f"such a round before round {at}; use a smaller interval, a later request, or variant: text"
        )

    def erase(self, e: Erasing) -> Tensor:
        kept = [t for t in range(e.t) if self.keeps_round(t, e.t)]
        released = self.keeps_model_after
        first = next(t for t in kept if e.past(t).ids) if released else max(t for t in kept if e.clean(t))
        rounds, past = kept[kept.index(first) :], e.past(first)
        v, session, facts = past.w, e.session(past.t), []
        for t in rounds:
            while session < e.session(t):
                v, session = e.next_session(v, session), session + 1
            past = e.past(t)
            if past.ids:
                v = self._repeated(e, past, v, t == first)
            facts.append({"round": t + 1, "clients": past.ids})
        while session < e.session(e.t - 1):
            v, session = e.next_session(v, session), session + 1
        e.rebuilt[session] = v  # if it ends here
        e.note(repeated=facts)
        return v

    def on_stored(self, e: Erasing, session: int, w: Tensor) -> Tensor:
        return e.rebuilt.get(session, w)

    def _repeated(self, e: Erasing, past: PastRound, v: Tensor, first: bool) -> Tensor:
        """The model [d] after a repeated round that starts from ``v``."""
        c, ids, p = self.settings, past.ids, e.weights(past.ids, past.t)
        if first:
            return p @ past.W if self.keeps_model_after else v + p @ past.D
        trains = [row for row, client in enumerate(ids) if c.absent == "train" or client in e.present]
        W, D = past.W, past.D
        if c.absent == "skip":
            ids, W, D, trains = [ids[row] for row in trains], W[trains], D[trains], list(range(len(trains)))
            if not ids:
                return v
            p = e.weights(ids, past.t)
        H = D.clone()
        if c.direction == "new" and trains:
            amount = max(1, math.ceil(c.ratio * e.local.amount))
            H[trains] = e.train([ids[row] for row in trains], v, past.t, amount) - v
            if self.keeps_model_after:
                return v + self._scaled(e.layout, p @ H, p @ W - past.w)
            norms = H[trains].norm(dim=1, keepdim=True)
            H[trains] *= torch.where(norms > 0, D[trains].norm(dim=1, keepdim=True) / norms, 0)
        return v + p @ H

    @staticmethod
    def _scaled(layout: Layout, direction: Tensor, length: Tensor) -> Tensor:
        """A direction [d], each of its tensors as long as that of ``length``."""
        parts = []
        for slot in layout.parameters:
            along, norm = direction[slot.start : slot.stop], length[slot.start : slot.stop].norm()
            parts.append(along * (norm / along.norm()) if along.any() else along)
        return torch.cat(parts)
