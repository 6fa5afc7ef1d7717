"""Family ``dynamicfl``: clients that average inside a round, at two intervals."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedtide.federation.federation import Federation
from golden.families.case import Case, Check, Fields, Outcome, samples
from support import Listed, steady


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    case = without_exchange(run, problems)
    fields, star = case.fields, case.fields["star_mode"]
    case.settings["communication"] = {
        "name": "intervals",
        "intervals": f"{fields['interval_high']}*" if star else f"{fields['interval_high']}-{fields['interval_low']}",
        "schedule": fields["schedule"],
        "budget": {"name": "dynamic", "beta": 1.0},
        **({"star_mode": star} if star else {}),
    }
    case.script = _averaging_often(fields["high"])
    fields.pass_over("interval_low")  # nobody has it with a star
    fields.pass_over("upload_steps", "aggregations_round_1")  # the models after every round depend on them
    return case


def _averaging_often(clients: Sequence[Sequence[int]]) -> Callable[[Federation], None]:
    """The group of each round as listed."""

    def script(federation: Federation) -> None:
        federation.parts.communication.selection = Listed(clients)  # type: ignore[attr-defined]

    return script


def without_exchange(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """The run but for who averages when."""
    fields = Fields(run)
    assert fields["kind"] == fields["algorithm"] == "dynamicfl"
    data, sizes = samples(problems[fields["problem"]])
    local = {
        "steps": fields["local_steps"],
        "batch_size": fields["batch_size"],
        "order": "stored",
        "batches_span_epochs": True,
        "lr": fields["lr0"],
        "schedule": "cosine",
        "min_lr_ratio": fields["lr_min"] / fields["lr0"],
        "momentum": fields["momentum"],
        "nesterov": fields["nesterov"],
        "momentum_scope": fields["momentum_scope"],
        "weight_decay": fields["weight_decay"],
        "clip": fields["clip_norm"],
        "clip_scope": "loss",
    }
    world = steady(sizes, fields["rounds"], data.num_classes)
    return Case(fields, data, world, fields["active"], {"local": local, "algorithm": "fedavg"}, check)


def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
    """Rates, models and uploads of every round."""
    models = [w for _, w in outcome.rounds]
    yield "first.w", models[0], fields["first"]["w"]
    yield "final.w", models[-1], fields["final"]["w"]
    uploads = [sum(counts) for counts in fields["exchanges"]]
    yield "uploads", outcome.state.totals["bytes_up"] // outcome.federation.parts.payload().up, sum(uploads)
    steps = [len(ids) * fields["local_steps"] for ids in fields["active"]]
    shares = [count / total for count, total in zip(uploads, steps, strict=True)]
    yield "khat", shares, fields["khat"]
    yield "khat_mean", sum(shares) / len(shares), fields["khat_mean"]
    for t, value in enumerate(fields["w_rounds"]):
        yield f"w after round {t + 1}", models[t], value
        yield f"lr of round {t + 1}", outcome.rounds[t][0].lr, fields["lr"][t]
