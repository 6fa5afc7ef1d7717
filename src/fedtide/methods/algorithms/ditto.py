"""Ditto."""

from collections.abc import Generator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._whole_models import WholeModels
from fedtide.methods.algorithms.base import AlgorithmSettings, Local, Phase, Round, Tunable


class Ditto(WholeModels):
    """Ditto: beside FedAvg every client trains a model v_i of its own, which is pulled toward the global one.

    Li et al. 2021, arXiv 2012.04221::

        y_i = E epochs from w;  w = sum_k p_k y_k                                                 FedAvg         (1)
        v_i = E_p epochs from v_i along  g_B(v_i) + lambda (v_i - w),  rate eta_p,  w as received                (2)

    A client is served v_i, and w if it has never been drawn. It starts v_i from the w that it receives (``newcomers: current``)
    or from the model that the session started from (``initial``, the released code).

    The released code alternates personal and global steps, which gives the same numbers; it draws clients by size and averages
    plainly. Its choice of lambda per device, by the loss on validation samples, is not offered.

    References:
        Li et al. 2021. Ditto: Fair and Robust Federated Learning Through Personalization.
    """

    class Settings(AlgorithmSettings):
        name: str = "ditto"
        lambda_: float = Tunable(
            1.0,
            low=0.01,
            high=10.0,
            log=True,
            ge=0,
            description="pull of own models toward the global one; 0: local training",
        )
        personal_epochs: int | None = Field(
            None,
            ge=1,
            description="local work E_p on an own model, in epochs or steps as `local`; null: that of `local`",
        )
        personal_lr: float | None = Field(
            None,
            gt=0,
            description="learning rate eta_p of own models, which decays as that of the run; null: that of the run",
        )
        newcomers: Literal["current", "initial"] = Field(
            "current",
            description="start of a personal model: current: the global model; initial: the session's first one",
        )

    settings: Settings

    admits = ("rules",)
    client = ("v",)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.newcomers == "initial":
            self.server = ("first",)

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        s, first = self.settings, r.w
        if s.newcomers == "initial":
            if r.session.round == 0:
                r.server.first = r.w
            first = r.server.first
        yield Phase(r.base, main=True)  # (1)
        start = torch.where(r.seen > 0, r.client.v, first)
        pull = Local(pull=s.lambda_, toward=r.w) if s.lambda_ else Local()
        lr = None if s.personal_lr is None else r.scheduled(s.personal_lr)
        r.client.v = yield Phase(start, pull, amount=s.personal_epochs, lr=lr)  # (2)
