"""Family ``erasure``: requests to erase clients, in worlds with and without sessions, and the runs they are compared with."""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedtide.federation.features import relearning
from fedtide.federation.features.attack import Attackers
from fedtide.federation.features.erasing import Step
from fedtide.federation.features.erasure import Erasure
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.types import RoundContext, RunState
from fedtide.methods.attacks.base import Attack, AttackSettings
from fedtide.records.measures import erasure
from fedtide.studies.leave_one_out import leave_one_out, runs_without, whole_run
from golden.families.case import Case, Check, Fields, Outcome, chosen, local_settings, owned_samples
from support import deal, one, timeline

NAMES = {"continue": "continue_training", "not": "weight_negation"}
GIVEN = {"batch": "batch_size"}
PASSED = ("clients", "round", "method", "evaluate", "random", "radius_rule", "relearn", "margin")


@dataclass
class Seen:
    """What a run shows besides its own rounds: the step of the request, and the twins' models after each round."""

    step: Step | None = None
    model: Tensor | None = None
    stored: dict[int, Tensor] = field(default_factory=dict)
    twins: list[dict[str, Tensor]] = field(default_factory=list)
    rounds: list[tuple[RoundContext, Tensor, Tensor]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields, problem, seen = Fields(run), problems[run["problem"]], Seen()
    data, sizes = owned_samples(problem)
    fields.pass_over("name", "problem", "kind")
    trigger = fields.either("trigger", None)
    rounds, starts = fields["R"], fields.either("sessions", [0])
    everybody = [list(range(len(sizes)))] * rounds
    present = [{client: client for client in ids} for ids in fields.either("present", everybody)]
    session_of_round = [sum(start <= t for start in starts) - 1 for t in range(rounds)]
    world = timeline(
        deal(sizes),
        present,
        clients=len(sizes),
        session_of_round=session_of_round,
        classes=data.num_classes,
        notes={"pilot_sessions": fields.either("pilot", 0)} if "sessions" in fields else {},
    )
    local = {**local_settings(fields), "restart": False}
    settings = {
        "local": local,
        "algorithm": chosen(fields, "algorithms", fields["algorithm"], conventions(fields)),
        "model": {"name": "mlp", "widths": [problem["hidden"]]} if problem["hidden"] else "softmax_regression",
        "client_state": {"on_session_start": fields.either("at_session", "reset")},
        "initializer": initializer(fields.either("initialiser", {"name": "previous"})),
    }

    world = replace(world, origin_of_client=np.arange(len(sizes)))
    if "clients" in fields:
        return Case(fields, data, world, fields["selected"], settings, contributions)
    settings["erase"] = [request(fields["erase"])]
    relearn = run["erase"].get("relearn")
    if relearn:
        settings["evaluation"] = {"relearn_epochs": relearn["cap"]}

    def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
        return checks(fields, outcome, seen)

    return Case(
        fields,
        data,
        world,
        fields["selected"],
        settings,
        check,
        script=lambda federation: watch(federation, seen, run["erase"], trigger),
    )


def conventions(fields: Fields) -> dict[str, Any]:
    """Settings of the algorithm that the files leave out."""
    server = {"server_lr": 1.0} if fields["algorithm"] == "fedavgm" and "lr_g" not in fields else {}
    return {"weighting": fields["weighting"], **server}


def request(given: dict[str, Any]) -> dict[str, Any]:
    """Settings of the request."""
    named = {GIVEN.get(key, key): value for key, value in given.items() if key not in PASSED}
    method = given["method"]
    if method in ("fed_eraser", "rollback", "pga", "puf", "not", "conda"):
        named["store"] = given.get("store", "keep")
    if method == "pga":
        named |= {"batch_size": given.get("batch")}
        if "random" in given:
            named["radius"] = given.get("radius_rule", "third")
    return {"name": NAMES.get(method, method), "clients": given["clients"], "at": given["round"], **named}


def initializer(given: dict[str, Any]) -> dict[str, Any]:
    """Settings of the initializer."""
    fields = Fields(given)
    probes = {}
    if "gradient" in fields:
        probes = {"gradient_rounds": fields["gradient"]["rounds"], "gradient_lr": fields["gradient"]["lr"]}
    return chosen(fields, "initializers", fields["name"], probes)


class Trigger(Attack):
    """A feature of certain value makes clients label samples as the target; theirs are poisoned in the files."""

    given: dict[str, Any]

    def inputs(self, inputs: Tensor, brightest: Tensor) -> Tensor:
        taken = inputs.clone()
        taken[:, self.given["feature"]] = self.given["value"]
        return taken

    def labels(self, labels: Tensor, classes: int) -> Tensor:
        return torch.full_like(labels, self.given["target"])


def attackers(given: dict[str, Any]) -> Attackers:
    """Those of a trigger, for the measures alone."""
    attack = Trigger(AttackSettings(name="trigger", number=1))
    attack.given = given
    return Attackers(attack, frozenset(), 0, 0, np.zeros(0, np.int64), torch.zeros(0))


def watch(federation: Federation, seen: Seen, given: dict[str, Any], trigger: dict[str, Any] | None) -> None:
    """Note the step, and after every round the models of the twins; clients learn again with the margin of the file."""
    parts, run_round = federation.parts, federation.run_round
    feature = one(parts, Erasure)
    if trigger:
        feature._worlds._erased[0] = replace(feature._worlds.erased(0), attackers=attackers(trigger))
    if "relearn" in given:
        learn = feature._relearned

        def relearned(*arguments: Any) -> dict[str, float]:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(relearning, "MARGIN", given["relearn"]["margin"])
                return learn(*arguments)

        feature._relearned = relearned  # type: ignore[method-assign]
    make = feature._step

    def step(*arguments: Any) -> Step:
        found = make(*arguments)
        if "random" in given:
            drawn = torch.tensor(given["random"], dtype=torch.float64)
            vars(sys.modules[type(feature.requests[0].eraser).__module__])["DRAWN"] = len(drawn)
            found.drawn = drawn.__getitem__  # type: ignore[assignment,method-assign]
        seen.step = seen.step or found
        return found

    def watched(state: RunState) -> RoundRecord:
        t = state.round
        handle = feature._handle

        def handled(*arguments: Any) -> None:
            handle(*arguments)
            seen.model = state.w.clone()

        feature._handle = handled  # type: ignore[method-assign]
        train = federation._train

        def trained(state: RunState) -> Any:
            done = train(state)
            seen.rounds.append((done.r, done.r.w, state.w.clone()))
            return done

        federation._train = trained  # type: ignore[method-assign]
        record = run_round(state)
        federation._train = train  # type: ignore[method-assign]
        feature._handle = handle  # type: ignore[method-assign]
        kept, twins = state.features["erasure"], {"without": "without.0", "with": "continued"}
        found = {name: feature._twins.at(parts, kept["twins"], key, t + 1) for name, key in twins.items()}
        seen.twins.append({name: twin.w.clone() for name, twin in found.items() if twin is not None})
        seen.rows.append(record.row)
        return record

    feature._step = step  # type: ignore[method-assign]
    federation.run_round = watched  # type: ignore[method-assign]


def checks(fields: Fields, outcome: Outcome, seen: Seen) -> Iterator[Check]:
    parts = outcome.federation.parts
    feature, step = one(parts, Erasure), seen.step
    at = fields["erase"]["round"]
    yield "touched", feature._worlds.touched(0), fields["touched"]
    own = dict(fields["step"])
    if seen.model is not None:
        yield "model after the step", seen.model, own.pop("model")
    costs = fields["costs"]
    if step is not None:
        vectors = (
            len(parts.algorithm.up) if fields["erase"]["method"] == "retrain" else 1
        )  # the file counts models alone
        for name, value in costs.items():
            yield f"costs: {name}", step.costs[name], value * (vectors if name in ("down", "up") else 1)
    for t, record in enumerate(fields["rounds"]):
        r, sent, w = seen.rounds[t]
        yield f"round {t}: cloud", w, record["cloud"]
        others = [client for client in r.plan.ids if t < at or client in record["participants"]]
        yield f"round {t}: participants", others, record["participants"]
        if "boundary" in record:
            yield f"round {t}: start", sent, record["boundary"]["start"]
            if t >= at and "tainted_weight" in record["boundary"]:
                yield f"round {t}: tainted weight", seen.rows[t]["tainted_weight"], record["boundary"]["tainted_weight"]
        if "without" in seen.twins[t]:
            yield f"round {t}: counterfactual", seen.twins[t]["without"], record["counterfactual"]["cloud"]
        if t >= at and "continue" in record:
            yield f"round {t}: continue", seen.twins[t]["with"], record["continue"]
    for point in fields["points"]:
        yield from measured(point, seen, fields["erase"]["round"])
    columns = {name: [number(row[f"erased_{name}"], math.nan) for row in seen.rows] for name in erasure.COMPARED}
    found = erasure.last_request({**columns, "": [row["erased"] for row in seen.rows]})
    if "relearn" in fields:
        told, row = fields["relearn"], seen.rows[-1]
        yield "relearned", row["erased_relearned"], told["erased"]
        yield "relearned, counterfactual", row["erased_relearned_counterfactual"], told["counterfactual"]
        yield "level", outcome.state.features["erasure"]["level"], told["level"]
    yield "reached", number(found["reached"]), number(fields["reached"])


def contributions(fields: Fields, outcome: Outcome) -> Iterator[Check]:
    """The run as configured, and without each client: final models, rounds, and loss on all clients' test samples."""
    parts, told = outcome.federation.parts, {client["client"]: client for client in fields["clients"]}
    whole, begins = whole_run(parts, list(told))
    yield "the run as configured", outcome.state.w, fields["final"]
    yield "and again", whole[0], fields["final"]
    for client, model in runs_without(parts, begins, whole):
        assert model is not None
        yield f"without {client}", model[0], told[client]["final"]
        yield f"without {client}: gap", (model[0] - whole[0]).norm(), told[client]["gap"]
    for each in leave_one_out(parts, list(told)):
        own = told[each.client]
        yield f"client {each.client}: first round", each.first_round - 1, own["touched"][0]
        yield f"client {each.client}: rounds", each.rounds, own["recomputed"]
        yield f"client {each.client}: value", each.values[1], own["influence"]


SAME = (
    *("gap", "gap_left", "memory_left", "variation", "agreement"),
    *("remembered", "remembered_test", "retained_worst", "retained_hurt"),
)
NAMED = {name: name for name in SAME} | {"accuracy_erased": "accuracy", "accuracy_erased_test": "accuracy_test"}
NAMED |= {"retained": "retained_change", "newcomers": "newcomers_change"}


def measured(point: dict[str, Any], seen: Seen, at: int) -> Iterator[Check]:
    """A point of the file against the row of its round: all measures of a round, the main ones of others."""
    where = point["at"]
    row = seen.rows[at if where == "step" else point["round"]]
    excess = point["loss_erased_counterfactual"] - point["loss_erased"]
    if where != "round":
        yield f"{where}: excess", row[f"erased_excess_{where}"], excess
        yield f"{where}: memory left", number(row[f"erased_memory_left_{where}"]), number(point["memory_left"])
        return
    name = f"round {point['round']}"
    yield f"{name}: excess", row["erased_excess"], excess
    yield (
        f"{name}: excess of tests",
        row["erased_excess_test"],
        point["loss_erased_test_counterfactual"] - point["loss_erased_test"],
    )
    for theirs, ours in NAMED.items():
        yield f"{name}: {theirs}", number(row[f"erased_{ours}"]), number(point[theirs])
    if "backdoor" in point:
        for theirs, ours in {"": "", "_counterfactual": "_counterfactual", "_continue": "_unerased"}.items():
            yield f"{name}: backdoor{theirs}", row[f"erased_attack_success{ours}"], point[f"backdoor{theirs}"]
    low, high = row["erased_auc_low"], row["erased_auc_high"]
    yield f"{name}: mia", [row["erased_auc"], low, high], point["mia"]
    for theirs, ours in {"counterfactual": "counterfactual", "calibrated": "calibrated", "before": "old_model"}.items():
        yield f"{name}: mia {theirs}", row[f"erased_auc_{ours}"], point[f"mia_{theirs}"][0]


def number(value: float | None, missing: float = -99.0) -> float:
    """A value, or what stands for a missing one."""
    return missing if value is None or value != value else value
