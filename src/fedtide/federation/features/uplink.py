"""The links that updates pass on their way to the server, and what undoes the privacy of those that are private."""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fedtide.core.discovery.faults import broken_contract
from fedtide.federation.features.attack import Attacking
from fedtide.federation.features.erasure import Erasure
from fedtide.federation.types import Chosen, Feature, Memory, Parts, RoundContext, RunState
from fedtide.methods.accounting.cohorts import cohorts
from fedtide.methods.algorithms.base import Vectors, shared_parameters, shared_size
from fedtide.methods.uplink.base import Link, Sending, memory_name
from fedtide.training.engine import contract
from fedtide.training.engine.flat import Layout
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline

_NUMBERS = 1 << 22  # numbers of a few clients' vectors


class Uplink(Feature):
    """Updates pass links in their order; a row that no link changes arrives as it was trained, to the bit."""

    name = "uplink"
    updates = rowwise = True

    def __init__(self, links: Sequence[Link]) -> None:
        self.links, self._bound = links, False

    def refuses(self, chosen: Chosen, timeline: Timeline, data: Dataset) -> str | None:
        settings, links = chosen.settings, self.links
        if same := [pair for pair in pairwise(links) if pair[0].place == pair[1].place]:
            return (
                f"uplink lists {' and '.join(link.settings.name for pair in same for link in pair)}, which "
                "exclude each other; use one of them"
            )
        if any(link.memory for link in links) and settings.mode.name == "async":
            return "mode: async may use two results of a client at once; use links without client state"
        return _what_leaks(chosen)

    def bind(self, parts: Parts) -> None:
        if self._bound:  # a run beside the one whose links these are: cohorts have the public sizes of that one
            return
        layout = parts.layout.part(shared_parameters(parts.algorithm, parts.layout))
        known = partial(cohorts, parts.participation, parts.timeline, parts.settings.seed, _retrained(parts))
        for link in self.links:
            link.bind(self.links, layout)
            link.foresee(known)
        self._bound = True

    def rows(self, chosen: Chosen, layout: Layout) -> dict[str, int]:
        size = shared_size(chosen.algorithm, layout)
        return {memory_name(link, name): link.width(name, size) for link in self.links for name in link.memory}

    def memory(self, chosen: Chosen, timeline: Timeline, layout: Layout) -> Memory:
        known = partial(cohorts, chosen.participation, timeline, chosen.settings.seed)
        noise = sum(link.vectors(known) for link in self.links)  # of earlier rounds, float64, and anew in every round
        return Memory(once=2 * noise, each=1)  # what arrives besides what was trained

    def bits(self, numbers: int) -> int | None:
        found = None
        for link in self.links:
            bits = link.bits(numbers)
            found = found if bits is None else bits
        return found

    def state(self, parts: Parts) -> dict[str, Any]:
        size = shared_size(parts.algorithm, parts.layout)
        return {link.settings.name: link.extra(size) for link in self.links}

    def forget(self, parts: Parts, state: RunState, clients: Tensor, left: bool) -> None:
        """Tell the links that their vectors are about to be lost."""
        for link in self.links:
            if link.memory and not left:
                own = {short: state.memory[memory_name(link, short)] for short in link.memory}
                few = max(1, _NUMBERS // sum(rows.shape[1] for rows in own.values()))
                for some in torch.split(clients, few):
                    link.forget(Vectors({short: rows[some.to(rows.device)] for short, rows in own.items()}))

    def after(self, r: RoundContext) -> None:
        here, shared = r.here, shared_parameters(r.parts.algorithm, r.parts.layout)
        moved = r.received - r.started
        D = moved if shared is None else moved[:, shared]
        passed = []
        for link in self.links:
            sending = self._sending(link, r)
            found = contract.record(link, link.apply(D[here], sending), len(sending.ids), "apply")
            if number := next((name for name, values in found.items() if not isinstance(values, Tensor)), None):
                raise broken_contract(link, "apply", f"columns [c, 1], got a number for {number}")
            columns = {name: r.share.spread(column) for name, column in found.items() if isinstance(column, Tensor)}
            passed.append((link, sending, columns))
        if shared is not None:
            moved[:, shared] = D
        for update, trained, begun in zip(moved[here], r.received[here], r.started[here], strict=True):
            if torch.equal(update, trained - begun):
                update.copy_(trained)
            else:
                update.add_(begun)
        r.received = moved
        r.notes[self.name] = recorded = dict[str, Tensor | float]()
        for link, sending, columns in () if r.rehearsal else passed:
            recorded |= contract.record(link, link.finish(columns, sending), len(r.plan.ids), "finish")

    def record(self, r: RoundContext) -> dict[str, Tensor | float]:
        found: dict[str, Tensor | float] = r.notes[self.name]
        return found

    def _sending(self, link: Link, r: RoundContext) -> Sending:
        """This process's participants, as a link sees them."""
        plan, name, kept = r.plan, link.settings.name, r.state.features[self.name]
        numbers = plan.ids if plan.starts is None else plan.starts.numbers
        return Sending(
            t=plan.t,
            participants=len(plan.ids),
            ids=plan.ids[r.here],
            numbers=numbers[r.here],
            memory=Vectors({short: r.memory[memory_name(link, short)][r.here] for short in link.memory}),
            extra=kept[name],
            extras=kept,
            seed=r.parts.randomness.seed,
            purpose=f"uplink.{name}" if plan.purpose == "batches" else f"uplink.{name}.{plan.purpose}",
            keys=plan.keys,
        )


def _retrained(parts: Parts) -> int:
    """After how many rounds erasers last replace the model by one that is trained again with the same noise."""
    erasure = parts.feature(Erasure)
    requests = erasure.requests if erasure else ()
    return max((request.at for request in requests if request.eraser.memory == "counterfactual"), default=0)


def _what_leaks(chosen: Chosen) -> str | None:
    """What undoes client-level privacy, if a link has it: all by which more of a client counts than its clipped update."""
    link = next((link for link in chosen.links if link.private), None)
    if link is None:
        return None
    settings, algorithm, attack = chosen.settings, chosen.algorithm, chosen.feature(Attacking)
    rule, weighting, name = settings.participation, settings.algorithm.weighting.name, settings.algorithm.name
    alone = [model for model in ("all", "ensemble") if chosen.evaluates(model)]
    leaks = [
        (
            settings.mode.name == "async",
            "mode: async uses results one by one instead of sums over cohorts; use mode: sync",
        ),
        (
            not {"noise", "noise_at_equal_steps"} & {*algorithm.admits},
            f"algorithm {name} uses more of a client than its clipped update on the server; use one like fedavg, "
            "fedprox, fedopt or fedacg",
        ),
        (
            "noise_at_equal_steps" in algorithm.admits and settings.local.unit != "steps",
            f"algorithm {name} divides updates by each client's local steps, so a client with few steps can exceed "
            "the clipping bound; set local.steps instead of local.epochs",
        ),
        (
            weighting != "uniform",
            f"algorithm.weighting = {weighting} lets one client outweigh all others; set it to uniform",
        ),
        (
            settings.aggregation.name != "mean",
            f"aggregation {settings.aggregation.name} is not a sum, to which noise could be added; use aggregation: mean",
        ),
        (
            not chosen.participation.private,
            f"participation {rule.name} depends on client data with these settings, so the participant list itself "
            "would leak information; use participation: bernoulli or fixed",
        ),
        (
            not chosen.initializer.private,
            f"initializer {settings.initializer.name} uses clients' data or labels outside the rounds; use previous, "
            "average or restart",
        ),
        (
            settings.detector.name != "none",
            f"detector {settings.detector.name} reads the clients' training losses, to which no noise is added; use "
            "detector: none",
        ),
        (
            attack is not None and attack.attackers.attack.colludes,
            f"attack {settings.attack.name} sends updates that depend on other clients' updates, which noise does "
            "not protect; use one like sign_flip or scale",
        ),
        (
            bool(alone),
            f"evaluation of the model {''.join(alone[:1])} reveals the clients' own models; evaluate global or participants",
        ),
    ]
    problem = next((problem for found, problem in leaks if found), None)
    return problem and f"uplink {link.settings.name}: {problem}"
