"""Files without a family whose runs leave the weighting to the algorithm (the FedSSG lineage)."""

from collections.abc import Iterator
from typing import Any

import torch

from golden.families.case import Case, Check, Fields, Outcome, chosen, local_settings, samples
from support import steady

CONVENTIONS: dict[str, dict[str, Any]] = {
    "fedavg": {"weighting": "samples"},
    "fedprox": {"weighting": "samples", "mu": 2e-4},
    "feddisco": {"weighting": "feddisco"},
    "scaffold": {"variant": "fedssg"},
}
"""What the lineage's reference does and its files do not say."""

SWITCHES: dict[str, dict[str, Any]] = {
    "gate_on": {"gate": False},
    "pen": {"penalty": False},
    "corr": {"correction": False},
}
"""What a part that is switched off is called here."""


def read(run: dict[str, Any], problems: dict[str, Any]) -> Case:
    """See :mod:`golden.families`."""
    fields = Fields(run)
    name = fields["algorithm"]
    data, sizes = samples(problems[fields["problem"]])
    fields.pass_over("p")
    local = local_settings(fields, "mean_epochs" if name == "scaffold" else "epochs")
    off = [setting for switch, setting in SWITCHES.items() if not fields.either(switch, True)]
    conventions = {"weighting": "uniform", **CONVENTIONS.get(name, {})}
    algorithm = chosen(fields, "algorithms", name, {key: v for part in (conventions, *off) for key, v in part.items()})
    return Case(
        fields,
        data,
        steady(sizes, fields["R"], data.num_classes),
        fields["selected"],
        {"local": local, "algorithm": algorithm, "evaluation": {"models": ["global", "participants", "all"]}},
        check,
        share=run["p"],
    )


def check(fields: Fields, outcome: Outcome) -> Iterator[Check]:
    """Participants' mean, everybody's mean and the cloud model after the first and last round; memories; counts."""
    for when, t in (("first", 0), ("final", -1)):
        r, w = outcome.rounds[t]
        server_is_mean = fields["algorithm"] == "scaffold"  # its file calls the new server model participant_mean
        models = {
            "participant_mean": w if server_is_mean else r.average(),
            "cloud": w,
            "all_mean": outcome.everybody[t],
        }
        for name, value in fields[when].items():
            yield f"{when}.{name}", models[name], value
    state, nothing = outcome.state, torch.zeros_like(outcome.state.w)
    yield "C", state.server.get("c", nothing), fields["C"]
    yield "h_mean", state.memory["h"].mean(0) if "h" in state.memory else nothing, fields["h_mean"]
    yield "counts", state.counts, fields["counts"]
