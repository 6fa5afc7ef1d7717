"""What client-level privacy does not go with: all by which more of a client reaches the model than its clipped update."""

from __future__ import annotations

from fedtide.federation.types import Chosen


def what_leaks(chosen: Chosen) -> str | None:
    """What of a run undoes a private link, if it has one; the line names the setting and a way out."""
    link = next((link for link in chosen.links if link.private), None)
    if link is None:
        return None
    settings, algorithm = chosen.settings, chosen.algorithm
    rule, weighting, name = settings.participation, settings.algorithm.weighting.name, settings.algorithm.name
    leaks = [
        (
            settings.mode.name == "async",
            "mode: async uses results one by one instead of sums over cohorts; use mode: sync",
        ),
        (
            not {"noise", "noise_at_equal_steps"} & {*algorithm.admits},
            f"algorithm {name} uses more of a client than its clipped update on the server; use one like fedavg, "
            "fedprox, fedopt or fedacg",
        ),
        (
            "noise_at_equal_steps" in algorithm.admits and settings.local.unit != "steps",
            f"algorithm {name} divides updates by each client's local steps, so a client with few steps can exceed "
            "the clipping bound; set local.steps instead of local.epochs",
        ),
        (
            weighting != "uniform",
            f"algorithm.weighting = {weighting} lets one client outweigh all others; set it to uniform",
        ),
        (
            settings.aggregation.name != "mean",
            (
                f"aggregation {settings.aggregation.name} is not a sum, to which noise could be added; use aggregation: "
                "mean"
            ),
        ),
        (
            not chosen.participation.private,
            f"participation {rule.name} depends on client data with these settings, so the participant list itself "
            "would leak information; use participation: bernoulli or fixed",
        ),
        (
            not chosen.initializer.private,
            f"initializer {settings.initializer.name} uses clients' data or labels outside the rounds; use previous, "
            "average or restart",
        ),
        (
            settings.detector.name != "none",
            (
                f"detector {settings.detector.name} reads the clients' training losses, to which no noise is added; use "
                "detector: none"
            ),
        ),
        (
            chosen.attackers is not None and chosen.attackers.attack.colludes,
            f"attack {settings.attack.name} sends updates that depend on other clients' updates, which noise does "
            "not protect; use one like sign_flip or scale",
        ),
        *(
            (
                chosen.evaluates(model),
                f"evaluation of the model {model} reveals the clients' own models; evaluate global or participants",
            )
            for model in ("all", "ensemble")
        ),
    ]
    problem = next((problem for found, problem in leaks if found), None)
    return problem and f"uplink {link.settings.name}: {problem}"
