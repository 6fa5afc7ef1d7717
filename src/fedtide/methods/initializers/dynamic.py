"""Dynamic initial model construction."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer
from torch import Tensor

from fedtide.core.errors import Diverged
from fedtide.core.plugins import Tunable
from fedtide.methods.initializers._distances import DISTANCES
from fedtide.methods.initializers._mixing import mix, pilot_weights, similarity_weights
from fedtide.methods.initializers._retention import kept
from fedtide.methods.initializers._store import forget, recall, remember, sessions
from fedtide.methods.initializers.base import Boundary, Initializer, InitializerSettings, Start, pilot_models


def _from_text(value: Any) -> Any:
    return math.inf if value == "inf" else value


def _to_text(value: float) -> float | str:
    return "inf" if math.isinf(value) else value


Scale = Annotated[float, BeforeValidator(_from_text), PlainSerializer(_to_text, when_used="json")]
"""A number that may be infinite, which is written to JSON as ``inf``."""


class Dynamic(Initializer):
    """Each session starts from earlier sessions' models, weighted by population similarity (Chang et al. 2025).

    At the start of every session s after the pilot, V rounds of the run's own algorithm from the pilot model characterize its
    population (1); from the second such session on it starts from the stored final models w_z (Algorithm 1)::

        G_s = w_V - w_pilot                                                                                         (1)
        mu_z = exp(-R d(G_s, G_z)) / sum_z' exp(-R d(G_s, G_z'))                                                    (2)
        w_init = sum_z mu_z w_z                                                                                     (3)

    In the paper d is the distance of whole vectors, ``global_l2``; the default is that of the released code,
    ``layerwise_unit``, whose useful R does not depend on the learning rate. In the released code gradient rounds change the
    clients' memories; here they use memories of their own, empty at the start and then discarded. Their costs are counted,
    and the history records their number. Without pilot sessions the run's initial model is the pilot model. ``history`` and
    ``retention`` are extensions, which the paper suggests without giving a rule.

    References:
        Chang et al. 2025. Communication-Efficient Federated Learning under Dynamic Device Arrival and Departure: Convergence
            Analysis and Algorithm Design.
    """

    class Settings(InitializerSettings):
        name: str = "dynamic"
        pilot_mode: Literal["average", "ema"] = Field(
            "average", description="how the models of several pilot sessions are combined"
        )
        pilot_decay: float = Field(0.5, ge=0, lt=1, description="ema: weight of the older models in each step")
        gradient_rounds: int = Field(1, ge=1, description="gradient rounds V, which give the update G of a session")
        gradient_lr: float | None = Field(
            None, gt=0, description="learning rate of gradient rounds; null: half of local.lr"
        )
        gradient_steps: int | None = Field(
            None, ge=1, description="local steps in gradient rounds; null: as in training"
        )
        gradient_batch_size: int | None = Field(
            None, ge=1, description="batch size in gradient rounds; null: as in training"
        )
        distance: Literal["layerwise_unit", "global_l2", "inner_product"] = Field(
            "layerwise_unit",
            description="distance d of two updates: layerwise_unit: mean over tensors of unit norm, without biases; "
            "global_l2: of whole vectors; inner_product: minus the mean cosine of tensors",
        )
        similarity_scale: Scale = Tunable(
            10.0,
            low=0.1,
            high=1000.0,
            log=True,
            ge=0,
            allow_inf_nan=True,
            description="R; 0: plain mean; .inf: nearest",
        )
        history: int | None = Field(None, ge=0, description="largest number of stored sessions; null: all")
        retention: Literal["recent", "diverse"] = Field(
            "recent",
            description="dropped first: recent: the oldest session; diverse: the older one of the most similar pair",
        )

    settings: Settings

    trains = True

    def prepare(self, s: Boundary) -> None:
        """w_pilot, once; then G_s."""
        c = self.settings
        if s.session == s.pilot:
            models = pilot_models(s) or [(s.w0, s.b0)]
            w, b = mix(pilot_weights(len(models), c.pilot_mode, c.pilot_decay), models)
            s.store.update(pilot_w=w, pilot_b=b)
        w, b = s.store["pilot_w"], s.store["pilot_b"]
        lr = s.lr / 2 if c.gradient_lr is None else c.gradient_lr
        end = s.services.train(w, b, c.gradient_rounds, lr, c.gradient_steps, c.gradient_batch_size)
        remember(s.store, "update", s.session, G=end - w)  # (1)

    def construct(self, s: Boundary) -> Start:
        """w_init; the current model if nothing is stored."""
        stored = sessions(s.store, "session")
        if not stored:
            return s.w, s.b
        distances = [self._distance(s, s.session, z) for z in stored]
        if not all(map(math.isfinite, distances)):
            raise Diverged(
                f"session {s.session + 1}: the distances of its update from those of sessions "
                f"{', '.join(str(z + 1) for z in stored)} are not finite; lower initializer.gradient_lr"
            )
        weights = similarity_weights(distances, self.settings.similarity_scale)  # (2)
        for name, values in (("weights", weights), ("distances", distances)):
            s.facts[name] = {str(z + 1): value for z, value in zip(stored, values, strict=True)}
        models = [(recall(s.store, "session", z, "w"), recall(s.store, "session", z, "b")) for z in stored]
        return mix(weights, models)  # (3)

    def keep(self, s: Boundary) -> None:
        c = self.settings
        remember(s.store, "session", s.session, w=s.w.clone(), b=s.b.clone())
        stored = sessions(s.store, "session")
        keep = kept(stored, c.history, c.retention == "diverse", lambda a, z: self._distance(s, a, z))
        for dropped in set(stored) - set(keep):
            forget(s.store, "session", dropped)
            forget(s.store, "update", dropped)

    def _distance(self, s: Boundary, first: int, second: int) -> float:
        a: Tensor = recall(s.store, "update", first, "G")
        return DISTANCES[self.settings.distance](a, recall(s.store, "update", second, "G"), s.services.layout)
