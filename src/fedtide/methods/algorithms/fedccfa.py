"""FedCCFA."""

from collections.abc import Generator, Iterator
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn import functional

from fedtide.core.array_types import Floats
from fedtide.methods.algorithms._clusters import main_concept
from fedtide.methods.algorithms._heads import Head, descended
from fedtide.methods.algorithms.base import (
    Algorithm,
    AlgorithmSettings,
    Extra,
    ForwardPass,
    Layout,
    Phase,
    Problem,
    Round,
    Served,
    ServedTo,
    Term,
    TermBatch,
    Tunable,
)

Groups = list[list[list[int]]]
"""For each label the groups of participants, by their place in the round."""


class FedCcfa(Algorithm):
    """Heads of the clients' own, shared label by label among clients with the same concept (Chen et al. 2024).

    A model is a body w and a linear head phi_i, whose row k belongs to label k. A client keeps its head and *anchors*: the
    mean feature P_i,k of each class k. In one round each participant i performs steps 1 to 5, the server 6 to 9:

    (1) ``lambda_i = H_i / gamma``, with H_i the entropy of the client's label distribution (``lambda_`` if gamma = 0).
    (2) balanced head: b_i = phi_0 after ``balanced_epochs`` epochs of SGD on m samples of each class that the client has,
        ``m = min(least class count, per_class)``, body fixed.
    (3) own head: ``head_epochs`` epochs of SGD from phi_i (from b_i if the client has no head yet), body fixed.
    (4) body: local training with the head fixed; from round ``align_from`` on, the loss is ``CE + lambda_i A``, f the features:
        ``contrast``: ``A = CE(cos(f, P_i,k) / temperature over the known k, y)``;
        ``l2``: A = the mean over coordinates of ``(f - P_i,y)^2``.
    (5) new anchors: P_i,k = mean feature of class k under the trained body.
    (6) ``w+ = sum_i p_i w_i``, the weighted mean of the bodies.
    (7) for each label k: with C the cosine similarities between rows k of the b_i,
        ``D_ij = mean over z not in {i, j} of |C_iz - C_jz|``; the groups are the connected components of ``D <= eps``.
        With fewer than three participants, every client is a group of its own.
    (8) in each group: row k of its heads = the mean of these rows; P_k = the mean of the known anchors.
    (9) it stores heads and anchors; the head of the global model is the mean of the participants' heads.

    phi_0 is the head of the session's first model, untrained, in every round: the authors' server never updates its head.
    Their anchors of a group are sums over all participants, which is not reproduced. A client never drawn is served the global
    model, a drawn one today's body with its head. A class that a client lacks has no anchor, and no share in the entropy.

    References:
        Chen et al. 2024. Classifier Clustering and Feature Alignment for Federated Learning under Distributed Concept Drift.
    """

    class Settings(AlgorithmSettings):
        name: str = "fedccfa"
        head_epochs: int = Field(1, ge=0, description="passes of a client's own head over its samples")
        head_lr: float = Tunable(
            0.1, low=0.01, high=1.0, log=True, gt=0, description="learning rate of heads, with the schedule"
        )
        balanced_epochs: int = Field(5, ge=0, description="passes of the balanced head; 0: it is the client's own one")
        balanced_lr: float = Field(0.1, gt=0, description="learning rate of balanced heads, with the schedule")
        per_class: int = Field(5, ge=1, description="sample limit per class for the balanced head")
        eps: float = Tunable(
            0.1, low=0.02, high=0.5, log=True, description="distance at which rows of a label are alike"
        )
        gamma: float = Tunable(
            20.0, low=5.0, high=100.0, log=True, ge=0, description="entropy at which lambda_i is one"
        )
        lambda_: float = Field(0.0, ge=0, description="strength of the alignment if gamma is 0")
        temperature: float = Field(0.1, gt=0, description="temperature of contrast")
        align: Literal["contrast", "l2", "none"] = Field("contrast", description="what pulls features to the anchors")
        align_from: int = Field(20, ge=0, description="first round with alignment, from 0")
        anchors: Literal["clustered", "global"] = Field(
            "clustered", description="global: means over all who have the class"
        )
        merge: Literal["uniform", "labels"] = Field(
            "uniform", description="weights in a group; labels: samples of the label"
        )
        clustering: Literal["distance", "concept", "none"] = Field("distance", description="concept: the true groups")

    settings: Settings

    needs_classes = True
    needs = ("linear_head", "body")
    models = ("global", "personal")

    down = ("w", "anchors")
    up = ("W", "balanced", "anchors")

    def bind(self, problem: Problem) -> None:
        super().bind(problem)
        self.head = Head.of(problem.layout)

    def extra(self) -> dict[str, Tensor]:
        """phi_0, all clients' heads and anchors, made in the first round, and which are known; the last anchors are global."""
        clients, classes = self.problem.clients, self.problem.classes
        empty = {name: torch.zeros(0) for name in ("head0", "head", "anchors")}
        has = torch.zeros(clients, dtype=torch.bool)
        known, groups = torch.zeros(clients + 1, classes, dtype=torch.bool), torch.zeros((), dtype=torch.float64)
        return {**empty, "has": has, "known": known, "groups": groups}

    # Clients.

    def phases(self, r: Round) -> Generator[Phase, Tensor, None]:
        if not r.extra["head0"].numel():
            self._begin(r)
        r.extra["has"], r.extra["known"] = r.extra["has"].cpu(), r.extra["known"].cpu()
        prepared = self._prepared(r)
        r.carry(**prepared)
        yield Phase(self.head.write(r.base, prepared["heads"]), trains=self.problem.layout.mask("body"))  # (4)

    def terms(self, r: Round) -> list[Term]:
        """lambda_i A of step 4, with weight zero for clients without anchors."""
        s, x = self.settings, r.extra
        if s.align == "none" or r.t < s.align_from:
            return []
        rows = r.ids if s.anchors == "clustered" else [-1] * len(r.ids)
        known = x["known"][rows].to(r.w.device)
        weight = r.client.strength * known.any(1, keepdim=True)  # lambda_i
        constants = {"anchors": x["anchors"][rows], "known": known}
        return [Term(self._contrast if s.align == "contrast" else _distance, weight=weight, constants=constants)]  # (4)

    def _contrast(self, batch: TermBatch) -> Tensor:
        """A of step 4 for each sample [B]; zero where the anchor of the sample's class is unknown."""
        anchors, known = batch.constants["anchors"], batch.constants["known"]
        cosines = functional.cosine_similarity(batch.outputs.features.unsqueeze(1), anchors, dim=-1)
        scores = (cosines / self.settings.temperature).masked_fill(~known, -torch.inf)
        losses = (
            torch.logsumexp(scores, 1) - (cosines / self.settings.temperature).gather(1, batch.labels[:, None])[:, 0]
        )
        return torch.where(known[batch.labels], losses, 0)  # A, (4)

    def _begin(self, r: Round) -> None:
        clients, (classes, width) = self.problem.clients, self.head.read(r.w).shape
        r.extra["head0"] = self.head.read(r.w).clone()  # phi_0
        r.extra["head"] = r.w.new_zeros(clients, classes, width)
        r.extra["anchors"] = r.w.new_zeros(clients + 1, classes, self.head.width)

    def _prepared(self, r: Round) -> dict[str, Tensor]:
        """Steps 1 to 3 on features of the received body: ``balanced``, ``heads`` [C, L, p], ``strength`` lambda_i [C, 1]."""
        s, x, rate = self.settings, r.extra, r.lr / r.local.lr
        batch, decay = r.local.batch_size, r.local.gradient_decay
        balanced: list[Tensor] = []
        heads: list[Tensor] = []
        for client, seen in zip(r.ids, r.services.forward(r.w), strict=True):
            inputs, own = self.head.inputs(seen.features), x["head"][client]
            b = x["head0"]  # phi_0
            if s.balanced_epochs and len(seen.labels):
                few = self._balanced(r, client, seen)
                passes = self._passes(r, client, few, s.balanced_epochs, "balanced")
                b = descended(b, inputs, seen.labels, passes, batch, s.balanced_lr * rate, decay)  # (2)
            everything = torch.arange(len(seen.labels), device=inputs.device)
            passes = self._passes(r, client, everything, s.head_epochs, "head")
            start = own if x["has"][client] else b  # (3)
            h = descended(start, inputs, seen.labels, passes, batch, s.head_lr * rate, decay)  # (3)
            balanced.append(b if s.balanced_epochs else h)
            heads.append(h)
        share = r.label_counts / r.label_counts.sum(1, keepdim=True).clamp(min=1)
        entropy = -torch.special.xlogy(share, share).sum(1, keepdim=True)  # H_i, (1)
        strength = entropy / s.gamma if s.gamma else torch.full_like(entropy, s.lambda_)  # lambda_i, (1)
        return {"balanced": torch.stack(balanced), "heads": torch.stack(heads), "strength": strength}

    def _balanced(self, r: Round, client: int, seen: ForwardPass) -> Tensor:
        """Indices of the m samples of each class that a client has, class by class."""
        order = torch.arange(len(seen.labels))
        if r.local.order != "stored":
            order = torch.from_numpy(self.problem.randomness.generator("fedccfa", r.t, client).permutation(len(order)))
        labels, counts = seen.labels.cpu()[order], seen.labels.bincount().cpu()
        m = min(int(counts[counts > 0].min()), self.settings.per_class)  # (2)
        chosen = [order[labels == label][:m] for label in range(len(counts))]
        return torch.cat(chosen).to(seen.labels.device)

    def _passes(self, r: Round, client: int, samples: Tensor, epochs: int, phase: str) -> Iterator[Tensor]:
        """The samples in the order of each pass."""
        rng = self.problem.randomness.generator(f"fedccfa.{phase}", r.t, client)
        for _ in range(epochs):
            stored = r.local.order == "stored"
            yield samples if stored else samples[torch.from_numpy(rng.permutation(len(samples))).to(samples.device)]

    # Server.

    def finish(self, r: Round) -> Tensor:
        heads, (anchors, known) = r.client.heads.clone(), self._anchors(r)  # (5)
        of_labels = self._groups(r)  # (7)
        r.extra["groups"] = torch.tensor(np.mean([len(groups) for groups in of_labels]))
        weights = r.label_counts if self.settings.merge == "labels" else torch.ones_like(r.label_counts)
        everybody, shared = list(range(len(r.ids))), (anchors.clone(), known.clone())
        for label, groups in enumerate(of_labels):
            _share_anchor(*shared, everybody, label, weights)  # anchors: global
            for group in groups:
                heads[group, label] = _mean(heads[group, label], weights[group, label])  # (8)
                _share_anchor(anchors, known, group, label, weights)  # (8)
        self._store(r, heads, anchors, known)  # (9)
        r.extra["anchors"][-1], r.extra["known"][-1] = shared[0][0], shared[1][0].cpu()
        return self.head.write(r.average(), heads.mean(0))  # (6), (9)

    def _anchors(self, r: Round) -> tuple[Tensor, Tensor]:
        """Mean feature of each class under each trained body [C, L, q], and which are known [C, L]."""
        anchors = []
        for seen in r.services.forward(r.W):
            own = functional.one_hot(seen.labels, r.label_counts.shape[1]).to(seen.features)
            anchors.append(own.T @ seen.features / own.sum(0).clamp(min=1)[:, None])  # P_i,k, (5)
        return torch.stack(anchors), r.label_counts > 0

    def _groups(self, r: Round) -> Groups:
        """For each label the groups of participants, alone or together."""
        count, classes = len(r.ids), r.label_counts.shape[1]
        if self.settings.clustering == "concept":
            numbers = main_concept(r.services.concepts())
            return [_alike([self._original(number, label) for number in numbers]) for label in range(classes)]
        if self.settings.clustering == "none" or count < 3:
            return [[[row] for row in range(count)] for _ in range(classes)]
        return [_alike(connected_components(self.settings.eps >= D)[1].tolist()) for D in self._distances(r)]  # (7)

    def _distances(self, r: Round) -> list[Floats]:
        """D [C, C] of each label."""
        return [_row_distances(r.client.balanced[:, label]) for label in range(self.problem.classes)]

    def _original(self, concept: int, label: int) -> object:
        """What a label means under a concept: the classes seen as it, or the concept itself where it has labels of its own."""
        found = self.problem.concepts[concept]
        if found.table is not None:
            return concept
        labels = range(self.problem.classes) if found.labels is None else found.labels
        return tuple(y for y, seen in enumerate(labels) if seen == label)

    def _store(self, r: Round, heads: Tensor, anchors: Tensor, known: Tensor) -> None:
        x, ids = r.extra, torch.tensor(r.ids)
        for name, rows in (("head", heads), ("anchors", anchors), ("known", known.to(x["known"].device))):
            x[name] = x[name].index_copy(0, ids.to(x[name].device), rows)
        x["has"] = x["has"].index_fill(0, ids, True)

    def served(self, s: ServedTo) -> Served:
        has = s.extra["has"].cpu()[s.ids].view(-1, 1, 1).to(s.w.device)
        heads = torch.where(has, s.extra["head"][s.ids] if len(s.extra["head"]) else 0.0, self.head.read(s.w))
        return Served(self.head.write(s.w.expand(len(s.ids), -1), heads), np.arange(len(s.ids)))

    def forget(self, extra: dict[str, Tensor], departed: Tensor) -> None:
        for name in ("has", "known"):
            extra[name] = extra[name].cpu().index_fill(0, departed, False)

    def width(self, name: str, layout: Layout, extra: Extra) -> int:
        sizes = {"balanced": self.head.size, "anchors": self.head.classes * self.head.width}
        return sizes.get(name, super().width(name, layout, extra))

    def record(self, r: Round) -> dict[str, Tensor | float]:
        return {"groups": float(r.extra["groups"])}


