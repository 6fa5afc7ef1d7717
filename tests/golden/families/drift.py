"""Family ``drift``: concepts that change by round and client; clusters, heads and server optimizers that follow them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedtide.core import plugins
from fedtide.federation.federation import Federation
from fedtide.federation.scoring.served import ServedModels
from fedtide.world.building.drifting import with_drift
from fedtide.world.dataset import Dataset
from fedtide.world.drift.base import Drift
from fedtide.world.timeline import Timeline
from golden.families.case import Case, Check, Fields, Outcome, chosen, local_settings, samples, vectors_at_end
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
    local = local_settings(fields)
    everybody = [list(range(len(sizes)))] * fields["R"]
    present = [{client: client for client in ids} for ids in fields.either("present", everybody)]
    world = timeline(deal(sizes), present, clients=len(sizes), classes=data.num_classes)
    conventions = {"weighting": fields["weighting"]}
    if "models0" in fields and run.get("assign") != "concept":
        conventions["clusters"] = len(fields["models0"])
    algorithm = chosen(fields, "algorithms", fields["algorithm"], conventions)
    model = {"name": "mlp", "widths": [problem["hidden"]]} if "hidden" in problem else {"name": "softmax_regression"}
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
        seen = algorithm.seen = list[dict[str, Any]]()
        algorithm.problem = replace(
            algorithm.problem, drawn=lambda number: torch.tensor(models[number], dtype=torch.float64)
        )
        start, made = algorithm.start, dict[str, Any]()

        def noting(hook: str, name: str) -> None:
            """What a method of the algorithm returns, in ``made``."""
            method = getattr(algorithm, hook, None)

            def noted(*args: Any) -> Any:
                made[name] = method(*args)  # type: ignore[misc]
                return made[name]

            if method is not None:
                setattr(algorithm, hook, noted)

        for name in ("decision", "prepared", "distances", "groups"):
            noting({"decision": "_decide"}.get(name, f"_{name}"), name)

        def watched(r: Any) -> Any:
            if "models" not in r.extra:
                seen.append({})
                return start(r)
            models = r.extra["models"].clone()
            begun = start(r)
            models = models if models.numel() else r.extra["models"]
            facts: dict[str, Any] = {}
            if "decision" in made:
                decision = made["decision"]
                models = models[decision.used]
                facts = decision._asdict() | {"drifted": np.array(r.ids)[decision.drifted]}
            seen.append(facts | {"losses": r.services.losses(models)})
            return begun

        algorithm.start = watched
        algorithm.facts = facts_of_rounds = list[dict[str, Any]]()
        finish = algorithm.finish

        def finished(r: Any) -> Any:
            w = finish(r)
            facts_of_rounds.append({name: made.get(name, []) for name in ("prepared", "distances", "groups")})
            return w

        algorithm.finish = finished

    return script


def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
    """Models after the first and last round, the decisions of every round, memories, and what clients are served."""
    for when, t in (("first", 0), ("final", -1)):
        r, w = outcome.rounds[t]
        models = {"participant_mean": r.average(), "cloud": w}
        for name, value in fields[when].items():
            yield f"{when}.{name}", models[name], value
    yield "counts", outcome.state.counts, fields["counts"]
    for t, record in enumerate(fields["rounds"]):
        ours = _round(outcome, t)
        for name, value in record.items():
            if name == "clipped_steps":  # the models follow from them
                continue
            if name == "groups":
                yield f"round {t + 1}: groups", float(ours[name] == value), 1.0
                continue
            if name == "losses" and isinstance(value[0], dict):
                value = [list(losses.values()) for losses in value]
            if name == "reference":
                value = [float("inf") if number is None else number for number in value]
                yield f"round {t + 1}: who has a reference", np.isinf(ours[name]), np.isinf(value)
                value, ours[name] = np.nan_to_num(value, posinf=0), np.nan_to_num(ours[name], posinf=0)
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
    if "head" in named:
        yield from _heads(named, outcome)
    yield from vectors_at_end(named, outcome.state)
    yield from _served(fields["end"], outcome)


def _round(outcome: Outcome, t: int) -> dict[str, Any]:
    """What our run says of a round, by the names of the files."""
    r, w = outcome.rounds[t]
    row, plugin = outcome.rows[t], outcome.federation.parts.algorithm
    before = outcome.rows[t - 1].get("rate_factor", 1.0) if t else 1.0
    ours: dict[str, Any] = {
        "lr": r.lr * (before or 1.0),
        "steps": r.steps[:, 0],
        "weights": r.weights[:, 0],
        "local_steps": int(r.steps.sum()),
        "cloud_norm": float(torch.linalg.vector_norm(w)),
        "local_models": r.W,
        "changed": len(r.services.changed()),
        **(plugin.seen[t] if plugin.seen else {}),  # type: ignore[attr-defined]
    }
    if "head0" in r.extra:
        ours |= _alignment(outcome, t)
    if "identity" in r.extra:
        ours["identity"] = r.extra["identity"][r.ids]
    names = {"ratio": "variance_ratio", "next_scale": "rate_factor"}
    names |= {name: name for name in ("beta3_mean", "denominator_min", "negative")}
    return ours | {name: row[ours_] for name, ours_ in names.items() if ours_ in row}


def _alignment(outcome: Outcome, t: int) -> dict[str, Any]:
    """FedCCFA's numbers of a round."""
    r, w = outcome.rounds[t]
    algorithm: Any = outcome.federation.parts.algorithm
    facts = algorithm.facts[t]
    upper = np.triu_indices(len(r.ids), 1)
    body = r.problem.layout.mask("body")
    return {
        "align_weights": facts["prepared"]["strength"][:, 0],
        "balanced_norms": facts["prepared"]["balanced"].flatten(1).norm(dim=1),
        "distances": np.array([D[upper] for D in facts["distances"]] or [[]] * len(facts["groups"])),
        "head_norms": r.extra["head"][r.ids].flatten(1).norm(dim=1),
        "anchor_norms": (r.extra["anchors"] * r.extra["known"][..., None])[r.ids].flatten(1).norm(dim=1),
        "groups": [[[r.ids[row] for row in group] for group in groups] for groups in facts["groups"]],
        "body_norm": float(w[body].norm()),
    }


