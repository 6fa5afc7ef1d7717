"""Family ``cfl``: every round a client holds another subset; plain means and a fixed number of plain SGD steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from golden.families.case import Case, Check, Fields, Played, chosen, samples, vectors_at_end
from support import deal, timeline


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields = Fields(run)
    assert fields["kind"] == "cfl"
    problem = problems[fields["problem"]]
    data, sizes = samples(problem)
    subsets = [
        everything[np.array(positions)]
        for everything, parts in zip(deal(sizes), problem["subsets"], strict=True)
        for positions in parts
    ]
    per_client = len(problem["subsets"][0])
    present = [
        {k: k * per_client + j for k, j in zip(ids, visited, strict=True)}
        for ids, visited in zip(fields["selected"], fields["visited"], strict=True)
    ]
    assert fields["rounds"] == len(present)
    local = {
        "amount": fields["local_steps"],
        "unit": "steps",
        "batch_size": fields["batch_size"],
        "order": "stored",
        "lr": fields["lr"],
    }
    conventions: dict[str, Any] = {"weighting": "uniform"}
    if "momentum_form" in fields:  # of Mime: U(z) = (1 - b) z + b m, or the trace z + b m
        conventions["dampening"] = {"ema": True, "trace": False}[fields["momentum_form"]]
    algorithm = chosen(fields, "algorithms", fields["algorithm"], conventions)
    world = timeline(subsets, present, clients=len(sizes), classes=data.num_classes)
    return Case(fields, data, world, run["selected"], {"local": local, "algorithm": algorithm}, check)


def check(fields: Fields, played: Played) -> Iterator[Check]:
    """Models after every round, samples trained on, memories at the end."""
    models = [w for _, w in played.rounds]
    yield "first.w", models[0], fields["first"]["w"]
    yield "final.w", models[-1], fields["final"]["w"]
    yield from vectors_at_end({name: value for name, value in fields["final"].items() if name != "w"}, played.state)
    for t, value in enumerate(fields["w_rounds"]):
        yield f"w after round {t + 1}", models[t], value
        yield f"samples of round {t + 1}", played.rounds[t][0].n[:, 0], fields["samples"][t]
    for t, value in enumerate(fields.either("m_rounds", [])):
        yield f"m after round {t + 1}", played.rounds[t][0].server.m, value