def _distance(batch: TermBatch) -> Tensor:
    """A of step 4 for ``align: l2`` [B]; zero where the anchor of the sample's class is unknown."""
    anchors, known = batch.constants["anchors"][batch.labels], batch.constants["known"][batch.labels]
    return torch.where(known, (batch.outputs.features - anchors).square().mean(1), 0)  # A, (4)


def _row_distances(rows: Tensor) -> Floats:
    """D [C, C] of step 7, for the rows [C, p] of one label."""
    unit = functional.normalize(rows, dim=1)
    C = (unit @ unit.T).cpu().numpy()  # cosine similarities
    gaps = np.abs(C[:, None] - C[None])  # |C_iz - C_jz|
    count = len(C)
    own = gaps[np.arange(count)[:, None], np.arange(count)[None], np.arange(count)[:, None]]  # z = i
    distances: Floats = (gaps.sum(2) - own - own.T) / max(count - 2, 1)  # D, (7)
    return distances


def _alike(marks: list[object]) -> list[list[int]]:
    """Places with equal marks together, in order of their first one."""
    groups: dict[object, list[int]] = {}
    for place, mark in enumerate(marks):
        groups.setdefault(mark, []).append(place)
    return list(groups.values())


def _mean(rows: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean of rows for all of them; themselves if the weights are zero."""
    total = weights.sum()
    return (weights[:, None] * rows).sum(0) / total if total else rows


def _share_anchor(anchors: Tensor, known: Tensor, group: list[int], label: int, weights: Tensor) -> None:
    """Give all of a group the mean of their known anchors of a label."""
    have = [row for row in group if known[row, label]]
    if have:
        anchors[group, label] = _mean(anchors[have, label], weights[have, label])
        known[group, label] = True