def _heads(named: dict[str, Any], outcome: Outcome) -> Iterator[Check]:
    """Heads as they lie in a model, anchors, and which are known; None for a client without."""
    extra, head = outcome.state.extra, outcome.federation.parts.algorithm.head  # type: ignore[attr-defined]

    def flat(matrix: torch.Tensor) -> torch.Tensor:
        return torch.cat([matrix[:, : head.width].flatten(), matrix[:, head.width]])

    yield "head0", flat(extra["head0"]), named.pop("head0")
    for name, form in (("head", flat), ("anchors", lambda rows: rows), ("known", lambda rows: rows)):
        for client, value in enumerate(named.pop(name)):
            if value is None:
                yield f"{name} of client {client}", extra["has"][client], False
            else:
                own = extra[name][client] * (extra["known"][client][:, None] if name == "anchors" else 1)
                yield f"{name} of client {client}", form(own), value


def _served(end: dict[str, Any], outcome: Outcome) -> Iterator[Check]:
    """Accuracy of the model each client is served, and of the cloud model, on the test set under its concept."""
    parts, state = outcome.federation.parts, outcome.state
    timeline, t = parts.timeline, parts.timeline.rounds - 1
    here = timeline.at(t)
    yield "end: present", here.clients, end["present"]
    server = ServedModels(parts)
    (models, _), of = server._served(state, t, here.clients)
    concept = timeline.concept_shares(t).argmax(1).tolist()

    def accuracy(model: torch.Tensor, number: int) -> float:
        scores = parts.evaluator.by_concept((model, state.b), "test", [number])[number]
        return scores.accuracy() or 0.0

    own = [accuracy(models[row], number) for row, number in zip(of.tolist(), concept, strict=True)]
    sizes = timeline.sizes_at(t)
    ours = {
        "present": here.clients,
        "accuracy": own,
        "accuracy_mean": float(np.mean(own)),
        "accuracy_by_samples": float(np.average(own, weights=sizes)),
        "cloud_accuracy": [accuracy(state.w, number) for number in concept],
        "served_identity": state.extra["used"].nonzero()[:, 0][of] if "used" in state.extra else of,
        "served": models[of],
    }
    for name, value in end.items():
        yield f"end: {name}", ours.get(name, "unknown"), value
