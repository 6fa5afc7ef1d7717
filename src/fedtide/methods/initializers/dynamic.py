"""Dynamic initial model construction."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, PlainSerializer
from torch import Tensor

from fedtide.core.errors import Diverged
from fedtide.core.plugins import Tunable
from fedtide.methods.initializers.base import (
    Boundary,
    Initializer,
    InitializerSettings,
    Start,
    Store,
    forget,
    pilot_models,
    recall,
    remember,
    sessions,
)
from fedtide.training.engine.flat import Layout


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
        s.store.pop("mixture", None)
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
        s.store["mixture"] = torch.tensor([stored, weights], dtype=torch.float64).T
        models = [(recall(s.store, "session", z, "w"), recall(s.store, "session", z, "b")) for z in stored]
        return mix(weights, models)  # (3)

    def mixture(self, store: Store, sessions: Sequence[int]) -> dict[int, float]:
        kept = store.get("mixture", torch.zeros(0, 2)).tolist()
        return {int(z): weight for z, weight in kept}

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


_TIE = 1e-12  # relative difference below which two distances are equal under an infinite scale


def similarity_weights(distances: Sequence[float], scale: float) -> list[float]:
    """mu_z = exp(-R d_z) / sum_z' exp(-R d_z'), in float64 and without overflow.

    An infinite scale R gives all weight to the nearest (ties share it equally); R = 0 gives equal weights.
    """
    nearest = min(distances)
    if math.isinf(scale):
        parts = [float(d - nearest <= _TIE * max(1.0, abs(nearest))) for d in distances]
    else:
        parts = [math.exp(-scale * (d - nearest)) for d in distances]
    total = math.fsum(parts)
    return [part / total for part in parts]


def mix(weights: Sequence[float], models: Sequence[Start]) -> Start:
    """Weighted sum of parameters and buffers, in float64; all weight on one model gives that model to the bit."""
    used = [(weight, model) for weight, model in zip(weights, models, strict=True) if weight > 0]
    if len(used) == 1 and used[0][0] == 1:  # a sum would lose the sign of a zero
        return used[0][1]

    def mean(part: int) -> Tensor:
        total = sum(weight * model[part].to(torch.float64) for weight, model in used)
        return torch.as_tensor(total).to(models[0][part].dtype)

    return mean(0), mean(1)


def pilot_weights(count: int, mode: Literal["average", "ema"], decay: float) -> list[float]:
    """Weights of the pilot sessions' models, oldest first.

    ``average``: equal. ``ema``: m <- decay m + (1 - decay) w, starting from the oldest model: decay^(P-1) for the oldest and
    (1 - decay) decay^(P-1-i) for the i-th after it.
    """
    if mode == "average":
        return [1 / count] * count
    return [(1 - decay if i else 1.0) * decay ** (count - 1 - i) for i in range(count)]


Distance = Callable[[Tensor, Tensor, Layout], float]  # distance between two updates [d], in float64


def global_l2(first: Tensor, second: Tensor, layout: Layout) -> float:
    """|G - H| over all parameters."""
    return float(torch.linalg.vector_norm(first.to(torch.float64) - second.to(torch.float64)))


def layerwise_unit(first: Tensor, second: Tensor, layout: Layout) -> float:
    """Mean over tensors of |G/|G| - H/|H||, between 0 and 2."""
    return _mean(float(torch.linalg.vector_norm(a - b)) for a, b in _unit_tensors(first, second, layout))


def inner_product(first: Tensor, second: Tensor, layout: Layout) -> float:
    """Minus the mean over tensors of <G/|G|, H/|H|>, between -1 and 1, so that smaller is nearer here too."""
    return -_mean(float(torch.sum(a * b)) for a, b in _unit_tensors(first, second, layout))


DISTANCES: dict[str, Distance] = {
    "global_l2": global_l2,
    "layerwise_unit": layerwise_unit,
    "inner_product": inner_product,
}


def _unit_tensors(first: Tensor, second: Tensor, layout: Layout) -> Iterator[tuple[Tensor, Tensor]]:
    for slot in layout.parameters:
        if "bias" not in slot.name:
            yield _unit(slot.view(first)), _unit(slot.view(second))


def _unit(tensor: Tensor) -> Tensor:
    values = tensor.to(torch.float64)
    norm = torch.linalg.vector_norm(values)
    return values if norm == 0 else values / norm


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def kept(
    sessions: Sequence[int], cap: int | None, diverse: bool, distance: Callable[[int, int], float] = lambda *_: 0.0
) -> list[int]:
    """Sessions to keep of the stored ones, ascending: at most ``cap``, if it is given.

    ``diverse`` drops the older one of the nearest pair (ties: the smallest pair) until the rest fits, which keeps a recent
    representative of each population; otherwise the oldest are dropped.
    """
    if cap is None or len(sessions) <= cap:
        return list(sessions)
    if not diverse or cap == 0:
        return list(sessions[len(sessions) - cap :])
    left = list(sessions)
    apart = {pair: distance(*pair) for pair in combinations(left, 2)}
    while len(left) > cap:
        older, _ = min(combinations(left, 2), key=lambda pair: (apart[pair], pair))
        left.remove(older)
    return left
