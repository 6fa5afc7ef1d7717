"""CA-Fed."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtide.methods.algorithms._absent import AbsentSettings, shares
from fedtide.methods.algorithms.base import Algorithm, Extra, Layout, Round, Tunable


class CaFed(Algorithm):
    """Correlation-aware aggregation: rare or strongly correlated clients may be left out (Rodio et al. 2023).

    ``alpha_i`` is the weight of client i in the population, ``pi_i`` its availability, ``lambda_i`` the second eigenvalue of
    its on/off Markov chain and ``F_i`` its loss. One round, after local training to ``y_i`` as in FedAvg:

    (1) The server updates ``F_i`` of the participants: ``F_i = s F_i + (1 - s) loss_i(w)``, with s ``smoothing``.
    (2) It counts who was active, and updates the estimates ``pi_i`` and
        ``lambda_i = P(on | on) + P(off | off) - 1``.
    (3) It starts from the unbiased weights ``A_i = alpha_i / pi_i``.
    (4) It tries to exclude clients one by one, by descending ``|lambda_i|``, then all again by ascending ``pi_i``.
    (5) With ``A_i = 0`` for the client tried, the expected relative weights are ``P_i = pi_i A_i / sum_j pi_j A_j``.
    (6) The objective is the suboptimality of the clients kept plus the bias toward them:
        ``J(A) = sum_i P_i (F_i - F*) + kappa max_i (F_i - F*) (1/2 sum_i |alpha_i - P_i|)^2``.
    (7) ``A_i`` stays 0 if J falls by at least ``tolerance``.
    (8) Server step: ``w+ = w + eta_g sum_S A_i (y_i - w)``; ``A`` is not renormalized.

    The estimators are ours. ``pi_i`` and the probabilities of staying on or off come from counts of this run, this round
    included, plus ``prior_rounds`` rounds of a client that is independently active with ``prior_availability``; active means
    sampled as a participant. The released code has a prior of 100 rounds with the *true* values and divides joint counts by all
    rounds. ``loss_i`` is the mean loss at w over the training samples of a participant (there: validation samples); before a
    client first participates, its ``F_i`` is the mean loss of the first round's participants. ``F*`` is ``optimum`` (there:
    each client's own, found by training beforehand).

    Seven numbers per client are kept, also for a client that leaves, until a session resets them. Sums are over the clients
    present; a transition is counted between two rounds in which the client was present.
    """

    class Settings(AbsentSettings):
        name: str = "ca_fed"
        bias: float = Tunable(1.0, low=0.1, high=10.0, log=True, ge=0, description="kappa, weight of the bias in J")
        smoothing: float = Tunable(
            0.0, low=0.0, high=0.95, ge=0, lt=1, description="weight of the old estimate of a client's loss"
        )
        tolerance: float = Field(0.0, ge=0, description="smallest decrease of J that excludes a client")
        prior_rounds: float = Tunable(
            10.0, low=1.0, high=100.0, log=True, gt=0, description="weight of the prior availability, in rounds"
        )
        prior_availability: float = Field(0.5, gt=0, lt=1, description="prior of a client's availability")
        optimum: float = Field(0.0, description="F*, the smallest loss a client can reach")
        server_lr: float = Tunable(1.0, low=0.1, high=1.5, gt=0, description="server step size eta_g")

    settings: Settings
    needs_classes = True

    up: Sequence[str] = ("W", "loss")
    admits = ("sums",)

    def extra(self) -> dict[str, Tensor]:
        """Loss, rounds present and active, times stayed on and off, whether on in the last round, and A [N]."""
        names = ("loss", "rounds", "active", "stayed_on", "stayed_off", "on", "A")
        return {name: torch.zeros(self.problem.clients, dtype=torch.float64) for name in names}

    def finish(self, r: Round) -> Tensor:
        """Update the estimates, (1) and (2), choose the weights, (3) to (7), then take the server step (8)."""
        ids = torch.from_numpy(r.services.population().ids)
        self.observe(r, ids)  # (1), (2)
        r.extra["A"][ids] = self.weigh(r, ids).to(r.extra["A"])  # (3) to (7)
        A = r.extra["A"][torch.tensor(r.ids)].to(r.W).unsqueeze(1)
        return r.w + self.settings.server_lr * r.total(A * (r.W - r.w))  # (8)

    def observe(self, r: Round, present: Tensor) -> None:
        """(1), and the counts of (2): who is on and who is off."""
        known, drawn = r.extra, torch.tensor(r.ids)
        found = [cross_entropy(each.logits, each.labels) for each in r.services.forward(r.w)]
        losses, s = torch.stack(found).to(known["loss"]), self.settings.smoothing
        if not known["rounds"].any():
            known["loss"].fill_(losses.mean())  # (1), first round
            s = 0.0
        known["loss"][drawn] = s * known["loss"][drawn] + (1 - s) * losses  # (1)
        on = torch.zeros_like(known["on"])
        on[drawn] = 1.0
        on = on[present]
        before, again = known["on"][present], known["rounds"][present] > 0
        known["stayed_on"][present] += again * before * on  # (2)
        known["stayed_off"][present] += again * (1 - before) * (1 - on)  # (2)
        known["rounds"][present] += 1  # (2)
        known["active"][present] += on  # (2)
        known["on"][present] = on

    def estimates(self, r: Round, ids: Tensor) -> tuple[Tensor, Tensor]:
        """(2): pi and lambda of some clients, float64 on the CPU."""
        a, m = self.settings.prior_availability, self.settings.prior_rounds
        rounds, active, stayed_on, stayed_off, on = (
            r.extra[name][ids].cpu() for name in ("rounds", "active", "stayed_on", "stayed_off", "on")
        )
        seen = (rounds > 0).to(on)  # a transition from every round but the last
        from_on, from_off = active - on, rounds - active - seen * (1 - on)
        stay_on = (stayed_on + m * a * a) / (from_on + m * a)  # (2): P(on | on)
        stay_off = (stayed_off + m * (1 - a) ** 2) / (from_off + m * (1 - a))  # (2): P(off | off)
        return (active + m * a) / (rounds + m), stay_on + stay_off - 1  # (2)

    def weigh(self, r: Round, ids: Tensor) -> Tensor:
        """A [K] after (3) to (7), float64."""
        pi, correlation = self.estimates(r, ids)  # (2)
        alpha, excess = shares(r, self.settings), r.extra["loss"][ids].cpu() - self.settings.optimum
        return self.exclude(alpha / pi, alpha, pi, correlation, excess)  # (3)

    def exclude(self, A: Tensor, alpha: Tensor, pi: Tensor, correlation: Tensor, excess: Tensor) -> Tensor:
        """(4) to (7): A [K] with zeros where they lower J; clients with equal keys, up to rounding, are tried by id."""
        best = self.objective(A, alpha, pi, excess)
        for key in (-correlation.abs(), pi):  # (4)
            for k in torch.argsort(key.round(decimals=12), stable=True).tolist():  # (4)
                trial = A.clone()
                trial[k] = 0  # (5)
                if not trial.any():
                    break  # at least one client is kept
                value = self.objective(trial, alpha, pi, excess)  # (5), (6)
                if A[k] > 0 and best - value >= self.settings.tolerance:
                    A, best = trial, value  # (7)
        return A

    def objective(self, A: Tensor, alpha: Tensor, pi: Tensor, excess: Tensor) -> float:
        """J, (5) and (6)."""
        P = pi * A / (pi * A).sum()  # (5)
        bias = (alpha - P).abs().sum() / 2
        return float((P * excess).sum() + self.settings.bias * excess.max() * bias**2)  # (6)

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        return 1 if name == "loss" else super().width(name, layout, extra)

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """Estimated availability and eigenvalue of every participant, and the weight A of its step."""
        drawn = torch.tensor(r.ids)
        pi, correlation = self.estimates(r, drawn)
        columns = {"availability": pi, "correlation": correlation, "step_weight": r.extra["A"][drawn].cpu()}
        return {name: value.unsqueeze(1) for name, value in columns.items()}
