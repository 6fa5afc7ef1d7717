"""PUF: updates of the erased clients with the opposite sign."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtide.methods.erasers.base import Eraser, EraserSettings, Erasing, Tunable


class Puf(Eraser):
    """PUF (Mora et al. 2025, arXiv:2504.05822): the server subtracts one more update of the erased clients, eta times.

    With D_i the ordinary local update of client i from the current model::

        regular, in round t:      w' = w + sum_others p_i D_i - eta sum_erased p_u D_u,   p over both
        special, before round t:  w' = w - eta sum_erased p_u D_u,                        p over the erased

    The rates of the released scripts, 20 and 2, are for ten clients that are erased in turn; they do not carry over.

    References:
        Mora et al. 2025. Federated Unlearning Made Practical: Seamless Integration via Negated Pseudo-Gradients.
    """

    class Settings(EraserSettings):
        name: str = "puf"
        form: Literal["regular", "special"] = Field(
            "regular", description="regular: in the next round with the others; special: in a round of their own"
        )
        eta: float = Tunable(20.0, low=0.5, high=20.0, log=True, description="factor of the negated updates")

    settings: Settings
    helps = "erased"
    single = True

    def erase(self, e: Erasing) -> Tensor:
        if self.settings.form == "regular":
            e.negate(self.settings.eta)
            return e.w
        return self._subtracted(e, e.w)

    def on_stored(self, e: Erasing, session: int, w: Tensor) -> Tensor:
        return self._subtracted(e, w)

    def _subtracted(self, e: Erasing, w: Tensor) -> Tensor:
        p = e.weights(e.ids, e.t)
        return w - self.settings.eta * (p @ (e.train(e.ids, w, e.t) - w))
