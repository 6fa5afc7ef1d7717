"""NoT: negation of the first layer."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from fedtide.methods.erasers.base import Eraser, EraserSettings, Erasing


class WeightNegation(Eraser):
    """NoT (Khalil et al. 2025, arXiv:2503.05657): the weights of the first layer change their sign.

    W := -W, biases stay as they are, and training of the others goes on. It never looks at the clients that are erased: it
    restarts a part of the model. Softmax regression has a single layer, which the paper's theory excludes.

    References:
        Khalil et al. 2025. NoT: Federated Unlearning via Weight Negation.
    """

    class Settings(EraserSettings):
        name: str = "weight_negation"
        layers: Literal["first", "all"] | tuple[str, ...] = Field(
            "first", description="layers to negate: first, all, or names of modules"
        )
        bias: bool = Field(False, description="whether their biases are negated as well")

    settings: Settings

    def erase(self, e: Erasing) -> Tensor:
        return self._negated(e, e.w)

    def on_stored(self, e: Erasing, session: int, w: Tensor) -> Tensor:
        return self._negated(e, w)

    def _negated(self, e: Erasing, w: Tensor) -> Tensor:
        slots, chosen = e.layout.parameters, self.settings.layers
        if chosen == "all":
            names = [slot.name for slot in slots]
        else:
            names = [slots[0].name.rpartition(".")[0]] if chosen == "first" else list(chosen)
        negated = e.layout.mask(names)
        if not self.settings.bias:
            for slot in slots:
                if "bias" in slot.name:
                    negated[slot.start : slot.stop] = False
        return w.where(~negated, -w)
