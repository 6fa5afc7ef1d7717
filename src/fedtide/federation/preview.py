"""What is logged before the first round: the memory that a run needs, and the algorithm's advice."""

from __future__ import annotations

import math

import torch

from fedtide.algorithms.base import RunPreview
from fedtide.engine.plan import step_count
from fedtide.federation.footprint import footprint, gigabytes
from fedtide.federation.parts import Parts
from fedtide.federation.schedules import learning_rate


def memory_plan(parts: Parts) -> str:
    """The memory that the run needs, in one line."""
    settings, timeline = parts.settings, parts.timeline
    wanted = footprint(settings, timeline, parts.data, parts.device, parts.w0.dtype)
    present = max(len(item.clients) for item in timeline.assignments)
    cohort = max(1, round(present * parts.participation.participation_fraction(present)))
    return (
        f"{parts.layout.size:,} parameters; about {cohort} of {present} clients per round; "
        f"{gigabytes(wanted.run)} for the run, {gigabytes(wanted.kept.size)} of client memories on {parts.memory}; "
        f"{parts.executor.describe()}{', channels last' if parts.task.layout == torch.channels_last else ''}"
    )


def advice(parts: Parts) -> list[str]:
    """The algorithm's advice on its settings, for the run's first session."""
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
    )
    return parts.algorithm.advice(preview)
