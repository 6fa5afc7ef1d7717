"""How quickly erased clients are learned again."""

import math
from dataclasses import replace

from fedtide.federation.features.erasing import Step
from fedtide.federation.scoring.erased import Erased

MARGIN = 0.02
"""By how much, in nats, the loss may exceed that before the request."""


def epochs(step: Step, erased: Erased, t: int, level: float, most: int) -> float:
    """Epochs of training by the erased clients alone until a model fits their training samples as before the request.

    Args:
        step: with the state of the run whose model is trained; the clients' models are averaged after each epoch.
        t: round whose learning rate is used. level: their mean loss before the request.

    Returns:
        The number, NaN if more than ``most`` are needed.
    """
    w, step = step.w, replace(step, costs=dict(step.costs), visits=[])
    for epoch in range(most + 1):
        if erased.loss((w, step.state.b)) <= level + MARGIN:
            return float(epoch)
        if epoch < most:
            w = step.weights(step.ids, t) @ step.train(step.ids, w, t, 1, "epochs", epoch)
    return math.nan
