"""IFCA."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.methods.algorithms._clusters import Serve, averaged, chosen, main_concept, served
from fedtide.methods.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Extra,
    Layout,
    Round,
    Served,
    ServedTo,
    Tunable,
)


class Ifca(Algorithm):
    """k global models; every participant trains the one that fits it best (Ghosh et al. 2020; Mansour et al. 2020).

    A round, with the models M_1 ... M_k::

        id_i = argmin_j (mean loss of M_j on all samples of client i)      the lowest number on ties                (1)
        theta_i = local training from M_{id_i}                                                                      (2)
        M_j+ = M_j + eta_g (weighted mean of theta_i over id_i = j - M_j)  unchanged without participants           (3)

    M_1 is the run's initial model, the others are independent initializations. The global model that is evaluated beside the
    served ones is the mean of the round's local models. The authors weigh clients equally and assign clients for testing by
    their test loss; here the weighting is the run's, and clients choose by their training samples.

    ``assign: concept`` is an oracle: a model for each concept of the world, all from the same initial model. A client that sees
    samples under several concepts has that of most, of two equal shares the later one.
    """

    class Settings(AlgorithmSettings):
        name: str = "ifca"
        clusters: int = Tunable(4, low=2, high=8, ge=1, description="global models k")
        assign: Literal["loss", "concept"] = Field("loss", description="concept: the true concepts, one model for each")
        serve: Serve = Field(
            "choose", description="model of a client in evaluation: the best one, or the last one it trained"
        )
        server_lr: float = Field(1.0, gt=0, description="server step size eta_g")

    settings: Settings

    down = ("models",)
    up = ("W", "identity")

    def extra(self) -> dict[str, Tensor]:
        """Models [k, d], made in the first round of a session; the model each client trained last, -1 for none."""
        return {"models": torch.zeros(0), "identity": torch.full((self.problem.clients,), -1)}

    def start(self, r: Round) -> Tensor:
        if not r.extra["models"].numel():
            r.extra["models"] = self.initial(r)
        identity = self._assigned(r)
        r.extra["identity"] = r.extra["identity"].cpu().index_copy(0, torch.tensor(r.ids), torch.from_numpy(identity))
        return chosen(r.extra["models"], identity)

    def initial(self, r: Round) -> Tensor:
        """The models [k, d] before the first round."""
        if self.settings.assign == "concept":
            return r.w.repeat(r.services.concepts().shape[1], 1)
        return torch.stack([r.w, *(self.problem.drawn(number) for number in range(1, self.settings.clusters))])

    def _assigned(self, r: Round) -> Ints:
        if self.settings.assign == "concept":
            return main_concept(r.services.concepts())
        return np.asarray(r.services.losses(r.extra["models"]).argmin(1).cpu().numpy(), dtype=np.int64)  # (1)

    def finish(self, r: Round) -> Tensor:
        identity = r.extra["identity"].cpu()[r.ids].numpy()
        r.extra["models"] = averaged(r, r.extra["models"], identity, self.settings.server_lr)  # (3)
        return r.average()

    def served(self, s: ServedTo) -> Served:
        if self.settings.assign == "concept":
            return Served(s.extra["models"], main_concept(s.concepts))
        return served(s, s.extra["models"], s.extra["identity"].cpu()[s.ids].numpy(), self.settings.serve)

    def forget(self, extra: dict[str, Tensor], departed: Tensor) -> None:
        extra["identity"] = extra["identity"].cpu().index_fill(0, departed, -1)

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        return {"models": self.settings.clusters * layout.size, "identity": 1}.get(
            name, super().width(name, layout, extra)
        )

    def record(self, r: Round) -> dict[str, Tensor | float]:
        return {"cluster": r.extra["identity"][r.ids].unsqueeze(1).to(r.W)}
