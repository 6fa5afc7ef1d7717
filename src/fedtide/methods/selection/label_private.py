"""DynaComm without labels."""

from functools import partial

import numpy as np
import torch
from pydantic import Field

from fedtide.core.array_types import Floats
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import PluginSettings
from fedtide.methods.selection.base import Candidates, Selection
from fedtide.methods.selection.dynacomm import best_group, random_orders


class LabelPrivate(Selection):
    """Sketched last-layer updates instead of labels: the group's sum points in the direction of the sum of all (ours).

    DynamicFL mentions cosine similarity of private information in place of label counts, but gives no algorithm. Here each
    active client sends u_m, a fixed Gaussian sketch of the gradient of its last layer's weights at the model received (the
    update of one full-batch step, up to the learning rate), and the dynamic program of ``dynacomm`` minimizes::

        1 - cos(sum_{m in z} n_m u_m, sum_{m in A} n_m u_m)

    No labels leave the client, but there is no formal guarantee.
    """

    class Settings(PluginSettings):
        name: str = "label_private"
        orders: int = Field(10, ge=1, description="random client orders; the best result is kept")
        sketch: int = Field(64, ge=1, description="numbers a client sends")

    settings: Settings

    def choose(self, candidates: Candidates) -> list[int]:
        c = candidates
        sent = c.r.n.cpu().numpy() * self._sketches(c)  # n_m u_m
        orders = random_orders(c, self.settings.orders)
        return best_group(sent, partial(turn, whole=sent.sum(0)), orders, c.most, c.size)[0]

    def _sketches(self, c: Candidates) -> Floats:
        """u_m [C, s]."""
        slots = [slot for slot in c.r.problem.layout.parameters if slot.name == "head.weight"]
        if not slots:
            raise SettingsError("communication.selection.name = 'label_private': the model's head has no weight matrix")
        gradient = c.r.services.full_gradient(c.r.w)[:, slots[0].start : slots[0].stop].to(torch.float64).cpu().numpy()
        rng = c.r.problem.randomness.generator("selection.sketch")
        projection = rng.standard_normal((gradient.shape[1], self.settings.sketch)) / np.sqrt(self.settings.sketch)
        sketches: Floats = gradient @ projection
        return sketches


def turn(sums: Floats, whole: Floats) -> Floats:
    """1 - cos(sums, whole) [...] for sums [..., s]; 1 for a sum of zero."""
    norms = np.linalg.norm(sums, axis=-1) * np.linalg.norm(whole)
    values: Floats = 1 - (sums @ whole) / np.maximum(norms, np.finfo(np.float64).tiny)
    return values
