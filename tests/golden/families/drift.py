"""Family ``drift``: concepts that change by round and client; clusters, heads and server optimisers that follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fedtide.core import plugins
from fedtide.drift.base import Drift
from fedtide.federation.federation import Federation
from fedtide.federation.scoring.served import ServedModels
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline
from fedtide.worlds.drifting import with_drift
from golden.families.case import Case, Check, Fields, Outcome, chosen, samples, vectors_at_end
from golden.families.momentum_sam import ORDERS
from support import deal, settings, timeline


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields, problem = Fields(run), problems[run["problem"]]
    data, sizes = samples(problem)
    tested = torch.tensor(problem["test_x"], dtype=torch.float64), torch.tensor(problem["test_y"])
    data = replace(data, test_inputs=tested[0], test_labels=tested[1])
    assert fields["order"] in ORDERS
    fields.pass_over("name", "problem")
    local = {
        "amount": fields["E"],
        "batch_size": fields["B"],
        "order": "stored",
        "lr": fields["lr"],
        "schedule": "exponential",
        "decay": fields["decay"],
        "weight_decay": fields["wd"],
        "clip": fields["clip"],
    }
    everybody = [list(range(len(sizes)))] * fields["R"]
    present = [{client: client for client in ids} for ids in fields.either("present", everybody)]
    world = timeline(deal(sizes), present, clients=len(sizes), classes=data.num_classes)
    conventions = {"weighting": fields["weighting"]}
    if "models0" in fields and run.get("assign") != "concept":
        conventions["clusters"] = len(fields["models0"])
    algorithm = chosen(fields, "algorithms", fields["algorithm"], conventions)
    model = {"name": "mlp", "widths": [problem["hidden"]]} if "hidden" in problem else {"name": "logistic"}
    return Case(
        fields,
        data,
        drifting(world, data, fields["drift"]),
        fields["selected"],
        {"local": local, "algorithm": algorithm, "model": model},
        check,
        script=_starting_from(fields.either("models0", [])),
    )


def drifting(world: Timeline, data: Dataset, drift: dict[str, Any]) -> Timeline:
    """The world under the concepts of a file, a table with a step for every round."""
    maps = [{key: value for key, value in concept.items() if value is not None} for concept in drift["concepts"]]
    table = {"name": "table", "initial": maps[0], "concepts": maps[1:], "steps": drift["of"], "rounds_per_step": 1}
    return with_drift(world, plugins.create(Drift, settings(drift=table).drift), data, seed=0)


def _starting_from(models: list[list[float]]) -> Callable[[Federation], None]:
    def script(federation: Federation) -> None:
        algorithm: Any = federation.parts.algorithm
        losses = algorithm.losses_seen = []
        algorithm.problem = replace(
            algorithm.problem, drawn=lambda number: torch.tensor(models[number], dtype=torch.float64)
        )
        start = algorithm.start

        def watched(r: Any) -> Any:
            models = r.extra["models"].clone() if "models" in r.extra else None
            begun = start(r)
            models = r.extra["models"] if models is not None and not models.numel() else models
            losses.append(None if models is None else r.services.losses(models))
            return begun

        algorithm.start = watched

    return script


def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
    """Models after the first and last round, the decisions of every round, memories, and what clients are served."""
    for when, t in (("first", 0), ("final", -1)):
        r, w = outcome.rounds[t]
        models = {"participant_mean": r.mean(r.W), "cloud": w}
        for name, value in fields[when].items():
            yield f"{when}.{name}", models[name], value
    yield "counts", outcome.state.counts, fields["counts"]
    for t, record in enumerate(fields["rounds"]):
        ours = _round(outcome, t, fields["algorithm"])
        for name, value in record.items():
            if name == "model_norms":
                norms = torch.linalg.vector_norm(outcome.rounds[t][0].extra["models"], dim=1)
                yield from ((f"round {t + 1}: norm of model {j}", norms[int(j)], norm) for j, norm in value.items())
            else:
                yield f"round {t + 1}: {name}", ours.get(name, "unknown"), value
    named = {**fields["state"]}
    if fields["algorithm"] == "adaptive_fedavg":
        s, gamma, updates, *_ = outcome.state.extra["adaptive"].tolist()
        yield "s, gamma, updates", [s, gamma, updates], [named.pop(key) for key in ("s", "gamma", "updates")]
    for number, model in named.pop("models", {}).items():
        yield f"model {number}", outcome.state.extra["models"][int(number)], model
    if "identity" in named:
        yield "identity", outcome.state.extra["identity"], named.pop("identity")
    yield from vectors_at_end(named, outcome.state)
    yield from _served(fields["end"], outcome)


def _round(outcome: Outcome, t: int, algorithm: str) -> dict[str, Any]:
    """What our run says of a round, by the names of the files."""
    r, w = outcome.rounds[t]
    row, plugin = outcome.rows[t], outcome.federation.parts.algorithm
    before = outcome.rows[t - 1].get("rate_factor", 1.0) if t else 1.0
    ours: dict[str, Any] = {
        "lr": r.lr * (before or 1.0),
        "steps": r.steps[:, 0],
        "weights": r.weights[:, 0],
        "local_steps": int(r.steps.sum()),
        "clipped_steps": outcome.clipped[t],
        "cloud_norm": float(torch.linalg.vector_norm(w)),
        "local_models": r.W,
        "changed": len(r.services.changed()),
        "losses": plugin.losses_seen[t],  # type: ignore[attr-defined]
    }
    if "identity" in r.extra:
        ours["identity"] = r.extra["identity"][r.ids]
    names = {"ratio": "variance_ratio", "next_scale": "rate_factor"}
    names |= {name: name for name in ("beta3_mean", "denominator_min", "negative")}
    return ours | {name: row[ours_] for name, ours_ in names.items() if ours_ in row}


def _served(end: dict[str, Any], outcome: Outcome) -> Iterator[Check]:
    """Accuracy of the model each client is served, and of the cloud model, on the test set under its concept."""
    parts, state = outcome.federation.parts, outcome.state
    timeline, t = parts.timeline, parts.timeline.rounds - 1
    here = timeline.at(t)
    yield "end: present", here.clients, end["present"]
    server = ServedModels(parts.algorithm, parts.layout, parts.evaluator)
    found = server._models(state, SimpleNamespace(w=state.w, b=state.b), t, slice(None))  # type: ignore[arg-type]
    concept = timeline.concept_shares(t).argmax(1).tolist()

    def accuracy(model: torch.Tensor, number: int) -> float:
        scores = parts.evaluator.by_concept((model, state.b), "test", [number])[number]
        return scores.accuracy() or 0.0

    own = [accuracy(found.models[of], number) for of, number in zip(found.of.tolist(), concept, strict=True)]
    sizes = timeline.sizes_at(t)
    ours = {
        "present": here.clients,
        "accuracy": own,
        "accuracy_mean": float(np.mean(own)),
        "accuracy_by_samples": float(np.average(own, weights=sizes)),
        "cloud_accuracy": [accuracy(state.w, number) for number in concept],
        "served_identity": found.of,
        "served": found.models[found.of],
    }
    for name, value in end.items():
        yield f"end: {name}", ours.get(name, "unknown"), value
