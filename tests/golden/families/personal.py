"""Family ``personal``: a model for every client, by itself, shared in part, or a few steps from the global one."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Floats, Ints
from fedtide.federation.federation import Federation
from fedtide.federation.rounds.round import RoundRecord
from fedtide.federation.scoring.client_scores import summary
from fedtide.federation.scoring.served import ServedModels
from fedtide.federation.types import RunState
from fedtide.methods.algorithms.base import overrides
from fedtide.training.engine.local import Cohort, Local
from fedtide.training.engine.plan import plan_batches
from golden.families.case import Case, Check, Fields, Outcome, chosen, local_settings, owned_samples
from support import deal, timeline


@dataclass
class Seen:
    """What clients are served after each round.

    Attributes:
        rounds: for each round the clients present, their models [K, d], and the algorithm's client vectors and ``alpha``.
        phases: for each round the local steps of the participants in each phase.
    """

    rounds: list[tuple[Ints, Tensor, dict[str, Tensor]]] = field(default_factory=list)
    phases: list[list[list[int]]] = field(default_factory=list)


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields, problem, seen = Fields(run), problems[run["problem"]], Seen()
    data, sizes = owned_samples(problem)
    fields.pass_over("name", "problem")
    local = local_settings(fields)
    everybody = [list(range(len(sizes)))] * fields["R"]
    present = [{client: client for client in ids} for ids in fields.either("present", everybody)]
    world = timeline(deal(sizes), present, clients=len(sizes), classes=data.num_classes)
    fine_tune = fields.either("fine_tune", None)
    kept = (
        {"client_state": {"on_leave": {"forget": "discard"}.get(fields["returners"], fields["returners"])}}
        if "returners" in fields
        else {}
    )
    settings = {
        "local": local,
        "algorithm": chosen(fields, "algorithms", fields["algorithm"], {"weighting": fields["weighting"]}),
        "model": {"name": "mlp", "widths": [problem["hidden"]]} if problem["hidden"] else "softmax_regression",
        "evaluation": {"clients_every": 1},
        **kept,
    }

    def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
        return _checks(fields, outcome, seen, problem, fine_tune)

    return Case(
        fields,
        data,
        replace(world, origin_of_client=np.arange(len(sizes))),
        fields["selected"],
        settings,
        check,
        script=lambda federation: _watch(federation, seen, fine_tune),
    )


def _watch(federation: Federation, seen: Seen, fine_tune: dict[str, Any] | None) -> None:
    """Note after every round what the clients are served, and the steps of each phase."""
    parts, run_round, begin = federation.parts, federation.run_round, federation.parts.executor.begin
    server = ServedModels(parts)

    def noting(cohort: Cohort) -> Any:
        seen.phases[-1].append(list(cohort.plan.steps))
        return begin(cohort)

    def watched(state: RunState) -> RoundRecord:
        t = state.round
        seen.phases.append([])
        record = run_round(state)
        models, _ = server.rows(state, t, slice(None))
        if fine_tune is not None:
            models = _fine_tuned(federation, models, t, float(record.row["lr"] or 0), **fine_tune)
        memory = {name: state.memory[name].clone() for name in parts.algorithm.client}
        seen.rounds.append((parts.timeline.at(t).clients, models, memory | dict(state.extra)))
        return record

    federation.run_round = watched  # type: ignore[method-assign]
    parts.executor.begin = noting  # type: ignore[method-assign]


def _fine_tuned(
    federation: Federation,
    models: Tensor,
    t: int,
    round_lr: float,
    part: str = "all",
    lr: float | None = None,
    epochs: int | None = None,
    steps: int | None = None,
) -> Tensor:
    """Models [K, d] after local steps on their clients' training samples."""
    parts = federation.parts
    shards, ids = parts.timeline.shards_at(t), parts.timeline.at(t).clients.tolist()
    local = parts.settings.local
    local = local.with_work(epochs or local.amount) if steps is None else local.with_work(steps, "steps")
    plan = plan_batches(shards, ids, local, 1.0, 0, "fine_tune", (t,), models.device, parts.data.classes)
    W = models.clone()
    cohort = Cohort(
        W=W,
        buffers=W[:, :0].clone(),
        moments={},
        b=W[0, :0],
        plan=plan,
        label_counts=parts.data.label_counts(shards).to(W),
        lr=round_lr if lr is None else lr,
        added=Local(),
        losses=W.new_zeros(len(ids)),
        trains=None if part == "all" else parts.layout.mask(part),
    )
    type(parts.executor).begin(parts.executor, cohort)(plan.longest)
    return W


