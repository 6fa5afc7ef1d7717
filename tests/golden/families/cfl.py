"""Family ``cfl``: every round a client holds another subset; plain means and a fixed number of plain SGD steps."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedtide.federation.federation import Federation
from golden.families.case import Case, Check, Fields, Outcome, chosen, samples, vectors_at_end
from support import deal, timeline


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields = Fields(run)
    assert fields["kind"] == "cfl"
    problem = problems[fields["problem"]]
    data, sizes = samples(problem)
    subsets = _positions(sizes, problem["subsets"])
    present = _held(fields["selected"], fields["visited"], len(sizes), len(problem["subsets"][0]))
    assert fields["rounds"] == len(present)
    local = {
        "steps": fields["local_steps"],
        "batch_size": fields["batch_size"],
        "order": "stored",
        "lr": fields["lr"],
    }
    conventions: dict[str, Any] = {"weighting": "uniform"}
    if "curvature" in fields:
        conventions |= _taylor(fields)
    script = Case.script
    if "stored" in fields:
        conventions["size"] = fields["stored_per_subset"]
        script = _keeping(_positions(sizes, fields["stored"]))
    if "momentum_form" in fields:  # of Mime: U(z) = (1 - b) z + b m, or the trace z + b m
        conventions["dampening"] = {"ema": True, "trace": False}[fields["momentum_form"]]
    algorithm = chosen(fields, "algorithms", fields["algorithm"], conventions)
    world = timeline(subsets, present, clients=len(sizes), classes=data.num_classes)
    return Case(fields, data, world, run["selected"], {"local": local, "algorithm": algorithm}, check, script=script)


def _held(selected: list[list[int]], visited: list[list[int]], clients: int, subsets: int) -> list[dict[int, int]]:
    """Every client's subset in each round: a client that is not selected stays, with the subset it held last."""
    held = dict.fromkeys(range(clients), 0)
    rounds = []
    for ids, now in zip(selected, visited, strict=True):
        held |= dict(zip(ids, now, strict=True))
        rounds.append({client: client * subsets + subset for client, subset in held.items()})
    return rounds


def _positions(sizes: list[int], parts: list[list[list[int]]]) -> list[Any]:
    """Positions among all clients' samples of each part of each client's own."""
    return [own[np.array(places)] for own, lists in zip(deal(sizes), parts, strict=True) for places in lists]


def _taylor(fields: Fields) -> dict[str, Any]:
    """CFL-Regularization: names and values that differ here; its information loss is measured in every round."""
    weighting, curvature = fields["weighting"], fields["curvature"]
    chosen = {
        "curvature": "exact" if curvature == "hessian_diagonal" else curvature,
        "past": {"layer_beta": "layer", "lemma": "lemma"}[weighting],
        "layers": "full",
        "window": fields["window"],
        "measure_every": 1,
    }
    if weighting == "layer_beta":
        chosen |= {"B_head": fields["B_layer"]}
    return chosen


def _keeping(kept: list[Any]) -> Callable[[Federation], None]:
    """Core sets as listed, by number of the subset."""

    def script(federation: Federation) -> None:
        federation.parts.algorithm.pick = lambda r, rows: [kept[r.shard_ids[row]] for row in rows]  # type: ignore[attr-defined]

    return script


def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
    """Models after every round, samples trained on, memories at the end."""
    models = [w for _, w in outcome.rounds]
    yield "first.w", models[0], fields["first"]["w"]
    yield "final.w", models[-1], fields["final"]["w"]
    yield from vectors_at_end({name: value for name, value in fields["final"].items() if name != "w"}, outcome.state)
    for t, value in enumerate(fields["w_rounds"]):
        yield f"w after round {t + 1}", models[t], value
        yield f"samples of round {t + 1}", outcome.rounds[t][0].n[:, 0], fields["samples"][t]
    for t, value in enumerate(fields.either("broadcast", [])):
        extra = outcome.rounds[t - 1][0].extra if t else outcome.federation.parts.algorithm.extra()
        c, H = outcome.federation.parts.algorithm.combined(extra, outcome.rounds[t][0].w)  # type: ignore[attr-defined]
        yield f"c' of round {t + 1}", c, value["c"]
        yield f"H of round {t + 1}", H, value["H"]
        yield f"triples of round {t + 1}", extra["triples"], value["triples"]
    for t, value in enumerate(fields.either("information_loss", [])):
        yield f"information loss of round {t + 1}", outcome.rows[t]["information_loss"], value
    for t, value in enumerate(fields.either("m_rounds", [])):
        yield f"m after round {t + 1}", outcome.rounds[t][0].server.m, value
