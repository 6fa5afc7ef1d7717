"""Projected gradient ascent."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.erasers.base import Eraser, EraserSettings, Erasing, Tunable

DRAWN = 10
"""Random initializations that the radius is measured by."""


class Pga(Eraser):
    """Projected gradient ascent of the erased clients on their own loss (Halimi et al. 2022, arXiv:2207.05521).

    It stays within a ball around the mean w_ref of the others' local models of the last round::

        g = clip(gradient of a batch at x);  s = momentum s + g;  x = x + lr s;  projected to |x - w_ref| <= radius

    ``radius: third`` is a third of the mean distance of w_ref from ten random initializations; ``release``, as in the
    released program, which measures squared distances, sqrt(mean squared distance / 3). The program also stops at a distance
    of x from the client's last local model, squared 2.2; the paper stops by validation accuracy, which is not offered.

    References:
        Halimi et al. 2022. Federated Unlearning: How to Efficiently Erase a Client in FL?.
    """

    class Settings(EraserSettings):
        name: str = "pga"
        radius: Literal["third", "release"] | float = Field(
            "third", description="radius of the ball: a number, third or release"
        )
        scale: float = Tunable(1.0, low=0.1, high=1.0, log=True, gt=0, description="factor of the radius")
        epochs: int = Field(5, ge=1, description="passes over the samples of the erased clients")
        lr: float = Field(0.01, gt=0, description="learning rate of the ascent")
        momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the ascent")
        ascent_clip: float = Field(5.0, gt=0, description="largest norm of a gradient")
        batch_size: int | None = Field(128, ge=1, description="samples of a step; null: as in training")
        stop_distance: float | None = Field(
            None, gt=0, description="distance from the client's last local model at which the ascent stops; null: none"
        )

    settings: Settings
    helps = "erased"
    keeps = ("last",)
    single = True

    def keeps_round(self, t: int, at: int) -> bool:
        return t == at - 1

    def erase(self, e: Erasing) -> Tensor:
        past = e.past(e.t - 1)
        reference = e.weights(past.ids, past.t) @ past.W if past.ids else past.w
        return self._ascent(e, reference, self.settings.stop_distance)

    def on_stored(self, e: Erasing, session: int, w: Tensor) -> Tensor:
        return self._ascent(e, w, None)

    def _ascent(self, e: Erasing, reference: Tensor, stop: float | None) -> Tensor:
        c, radius = self.settings, self._radius(e, reference)
        x, s, steps, projected = reference, torch.zeros_like(reference), 0, 0
        facts = {"radius": radius, "stopped": False}
        e.charge_exchange()
        for epoch in range(c.epochs):
            for u in e.ids:
                for batch in e.ascent_batches(u, epoch, c.batch_size):
                    g = e.gradient(u, x, batch)
                    s = c.momentum * s + g * min(1.0, c.ascent_clip / (float(g.norm()) + 1e-6))
                    x, steps = x + c.lr * s, steps + 1
                    if (distance := float((x - reference).norm())) > radius:
                        x, projected = reference + (radius / distance) * (x - reference), projected + 1
                    if stop is not None and float((x - e.rows("last")[u]).norm()) > stop:
                        e.note(**{**facts, "steps": steps, "projected": projected, "stopped": True})
                        return x
        e.note(**{**facts, "steps": steps, "projected": projected})
        return x

    def _radius(self, e: Erasing, reference: Tensor) -> float:
        c = self.settings
        if isinstance(c.radius, float):
            return c.scale * c.radius
        distances = torch.stack([(reference - e.drawn(number)).norm() for number in range(DRAWN)])
        if c.radius == "third":
            return c.scale * float(distances.mean()) / 3
        return c.scale * math.sqrt(float((distances**2).mean()) / 3)
