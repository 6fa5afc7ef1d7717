"""FedDrift."""

from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtide.core.array_types import Bools, Floats, Ints
from fedtide.methods.algorithms._clusters import Serve, averaged, chosen, served
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


class Decision(NamedTuple):
    """What a round has decided.

    Attributes:
        used: slots in use before it. best: int64 [C], the slot with the least loss for each participant. drifted: bool [C].
        reference: [C], the loss a participant is compared with, infinite for none.
        distances: (a, b, far) before merging. merged: (kept, freed). made: (client, slot).
    """

    used: list[int]
    best: Ints
    drifted: Bools
    reference: Floats
    distances: list[tuple[int, int, float]]
    merged: list[tuple[int, int]]
    made: list[tuple[int, int]]


class FedDrift(Algorithm):
    """A model for every concept: made where a client's loss jumps, merged where they are alike (Jothimurugesan et al. 2023).

    There are slots for ``max_models`` models; the first one holds the run's initial model. In one round:

    (1) ``m_i = min_j l_ij``, with l_ij the mean loss of model j on the current samples of participant i.
    (2) q_i = its reference, by default the same minimum on the samples of its latest participation (infinite if none).
    (3) the client has drifted if ``m_i > q_i + delta``.
    (4) its model is the one with that minimum, ``argmin_j l_ij``; step 8 gives drifted clients a new one.

    Merge (``mode: full``), among the models of clients that have not drifted:

    (5) ``far_ab = max(L_ab - L_aa, L_ba - L_bb, 0)``, with L_ab the mean loss of model a on the samples of
        the participants of b that have not drifted.
    (6) while the smallest far_ab < delta: model a becomes the mean of a and b weighted by their clients' samples, the clients
        of b move to a, and the slot of b is freed.
    (7) the distance to a third model is the larger of the two: ``far_ac = max(far_ac, far_bc)`` (complete linkage).

    Create, for each drifted client in turn (``mode: eager``: once for all of them), then train:

    (8) a new model, a copy of its best one, in the lowest free slot, or else in that of the least recently trained model
        that no present client uses. If there is no such slot, the client keeps its best model.
    (9) participants train their models, and each model becomes the weighted mean of the local models trained from it.

    The authors' code clusters once per time step of many rounds by accuracy, and trains on all samples of all steps; here,
    as in FedCCFA's code, steps 1 to 8 come every round (or ``every`` one) and go by losses, and only the samples of the
    reference are kept. FedCCFA's reference is the round before (``reference: round``), so that only clients drawn in the very
    round of a drift detect it. The global model is the mean of the round's local models.

    References:
        Jothimurugesan et al. 2023. Federated Learning under Distributed Concept Drift.
    """

    class Settings(AlgorithmSettings):
        name: str = "feddrift"
        delta: float = Tunable(0.5, low=0.05, high=1.0, log=True, ge=0, description="loss increase that means drift")
        mode: Literal["full", "eager"] = Field(
            "full", description="eager: no mergers, one new model for all that have drifted"
        )
        reference: Literal["participation", "round", "stored"] = Field(
            "participation",
            description="loss to compare with: of today's models on the samples of the client's latest participation; the same "
            "on those that it held in the round before, drawn or not; or the least loss of its latest comparison, as it was",
        )
        new: Literal["copy", "initial"] = Field(
            "copy", description="new model: copy of the best one, or the session's first"
        )
        every: int = Field(1, ge=1, description="rounds of a session between comparisons")
        max_models: int = Field(8, ge=1, description="most models")
        serve: Serve = Field(
            "last", description="model of a client in evaluation: the best one, or the last one it trained"
        )

    settings: Settings

    down = ("models",)
    up = ("W", "losses")

    def extra(self) -> dict[str, Tensor]:
        """Models, made in the first round of a session, and what is known of slots and clients.

        By slot whether it is in use, and the round of its latest training; by client its slot, the shard and round of its
        latest participation (-1: none), and the loss of its latest comparison; ``asked``: models that the participants of
        the latest round were sent.
        """
        clients, slots = self.problem.clients, self.settings.max_models
        return {
            "models": torch.zeros(0),
            "first": torch.zeros(0),
            "used": torch.zeros(slots, dtype=torch.bool),
            "asked": torch.ones((), dtype=torch.int64),
            "trained": torch.full((slots,), -1),
            "identity": torch.full((clients,), -1),
            "shard": torch.full((clients,), -1),
            "round": torch.full((clients,), -1),
            "stored": torch.full((clients,), torch.inf, dtype=torch.float64),
        }

    def start(self, r: Round) -> Tensor:
        if not r.extra["models"].numel():
            r.extra["models"] = torch.cat([r.w[None], r.w.new_zeros(self.settings.max_models - 1, len(r.w))])
            r.extra["first"] = r.w.clone()
            r.extra["used"] = torch.arange(self.settings.max_models) == 0
        r.extra["models"] = r.extra["models"].clone()
        for name in ("used", "trained", "identity", "shard", "round", "stored"):
            r.extra[name] = r.extra[name].cpu().clone()
        decision = self._decide(r)
        r.carry(drifted=torch.from_numpy(decision.drifted).unsqueeze(1).to(r.W))
        ids, shards = torch.tensor(r.ids), torch.tensor(r.shard_ids)
        if self.settings.reference == "round":  # of all that hold samples, drawn or not
            population = r.services.population()
            ids, shards = torch.from_numpy(population.ids), torch.from_numpy(population.shards)
        r.extra["shard"][ids], r.extra["round"][ids] = shards, r.t
        return chosen(r.extra["models"], r.extra["identity"][r.ids].numpy())  # (9)

    def finish(self, r: Round) -> Tensor:
        identity = r.extra["identity"][r.ids].numpy()
        r.extra["models"] = averaged(r, r.extra["models"], identity)  # (9)
        r.extra["trained"][np.unique(identity)] = r.t
        return r.average()

    def served(self, s: ServedTo) -> Served:
        used = s.extra["used"].cpu().nonzero()[:, 0].numpy()
        identity = s.extra["identity"].cpu()[s.ids].numpy()
        numbers = np.where(identity >= 0, np.searchsorted(used, identity), -1)
        return served(s, chosen(s.extra["models"], used), numbers, self.settings.serve)

    def forget(self, extra: dict[str, Tensor], departed: Tensor) -> None:
        for name, none in (("identity", -1), ("shard", -1), ("round", -1), ("stored", torch.inf)):
            extra[name] = extra[name].cpu().index_fill(0, departed, none)

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        asked = int(extra["asked"]) if extra else 1
        return {"models": asked * layout.size, "losses": asked + 3}.get(name, super().width(name, layout, extra))

    def record(self, r: Round) -> dict[str, Tensor | float]:
        """By participant its model and whether it has drifted; the number of models."""
        cluster = r.extra["identity"][r.ids].unsqueeze(1).to(r.W)
        return {"cluster": cluster, "drifted": r.client.drifted, "clusters": float(r.extra["used"].sum())}

    def _decide(self, r: Round) -> Decision:
        """Steps 1 to 8; between comparisons only clients without a model do steps 1 and 4."""
        x, ids = r.extra, np.array(r.ids)
        used = x["used"].nonzero()[:, 0].numpy()
        x["asked"] = torch.tensor(len(used))
        losses = np.full((len(ids), self.settings.max_models), np.inf)
        losses[:, used] = r.services.losses(chosen(x["models"], used)).cpu().numpy()  # l_ij
        best, least = losses.argmin(1), losses.min(1)  # (1): argmin_j l_ij and m_i
        decision = Decision(used.tolist(), best, np.zeros(len(ids), dtype=bool), np.full(len(ids), np.inf), [], [], [])
        if r.session.round % self.settings.every:
            fresh = x["identity"][ids].numpy() < 0
            self._assign(r, ids[fresh], best[fresh])  # (4)
            x["stored"][ids[fresh]] = torch.from_numpy(least[fresh])
            return decision
        reference = self._reference(r, used)  # (2)
        drifted = least > reference + self.settings.delta  # (3)
        x["stored"][ids] = torch.from_numpy(least)
        self._assign(r, ids, best)  # (4)
        decision = decision._replace(drifted=drifted, reference=reference)
        if self.settings.mode == "full":
            self._merge(r, losses, best, ~drifted, decision)  # (5) to (7)
        self._create(r, ids[drifted], best[drifted], decision)  # (8)
        return decision

    def _assign(self, r: Round, ids: Ints, slots: Ints) -> None:
        r.extra["identity"][ids] = torch.from_numpy(slots)

    def _reference(self, r: Round, used: Ints) -> Floats:
        """q_i of step 2 [C], infinite for clients without a reference."""
        ids, kind = np.array(r.ids), self.settings.reference
        if kind == "stored":
            return np.array(r.extra["stored"][ids].numpy())  # (2)
        shards, rounds = r.extra["shard"][ids].numpy(), r.extra["round"][ids].numpy()
        known = (shards >= 0) & ((rounds == r.t - 1) | (kind == "participation"))
        then = [
            r.services.positions(int(shard)) if has else np.zeros(0, np.int64)
            for shard, has in zip(shards, known, strict=True)
        ]
        least = r.services.losses(chosen(r.extra["models"], used), then).min(1).values  # (2)
        return np.array(least.cpu().numpy(), dtype=np.float64)

    def _merge(self, r: Round, losses: Floats, best: Ints, stays: Bools, decision: Decision) -> None:
        """Steps 5 to 7; changes the models, the clients' models and ``best`` in place."""
        x, n = r.extra, r.n[:, 0].cpu().numpy().astype(np.float64)
        slots = np.unique(best[stays]).tolist()
        size = {b: float(n[stays & (best == b)].sum()) for b in slots}
        L = {
            (a, b): float(np.average(losses[stays & (best == b), a], weights=n[stays & (best == b)]))
            for a in slots
            for b in slots
        }
        far = {(a, b): max(L[a, b] - L[a, a], L[b, a] - L[b, b], 0.0) for a, b in combinations(slots, 2)}  # (5)
        decision.distances.extend((a, b, value) for (a, b), value in far.items())
        while far and min(far.values()) < self.settings.delta:  # (6)
            a, b = min(far, key=lambda pair: (far[pair], pair))
            share = size[a] / (size[a] + size[b])
            x["models"][a] = share * x["models"][a] + (1 - share) * x["models"][b]  # (6)
            size[a] += size.pop(b)
            x["identity"][x["identity"] == b] = a  # (6)
            best[best == b] = a
            x["used"][b] = False  # (6)
            for c in size.keys() - {a}:
                ends = (min(a, c), max(a, c))
                far[ends] = max(far[ends], far[min(b, c), max(b, c)])  # (7)
            far = {pair: value for pair, value in far.items() if b not in pair}
            decision.merged.append((a, b))

    def _create(self, r: Round, ids: Ints, best: Ints, decision: Decision) -> None:
        """Step 8, for the drifted clients in ascending order."""
        x, eager = r.extra, self.settings.mode == "eager"
        slot = None
        for client, fits in zip(ids.tolist(), best.tolist(), strict=True):
            if slot is None or not eager:
                slot = self._free_slot(r)  # (8)
                if slot is not None:
                    x["models"][slot] = x["models"][fits] if self.settings.new == "copy" else x["first"]  # (8)
                    x["used"][slot], x["trained"][slot] = True, r.t
                    x["identity"][x["identity"] == slot] = -1
                    decision.made.append((client, slot))
            if slot is not None:
                x["identity"][client] = slot  # (8)

    def _free_slot(self, r: Round) -> int | None:
        """The slot of a new model in step 8; None if present clients use all of them."""
        x = r.extra
        if not x["used"].all():
            return int((~x["used"]).nonzero()[0])
        taken = x["identity"][r.services.population().ids]
        idle = [slot for slot in range(len(x["used"])) if not (taken == slot).any()]
        return min(idle, key=lambda slot: (int(x["trained"][slot]), slot), default=None)
