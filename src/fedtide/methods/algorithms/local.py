"""Training alone."""

import numpy as np
import torch
from torch import Tensor

from fedtide.methods.algorithms.base import Algorithm, Round, RunPreview, Served, ServedTo


class LocalTraining(Algorithm):
    """Reference baseline: every client trains a model of its own on its own data and sends nothing.

    The global model stays the initial one, so it has no scores: those of the clients' own models are ``test_served_*``, where
    samples have owners, and ``served_accuracy_*``, with ``evaluation.clients_every``. With
    ``client_state.on_session_start: reset`` all clients start again in every session. BatchNorm's running statistics are those
    of all.
    """

    models = ("personal",)
    down = ()
    up = ()
    client = ("own",)

    def advice(self, run: RunPreview) -> list[str]:
        return [
            "algorithm local has no global model, and no test accuracy of one: the clients' own models are in test_served_* "
            "(samples with owners) and served_accuracy_* (evaluation.clients_every)"
        ]

    def start(self, r: Round) -> Tensor:
        return torch.where(r.seen > 0, r.client.own, r.w)

    def finish(self, r: Round) -> Tensor:
        r.client.own = r.W
        return r.w

    def served(self, s: ServedTo) -> Served:
        return Served(torch.where(s.seen > 0, s.client.own, s.w), np.arange(len(s.ids)))
