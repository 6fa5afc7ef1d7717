"""All figures of the report, by name, before they are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from fedtide.records.frames import Records
from fedtide.report import drifts, privacy, seconds
from fedtide.report.charts import (
    boundaries,
    clients,
    dynamics,
    earlier,
    figures,
    kept,
    pareto,
    participants,
    raster,
    ribbon,
)
from fedtide.report.charts.alarms import marks_caption
from fedtide.report.charts.chart import Chart
from fedtide.report.charts.concepts import CAPTION as CONCEPTS
from fedtide.report.charts.drifts import CAPTION as AROUND
from fedtide.report.charts.drifts import around_drifts
from fedtide.report.charts.own_models import ABSENCE, ARRIVAL, GAINS, by_absence, gains, since_arrival
from fedtide.report.charts.pictures import Drawing
from fedtide.report.table import Table

WORLD = ("Clients and their data", "As generated before training.")
"""Title and caption of the picture of a timeline."""

_RANGE = (
    "Lines: mean of the complete runs of a method; shading: range over its seeds. Dotted, ending in a cross: a run that "
    "diverged or did not finish."
)


def of_runs(
    read: Records, table: Table, run_dirs: Sequence[Path], moves: Mapping[str, Sequence[Any]] | None
) -> list[Drawing]:
    """The figures of runs that have data, the movements of the population and the key figure first."""
    evaluated = clients.evaluations(run_dirs, read)
    score, models = read.score, drifts.accuracies(read)
    population = None if moves is None else ribbon.ribbon(read, pd.DataFrame(moves))
    possible = [
        ("population", population, "Population over the sessions", ribbon.caption(read)),
        (
            f"{score.name}_over_rounds",
            figures.score_over_rounds(read),
            f"Test {score.words} over communication rounds",
            _RANGE + marks_caption(read.history),
        ),
        (
            "around_drifts",
            around_drifts(read.methods, models),
            "Test accuracy around the drifts",
            AROUND,
        ),
        (
            f"transition_{score.name}",
            figures.score_after_changes(table),
            f"{score.title} after session changes",
            f"Mean over the first {table.rules.window} rounds after the evaluated changes. Dots: runs; bars: mean of a method.",
        ),
        (
            "client_accuracy",
            clients.distribution(read, clients.quantiles(evaluated)),
            "Distribution of accuracy over the clients",
            "Percentiles over the clients present, each on its own held-out samples, or expected under its labels; mean of the "
            "complete runs of a method.",
        ),
        (
            "newcomers",
            clients.newcomers(read),
            "Newcomers against the other clients",
            "Stayers: present in the session before as well; newcomers: in their first session; returners: back after an "
            "absence; departed: absent, on their last samples. Lines: mean of the complete runs; shading: range over the "
            "seeds.",
        ),
        ("gains", gains(read, evaluated), "Gain of the clients' own models", GAINS),
        (
            "since_arrival",
            since_arrival(read, evaluated),
            "Newcomers since their arrival",
            ARRIVAL,
        ),
        ("by_absence", by_absence(read, evaluated), "Returners by length of absence", ABSENCE),
        ("kept", kept.kept(read), "What is kept of newcomers' updates", kept.ABOUT),
        ("privacy", privacy.chart(read), "Privacy spent by rounds present", privacy.FIGURE),
        ("attack_success", kept.success(read), "Success of the attack", kept.SUCCESS),
        (
            "weights",
            boundaries.weights(read, table.rules.reference),
            "Weights of the stored models at the start of a session",
            "Mean over the complete runs. White: not stored yet, or not mixed.",
        ),
        (
            "boundary_losses",
            boundaries.losses(read, table.rules.reference),
            "Training loss of the candidate initial models of a session",
            "On the clients of the new session, before its first round. Lines: mean over the complete runs; shading: range "
            "over the seeds.",
        ),
        (
            "gates",
            participants.gates(read),
            "Gates of the clients",
            "Thin: each client, over the rounds it took part in; black: mean of their latest values, 0 before the first. One "
            "run of each method.",
        ),
        (
            "consistency",
            participants.consistency(read),
            "Local and global progress from one selection of a client to its next",
            "A point per pair of consecutive selections of a client: change of the training loss of the received model, on "
            "all data and on the client's own. Both axes are linear near zero, logarithmic beyond. Agree: changes of the same "
            "sign. All complete runs of a method.",
        ),
        (
            f"{score.name}_over_bytes",
            figures.score_over_bytes(read),
            f"Test {score.words} over communicated bytes",
            _RANGE,
        ),
        (
            f"{score.name}_over_seconds",
            figures.score_over_seconds(read),
            f"Test {score.words} over simulated time",
            "Of the latest model; in lockstep a round lasts as long as its slowest client. Lines: mean of the complete runs "
            "of a method, up to the end of the shortest; shading: range over its seeds.",
        ),
        (
            "staleness",
            seconds.staleness(read),
            "Staleness of the results",
            "All complete runs of a method; black: mean.",
        ),
        (
            f"{score.name}_over_cost",
            pareto.score_over_cost(read, table),
            f"{pareto.level_title(table)} over communication cost",
            "Dots: mean of the complete runs of a method; bars: range over its seeds; line: Pareto front of the methods.",
        ),
        (
            "earlier_sessions",
            earlier.session_scores(read),
            f"Test {score.present.words} on earlier sessions",
            earlier.CAPTION,
        ),
        (
            "per_class",
            figures.per_class(read),
            "Accuracy per class of the final model",
            "Mean over the complete runs, on all test samples of a class, whether or not it is present at the end.",
        ),
        (
            "neurons",
            dynamics.neurons(read),
            "Concentration of the neurons' activity",
            "One minus the normalised entropy of a layer's mean activations, averaged over the hidden layers: 0 if all neurons "
            "are equally active, 1 if only one is. Lines: mean of the complete runs; shading: range over the seeds.",
        ),
        (
            "momentum",
            dynamics.momentum(read),
            "Momentum of the server",
            "Norm of the momentum and weight of the gradient in a local step, as used in the next round.",
        ),
    ]
    return [Drawing(name, title, caption, content) for name, content, title, caption in possible if content is not None]


def of_clients(cohorts: Figure | None, concepts: Chart | None) -> list[Drawing]:
    """Who takes part when, and who sees which concept when."""
    possible = [
        ("cohorts", cohorts, "Participation by round", raster.CAPTION),
        ("concepts", concepts, "Concepts of the clients", CONCEPTS),
    ]
    return [Drawing(name, title, caption, content) for name, content, title, caption in possible if content is not None]
