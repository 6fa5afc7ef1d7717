"""FedAWE."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedtide.methods.algorithms._absent import AbsentSettings
from fedtide.methods.algorithms.base import Algorithm, Round, Tunable


class FedAwe(Algorithm):
    """Adaptive weighting by echoes and implicit gossip under unknown availability (Xiang et al. 2024, arXiv:2409.17446).

    Client i trains from its *own* model x_i, and its step counts for every round it has missed::

        e_i = t - last_i >= 1,   last_i = t                              i in S: adaptive innovation echoing        (1)
        w+ = sum_S p_i x_i + eta_g clip( sum_S p_i e_i (y_i - x_i) )                                                (2)
        x_i = w+                                                         i in S: implicit gossiping                 (3)

    Nothing is received before training; participants receive w+ after the round. A client never seen starts, as in the released
    code, from the session's first model x0 and as if absent since then (``newcomers: initial``), or, for devices that
    join late, from the current model with e_i = 1 (``current``).

    Only the abstract was available: formulas are those of the authors' code. It also clips the averaged step at norm 0.5
    (``delta_clip: 0.5``; off by default, as the abstract does not mention it, although echoed steps may overshoot) and
    evaluates the mean of all clients' x_i; here w is evaluated. The recorded ``drift`` is measured from w, not from x_i.

    With ``client_state.on_session_start: keep`` clients that stay go on from their own x_i and ignore the initializer's model,
    so prefer ``reset``. A device that leaves within a session returns as a newcomer.
    """

    class Settings(AbsentSettings):
        name: str = "fedawe"
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, ge=0, description="server step size eta_g")
        delta_clip: float | None = Field(
            None,
            gt=0,
            description="largest norm of the averaged step, before eta_g (released code: 0.5); null: no limit",
        )
        newcomers: Literal["initial", "current"] = Field(
            "initial",
            description="a client never seen starts from the session's first model with an echo of all its rounds, or "
            "from the current model with an echo of one",
        )

    settings: Settings

    admits = ("rules",)

    server = ("x0",)
    client = ("x",)

    def extra(self) -> dict[str, Tensor]:
        """Round and echo of each client's last participation [N]."""
        never = torch.full((self.problem.clients,), -1, dtype=torch.int64)
        return {"last": never, "echo": torch.zeros_like(never)}

    def start(self, r: Round) -> Tensor:
        """x_i; a session's first model is remembered for those never seen."""
        if r.session.round == 0:
            r.server.x0 = r.w
        return self.own_models(r)

    def own_models(self, r: Round) -> Tensor:
        """x_i [C, d]."""
        fresh = r.server.x0 if self.settings.newcomers == "initial" else r.w
        return torch.where(r.seen > 0, r.client.x, fresh)

    def finish(self, r: Round) -> Tensor:
        """The mean of what the participants started from, plus their echoed steps."""
        ids = torch.tensor(r.ids, device=r.extra["last"].device)
        first = r.session.round + 1 if self.settings.newcomers == "initial" else 1
        seen = (r.seen[:, 0] > 0).to(ids.device)
        echo = torch.where(seen, r.t - r.extra["last"][ids], first)
        r.extra["last"][ids], r.extra["echo"][ids] = r.t, echo  # (1)
        x = self.own_models(r)
        w = r.mean(x) + self.settings.server_lr * self.clip(r.mean(echo.to(r.W).unsqueeze(1) * (r.W - x)))  # (2)
        r.client.x = w.expand_as(r.W)  # (3)
        return w

    def clip(self, step: Tensor) -> Tensor:
        """step min(1, delta / |step|)."""
        delta, norm = self.settings.delta_clip, float(torch.linalg.vector_norm(step))
        return step if delta is None or norm <= delta else step * (delta / norm)

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """e_i of every participant; their sum over a client's rounds is the number of rounds up to its last one."""
        return {"echo": r.extra["echo"][torch.tensor(r.ids)].to(r.W).unsqueeze(1)}