def _checks(
    fields: Fields, outcome: Outcome, seen: Seen, problem: dict[str, Any], fine_tune: dict[str, Any] | None
) -> Iterator[Check]:
    parts = outcome.federation.parts
    assert (parts.layout.size, int(parts.layout.mask("body").sum())) == (problem["d"], problem["body"])
    for t, record in enumerate(fields["rounds"]):
        ours = _round(fields, outcome, seen, t)
        for name, value in record.items():
            yield f"round {t + 1}: {name}", ours.get(name, "unknown"), value
        if overrides(parts.algorithm, "served") and fine_tune is None:
            yield f"round {t + 1}: recorded mean", outcome.rows[t]["served_accuracy_mean"], record["mean"]
    yield from _end(fields["final"], outcome, seen)
    if overrides(parts.algorithm, "served") and fine_tune is None:
        names = {"served_accuracy_samples": "samples_mean", "served_accuracy_worst_decile": "worst_decile"}
        for ours, theirs in {**names, "personalization_gain": "gain", "fraction_worse_than_global": "hurt"}.items():
            yield f"recorded {ours}", outcome.rows[-1][ours], fields["final"][theirs]


def _round(fields: Fields, outcome: Outcome, seen: Seen, t: int) -> dict[str, Any]:
    """What our run says of a round, by the names of the file; the phase whose models are averaged is that of ``r.steps``."""
    r, w = outcome.rounds[t]
    clients, models, memory = seen.rounds[t]
    algorithm, steps = outcome.federation.parts.algorithm, r.steps[:, 0]
    others = [phase for phase in seen.phases[t] if phase != steps.tolist()] or seen.phases[t][1:]
    per_step, personal = 1, 0 * steps
    if others:
        personal = torch.tensor(others).sum(0).to(steps)
    elif fields["algorithm"] == "pfedme":
        per_step, personal = 0, steps * fields["K"]
    elif fields["algorithm"] == "apfl":
        personal = steps
    elif fields["algorithm"] == "per_fedavg":
        # A step of the paper takes two batches, or one of them twice; hf takes two more gradients on the second.
        steps = steps if fields.either("batches", "alternate") == "same" else steps // 2
        per_step = 4 if fields.either("variant", "fo") == "hf" else 2
    return {
        "lr": r.lr,
        "weights": r.weights[:, 0],
        "steps": steps,
        "personal_steps": personal,
        "gradients": per_step * steps + personal,
        "cloud": w,
        "served_norms": models.norm(dim=1),
        "local_models": r.W,
        "mean": _accuracies(outcome, models, clients).mean(),
        "personal": memory[algorithm.client[0]][r.ids] if algorithm.client else [],
        "alpha": memory["alpha"][r.ids, 0] if "alpha" in memory else [],
    }


def _end(final: dict[str, Any], outcome: Outcome, seen: Seen) -> Iterator[Check]:
    """Served models of everybody, their accuracies beside the global model's, and what leavers took along."""
    clients, models, _ = seen.rounds[-1]
    own = _accuracies(outcome, models, clients)
    shared = _accuracies(outcome, outcome.state.w.expand_as(models), clients)
    spread = summary(own, clients, {}, 0.5)
    ours: dict[str, Any] = {
        "cloud": outcome.state.w,
        "accuracy": own,
        "accuracy_global": shared,
        "mean": spread["mean"],
        "samples_mean": own.mean(),  # everybody has as many test samples
        "worst_decile": spread["worst_decile"],
        "gain": (own - shared).mean(),
        "hurt": (own < shared).mean(),
    }
    served = dict(zip(clients.tolist(), models, strict=True))
    named = dict(final)
    for client, model in enumerate(named.pop("served")):
        yield f"final: client {client} is present", client in served, model is not None
        if model is not None:
            yield f"final: served to client {client}", served[client], model
    for client, model in named.pop("departed", {}).items():
        last = next(t for t in reversed(range(len(seen.rounds))) if int(client) in seen.rounds[t][0])
        ids, models, _ = seen.rounds[last]
        yield f"final: departed client {client}", models[int(np.searchsorted(ids, int(client)))], model
    for name, value in named.items():
        yield f"final: {name}", ours.get(name, "unknown"), value


def _accuracies(outcome: Outcome, models: Tensor, clients: Ints) -> Floats:
    """Accuracy of a model [K, d] for each client on the client's own test samples."""
    evaluator = outcome.federation.parts.evaluator
    owner = evaluator.data.origins.test_client
    assert owner is not None
    tested = [np.flatnonzero(owner == client) for client in clients]
    scores = evaluator.each((models, models[:, :0]), range(len(clients)), tested)
    return np.array([each.accuracy() for each in scores])
