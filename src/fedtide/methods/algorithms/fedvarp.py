"""FedVARP."""

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.errors import SettingsError
from fedtide.methods.algorithms._absent import LastUpdates, UpdateSettings, shares
from fedtide.methods.algorithms.base import Problem, Round, Tunable


class FedVarp(LastUpdates):
    """Fresh updates, corrected by what absent clients sent last (Jhunjhunwala et al. 2022, arXiv:2207.14130).

    With the last updates ``h_i`` of all clients, zero before the first, weights p of the participants and q of the population::

        h_i' = (w - y_i) / eta                                                                                      (1)
        v = sum_S p_i (h_i' - beta h_i) + beta sum_j q_j h_j      j over all clients present; all h are the old     (2)
        w+ = w - eta_g eta v,   then h_i = h_i' for i in S                                                          (3)

    ``beta: 1`` is FedVARP, 0 FedAvg, and between them lies FedStale (Rodio and Neglia 2024), whose published rule weights fresh
    updates by known availabilities; here p_i are normalized over the participants.

    With ``clusters: C`` the method is ClusterFedVARP: client i uses the memory z_c of its cluster c = i mod C in the place of
    h_i, and z_c becomes the weighted mean of the h_i' of its participants.

    The paper's text was not available: the rule is that of two independent implementations and of FedAWE's authors, the initial
    memory zero and the renewal of z_c are from memory of the paper, and the assignment of clusters is ours (in the paper they
    are given). Updates are not divided by the number of steps.

    With ``mode: async`` S are the ``buffer`` results that an update is made of, and ``h_i' = (base - y_i) / eta`` with the
    model and the rate that the job started from, however stale. Two results of one client are two terms of the sum with the
    same old h_i; the later one is stored.
    """

    class Settings(UpdateSettings):
        name: str = "fedvarp"
        beta: float = Tunable(
            1.0, low=0.0, high=1.0, ge=0, le=1, description="weight of the stored updates: 1 FedVARP, 0 FedAvg"
        )
        clusters: int | None = Field(
            None,
            ge=1,
            description="server states, client i using the (i mod clusters)-th; null: per client",
        )
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="server step size eta_g")

    settings: Settings

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings.clusters is not None:
            self.client = ()
            self.server = tuple(f"z_{c}" for c in range(settings.clusters))

    def bind(self, problem: Problem) -> None:
        clusters = self.settings.clusters
        if clusters is not None and clusters > problem.clients:
            raise SettingsError(
                f"algorithm.clusters = {clusters} should be at most {problem.clients}, the number of clients"
            )
        super().bind(problem)

    def finish(self, r: Round) -> Tensor:
        s = self.settings
        fresh = self.update(r)  # (1)
        stored, mean = (r.client.h, r.server.h_mean) if s.clusters is None else self.clustered(r, s.clusters)
        v = r.mean(fresh - s.beta * stored) + s.beta * mean  # (2)
        if s.clusters is None:
            self.renew(r)
        else:
            self.renew_clusters(r, fresh, s.clusters)
        return r.w - s.server_lr * self.unit(r) * v  # (3)

    def clustered(self, r: Round, clusters: int) -> tuple[Tensor, Tensor]:
        """z_c(i) [C, d] of the participants, and sum_j q_j z_c(j) [d]."""
        z = torch.stack([getattr(r.server, f"z_{c}") for c in range(clusters)])
        of_population = torch.from_numpy(r.services.population().ids % clusters)
        mass = torch.zeros(clusters, dtype=torch.float64).index_add_(0, of_population, shares(r, self.settings))
        return z[torch.tensor(r.ids) % clusters], mass.to(z) @ z

    def renew_clusters(self, r: Round, fresh: Tensor, clusters: int) -> None:
        """z_c = the mean of the fresh updates of the cluster's participants; without one it stays."""
        cluster = np.array(r.ids) % clusters
        for c in np.unique(cluster).tolist():
            inside = torch.from_numpy(cluster == c).to(r.weights).unsqueeze(1) * r.weights
            if float(inside.sum()) > 0:
                setattr(r.server, f"z_{c}", r.total(inside / inside.sum() * fresh))
