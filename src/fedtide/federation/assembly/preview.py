"""What is logged before the first round: the memory that a run needs, and the algorithm's advice."""

from __future__ import annotations

import math

import torch

from fedtide.core import plugins
from fedtide.federation.assembly.footprint import Footprint, gigabytes
from fedtide.federation.rounds.plan import learning_rate
from fedtide.federation.scoring.client_samples import owners
from fedtide.federation.types import Parts
from fedtide.methods.algorithms.base import RunPreview
from fedtide.settings.run import Async, RunSettings
from fedtide.training.engine.plan import step_count
from fedtide.world.adapters.encoding import Encoding, Hashed
from fedtide.world.scenarios.base import Scenario


def memory_plan(parts: Parts, wanted: Footprint) -> str:
    """The memory that a run needs, in one line."""
    settings, timeline = parts.settings, parts.timeline
    present = max(len(item.clients) for item in timeline.assignments)
    if isinstance(settings.mode, Async):
        at_once = min(settings.mode.concurrency, present)
        who = f"{at_once} of {present} clients at once, results per update: {parts.algorithm.buffer}"
    else:
        cohort = max(1, round(present * parts.participation.participation_fraction(present)))
        who = f"about {cohort} of {present} clients per round"
    return (
        f"{parts.layout.size:,} parameters; {who}; at least {gigabytes(wanted.run)} for the run, "
        f"{gigabytes(wanted.kept.size)} of client state on {parts.memory}; "
        f"{parts.executor.describe()}{', channels last' if parts.task.layout == torch.channels_last else ''}"
    )


def unused_partition(chosen: RunSettings) -> list[str]:
    """A line if the scenario does not deal data with the partition."""
    used = plugins.create(Scenario, chosen.scenario).partition_settings()
    if used is None:
        return []
    rest = f" but for {', '.join(used)}" if used else ""
    return [
        f"partition {chosen.partition.name} has no effect{rest}: with these settings, scenario "
        f"{chosen.scenario.name} assigns the clients' data itself"
    ]


def unused_oracle(parts: Parts) -> list[str]:
    """A line if initializer ``oracle`` finds no earlier model for some sessions that it could choose for."""
    timeline, name = parts.timeline, parts.settings.initializer.name
    later = range(timeline.pilot + 1, timeline.sessions)
    without = [str(session + 1) for session in later if not timeline.returning(session)]
    if name != "oracle" or not without:
        return []
    which = "any session" if len(without) == len(later) else f"session {', '.join(without)}"
    why = "is of its kind" if timeline.kinds else "has exactly the same clients"
    return [f"initializer oracle equals previous at the start of {which}: no earlier session {why}"]


def _hashed_columns(parts: Parts) -> list[str]:
    encoding = parts.data.encoding
    columns = encoding.columns if isinstance(encoding, Encoding) else ()
    return [
        f"data {parts.data.name}: the categories of column {column.column!r} are hashed into {column.buckets} features"
        for column in columns
        if isinstance(column, Hashed)
    ]


def _unknown_owners(parts: Parts) -> list[str]:
    """A line if scores per client are asked for that there are none of."""
    evaluation = parts.settings.evaluation
    if not evaluation.clients_every or parts.data.task == "classification" or owners(parts.evaluator) is not None:
        return []
    return [
        f"evaluation.clients_every = {evaluation.clients_every}: per-client scores are unavailable, since "
        f"{evaluation.splits[0]} samples have no client IDs"
    ]


def _starts_afresh(parts: Parts) -> bool:
    """Whether a session but the first starts from the run's initial model."""
    initializer, timeline = parts.initializer, parts.timeline
    after_pilot = initializer.settings.post_pilot_start == "reset" and 0 < timeline.pilot < timeline.sessions
    return after_pilot or (initializer.fresh and timeline.sessions > timeline.pilot + 1)


def advice(parts: Parts) -> list[str]:
    """What to know about settings and data: what has no effect, hashed columns, remarks of model, algorithm and links."""
    timeline, local = parts.timeline, parts.settings.local
    sizes = timeline.sizes_at(0)
    mean = float(sizes.mean())
    span = timeline.session_span(0)[1] if local.restart else timeline.rounds
    preview = RunPreview(
        lr=local.lr,
        last_lr=learning_rate(local, span - 1, span),
        steps=step_count(math.ceil(mean), mean, local),
        rounds=timeline.rounds,
        participation_fraction=parts.participation.participation_fraction(int((sizes > 0).sum())),
        smallest=float(sizes[sizes > 0].min()) / mean,
        fresh_starts=parts.settings.client_state.on_session_start == "keep" and _starts_afresh(parts),
        personalize=parts.settings.evaluation.finetune_steps,
        size=parts.layout.size,
    )
    return [
        *unused_partition(parts.settings),
        *unused_oracle(parts),
        *_hashed_columns(parts),
        *_unknown_owners(parts),
        *parts.network.remarks,
        *parts.algorithm.advice(preview),
        *(line for link in parts.links for line in link.advice(preview)),
    ]
