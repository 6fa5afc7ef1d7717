"""Files without a family whose runs name their weighting and list every round (server optimizers, momentum, SAM)."""

from collections.abc import Iterator
from typing import Any

import torch

from fedtide.methods.algorithms.fedwcm import relative_score
from golden.families.case import Case, Check, Fields, Outcome, chosen, local_settings, samples, vectors_at_end
from support import steady

ORDERS = {
    "v = direction; v = clip(v); y = y - lr*(v + wd*y)",
    "v = direction without a*y; v = clip(v); y = y - lr*(v + (wd + a)*y)",
}
"""Local steps that clip before the decay, which is what ``clip_scope: total`` does."""

WEIGHTINGS = {"softmax_scores": "uniform", "softmax_scores_times_samples": "samples"}
"""What FedWCM's softmax of the scores multiplies."""

THE_ONLY_FORM = {
    "nominal_n": None,
    "momentum_norm": "Bhat",
    "step_count": "actual",
    "control_lr": "current",
    "server_form": "all_clients",
}
"""Fields that need no setting where they say what an algorithm does anyway."""


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields = Fields(run)
    data, sizes = samples(problems[fields["problem"]])
    assert fields["order"] in ORDERS
    fields.pass_over("name", "seed", "p", "direction")
    fields.pass_over(*(name for name in ("momentum_norm", "nominal_n") if run.get(name, "") == THE_ONLY_FORM[name]))
    local = local_settings(fields, clip_scope="total")
    weighting = fields["weighting"]
    algorithm = chosen(fields, "algorithms", fields["algorithm"], {"weighting": WEIGHTINGS.get(weighting, weighting)})
    fields.pass_over(*(name for name, value in THE_ONLY_FORM.items() if run.get(name) == value))
    return Case(
        fields,
        data,
        steady(sizes, fields["R"], data.num_classes),
        fields["selected"],
        {"local": local, "algorithm": algorithm},
        check,
        share=run["p"],
    )


def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
    """Models after the first and last round, all memories, and the record of every round."""
    for when, t in (("first", 0), ("final", -1)):
        r, w = outcome.rounds[t]
        models = {"participant_mean": r.average(), "cloud": w}
        for name, value in fields[when].items():
            yield f"{when}.{name}", models[name], value
    yield "counts", outcome.state.counts, fields["counts"]
    yield from vectors_at_end(fields["server"] | fields["client"], outcome.state)
    if "setup" in fields:
        yield from check_setup(fields["setup"], outcome)
    for t, record in enumerate(fields["rounds"]):
        r, w = outcome.rounds[t]
        ours = {
            "lr": r.lr,
            "steps": r.steps[:, 0],
            "weights": r.weights[:, 0],
            "local_steps": int(r.steps.sum()),
            "cloud_norm": float(torch.linalg.vector_norm(w)),
            "local_models": r.W,
        }
        if "alpha" in record:
            ours |= adaptive(outcome, t)
        if "full_gradient" in record:
            ours["full_gradient"] = full_gradient(outcome, t)
        for name, value in record.items():
            if name != "clipped_steps":  # the models follow from them
                yield f"round {t + 1}: {name}", ours.get(name, "unknown"), value


def check_setup(setup: dict[str, Any], outcome: Outcome) -> Iterator[Check]:
    """What FedWCM derives from the class counts of all clients."""
    algorithm: Any = outcome.federation.parts.algorithm
    r, _ = outcome.rounds[0]
    data, counts = algorithm.imbalance(r), r.services.population_counts()
    scores = data.scores(counts)
    ours = vars(data) | {"class_counts": counts, "p_global": data.p, "scores": scores, "score_mean": scores.mean()}
    for name, value in setup.items():
        yield f"setup {name}", ours.get(name, "unknown"), value


def adaptive(outcome: Outcome, t: int) -> dict[str, Any]:
    """FedWCM's numbers of a round: alpha was set by the round before."""
    algorithm: Any = outcome.federation.parts.algorithm
    r, _ = outcome.rounds[t]
    before = outcome.rounds[t - 1][0].extra["alpha"] if t else algorithm.settings.alpha0
    data = algorithm.imbalance(r)
    q = relative_score(data.scores(r.label_counts), data.scores(r.services.population_counts()))
    found = {"alpha": before, "alpha_next": r.extra["alpha"], "q": q}
    if hasattr(algorithm, "lr_scale"):
        found["lr_client"] = r.lr * algorithm.lr_scale(r)[:, 0]
    return found


def full_gradient(outcome: Outcome, t: int) -> torch.Tensor:
    """Mime's c, from the momentum it made."""
    beta, dampening = (getattr(outcome.federation.parts.algorithm.settings, name) for name in ("beta", "dampening"))
    after = outcome.rounds[t][0].server.m
    before = outcome.rounds[t - 1][0].server.m if t else torch.zeros_like(after)
    return (after - beta * before) / (1 - beta if dampening else 1)
