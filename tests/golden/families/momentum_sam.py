"""Files without a family whose runs name their weighting and list every round (server optimisers, momentum, SAM)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from golden.families.case import Case, Check, Fields, Played, chosen, samples, vectors_at_end
from support import steady

ORDERS = {
    "v = direction; v = clip(v); y = y - lr*(v + wd*y)",
    "v = direction without a*y; v = clip(v); y = y - lr*(v + (wd + a)*y)",
}
"""Local steps that clip before the decay, which is what ``clip_scope: total`` does."""


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields = Fields(run)
    data, sizes = samples(problems[fields["problem"]])
    assert fields["order"] in ORDERS
    fields.pass_over("name", "seed", "p", "direction", "setup")
    local = {
        "amount": fields["E"],
        "batch_size": fields["B"],
        "order": "stored",
        "lr": fields["lr"],
        "schedule": "exponential",
        "decay": fields["decay"],
        "weight_decay": fields["wd"],
        "clip": fields["clip"],
        "clip_scope": "total",
    }
    algorithm = chosen(fields, "algorithms", fields["algorithm"], {})
    if run.get("lr_g", 1.0) == 1.0:  # a plain average has no server step
        fields.pass_over("lr_g")
    return Case(
        fields,
        data,
        steady(sizes, fields["R"], data.num_classes),
        fields["selected"],
        {"local": local, "algorithm": algorithm},
        check,
        share=run["p"],
    )


def check(fields: Fields, played: Played) -> Iterator[Check]:
    """Models after the first and last round, all memories, and the record of every round."""
    for when, t in (("first", 0), ("final", -1)):
        r, w = played.rounds[t]
        models = {"participant_mean": r.mean(r.W), "cloud": w}
        for name, value in fields[when].items():
            yield f"{when}.{name}", models[name], value
    yield "counts", played.state.counts, fields["counts"]
    yield from vectors_at_end(fields["server"] | fields["client"], played.state)
    for t, record in enumerate(fields["rounds"]):
        r, w = played.rounds[t]
        ours = {
            "lr": r.lr,
            "steps": r.steps[:, 0],
            "weights": r.weights[:, 0],
            "local_steps": int(r.steps.sum()),
            "clipped_steps": played.clipped[t],
            "cloud_norm": float(torch.linalg.vector_norm(w)),
            "local_models": r.W,
        }
        for name, value in record.items():
            yield f"round {t + 1}: {name}", ours.get(name, "unknown"), value
