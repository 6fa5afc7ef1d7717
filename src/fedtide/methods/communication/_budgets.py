"""What clients and server can afford (DynamicFL, section 3), in exchanges per round.

An exchange costs 2|W| numbers for every client, so kappa_m / (2|W|) = nu_m and budgets are compared in exchanges.
"""

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedtide.core.array_types import Floats
from fedtide.core.errors import SettingsError
from fedtide.core.plugins import SettingsModel
from fedtide.core.randomness import Randomness
from fedtide.methods.algorithms.base import Ints, Round
from fedtide.settings.choices import Choice

_ROUNDING = 1e-9  # in binary, 0.29 of 100 is a little less than 29; shares are decimal numbers


class FixBudget(SettingsModel):
    """Fix-beta: the same clients can afford the short interval in all rounds, the server can serve all of them.

    ``ceil(beta M)`` clients, drawn once per run, have ``tau_m = kappa_high``, the others ``kappa_low``.
    """

    name: Literal["fix"] = "fix"
    beta: float = Field(0.3, ge=0, le=1, description="share of all clients that can afford the short interval")

    def of_clients(self, clients: int, high: int, low: int, randomness: Randomness) -> Floats:
        """tau_m of all clients [M], where the intervals cost ``high`` and ``low`` exchanges."""
        rich = randomness.generator("exchange.rich").permutation(clients)[: math.ceil(self.beta * clients - _ROUNDING)]
        tau = np.full(clients, float(low))
        tau[rich] = high
        return tau

    def of_server(self, active: int, high: int) -> float:
        """Exchanges it can spend on the short interval with ``active`` clients."""
        return float(active * high)


class DynamicBudget(SettingsModel):
    """Dynamic-beta: every client can afford the short interval, the server only ``floor(beta n)`` of n at a time."""

    name: Literal["dynamic"] = "dynamic"
    beta: float = Field(
        0.3, ge=0, le=1, description="share of the active clients that the server can serve at the short interval"
    )

    def of_clients(self, clients: int, high: int, low: int, randomness: Randomness) -> Floats:
        return np.full(clients, float(high))

    def of_server(self, active: int, high: int) -> float:
        """floor(beta n) kappa_high."""
        return float(math.floor(self.beta * active + _ROUNDING) * high)


class GivenBudget(SettingsModel):
    """Budgets as listed, or the weighted mean of what a client's user wants and what its network carries."""

    name: Literal["given"] = "given"
    clients: tuple[float, ...] = Field(min_length=1, description="exchanges per round of each client, by id")
    network: tuple[float, ...] | None = Field(None, description="exchanges per round that each network supports")
    weight: float = Field(0.5, ge=0, le=1, description="of the user's wish against the network's capacity")
    server: float | None = Field(None, ge=0, description="exchanges of the whole group per round; null: no limit")

    def of_clients(self, clients: int, high: int, low: int, randomness: Randomness) -> Floats:
        """tau_m = weight * user + (1 - weight) * network [M]; a SettingsError unless there is one number per client."""
        user = np.array(self.clients)
        network = user if self.network is None else np.array(self.network)
        if not len(user) == len(network) == clients:
            raise SettingsError(
                f"communication.budget: {len(user)} clients and {len(network)} networks listed; the run has {clients} clients"
            )
        tau: Floats = self.weight * user + (1 - self.weight) * network
        return tau

    def of_server(self, active: int, high: int) -> float:
        return math.inf if self.server is None else self.server


_AnyBudget = FixBudget | DynamicBudget | GivenBudget
Budget = Annotated[_AnyBudget, Choice(_AnyBudget, "fix")]


def affordable(budget: Budget, r: Round, high: int, low: int) -> tuple[Ints, int]:
    """The rows m with kappa_high <= tau_m, and how many of them the server can serve (eq. 5); an interval costs high or low."""
    tau = budget.of_clients(r.problem.clients, high, low, r.problem.randomness)[r.ids]
    eligible = np.flatnonzero(tau >= high)
    return eligible, int(min(len(eligible) * high, budget.of_server(len(r.ids), high)) // high)
