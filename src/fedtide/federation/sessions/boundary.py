"""Session boundaries: the initializer's model, memories for the new population, and a record of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedtide.federation.rounds.plan import RoundPlan
from fedtide.federation.scoring.evaluator import Evaluator
from fedtide.federation.sessions.gradient_rounds import GradientRounds
from fedtide.federation.state import clear, forget_all, keep_means
from fedtide.federation.types import Parts, RunState
from fedtide.methods.initializers.base import Boundary, Start, average
from fedtide.settings.scores import main_score


def begin_session(parts: Parts, state: RunState, t: int) -> dict[str, Any] | None:
    """Start a session with round ``t``: take the initializer's model, reset memories or adapt them to the population.

    Returns the :func:`session_record`; ``None`` for the first session.
    """
    boundary = boundary_at(parts, state, t)
    w, b = parts.initializer.start(boundary)
    state.w, state.b = w.clone(), b.clone()
    if t == 0:
        return None
    if parts.settings.client_state.on_session_start == "keep":
        keep_means(parts.algorithm, state, parts.timeline, parts.timeline.at(t))
    else:
        forget_all(parts, state)
    if not parts.hardware.leads:
        return None
    return session_record(parts.evaluator, boundary, parts.settings.initializer.name, (state.w, state.b), t)


def boundary_at(parts: Parts, state: RunState, t: int) -> Boundary:
    """The boundary before or after round ``t``, as an initializer sees it."""
    timeline = parts.timeline
    first, _ = timeline.session_span(t)
    earlier = timeline.label_views[np.unique(timeline.view_of_round[:first])]
    session, kinds = int(timeline.session_of_round[t]), timeline.kinds
    return Boundary(
        session=session,
        pilot=timeline.pilot,
        w=state.w,
        b=state.b,
        w0=parts.w0,
        b0=parts.b0,
        devices=timeline.at(t).clients.tolist(),
        store=state.initializer,
        lr=parts.settings.local.lr,
        old_labels=torch.from_numpy(earlier.any(0)).to(parts.hardware.device),
        services=GradientRounds(parts, state, t),
        kind=kinds.index(kinds[session]) if kinds else None,
    )


def change_population(parts: Parts, state: RunState, plan: RoundPlan) -> None:
    """Within a session: clients that have left before a round are forgotten, and declared means follow who is present.

    With ``client_state.on_leave: keep`` clients keep their own models until they return.

    A device that leaves takes its memories along, so a mean that kept its part would pull the model toward data that is gone,
    and count it twice when the device returns as a new client; one that arrives counts with its zero. What
    ``client_state.on_session_start`` says of a session's start does not matter here.
    """
    if plan.departed is None:
        return
    departed = torch.from_numpy(plan.departed)
    for feature in parts.features if plan.starts is None else ():  # else they were told when they left, and may be back
        feature.forget(parts, state, departed, left=True)
    if not ("personal" in parts.algorithm.models and parts.settings.client_state.on_leave == "keep"):
        clear(parts, state, departed[state.written[departed] > 0])
        state.seen[departed] = False
        parts.algorithm.forget(state.extra, departed)
    keep_means(parts.algorithm, state, parts.timeline, plan.present)


def session_record(evaluator: Evaluator, s: Boundary, initializer: str, start: Start, t: int) -> dict[str, Any]:
    """Facts about the session that begins with round ``t``, JSON-able.

    ``session`` (from 1); ``returning``: see :meth:`Timeline.returning`; ``initializer``
    (``pilot`` in pilot sessions); the initializer's own facts (``weights`` and ``distances`` by stored session);
    ``<split>_accuracy`` of the initial model on the session's labels (or another task's main score); and ``losses``: mean
    cross-entropy (or another task's loss) over all training samples of the clients present, of the session's initial model
    (``start``), the previous session's final model (``previous``), the mean over all sessions after the pilot (``average``,
    null if there is none yet) and the run's initial model (``first``).
    """
    settings, timeline = evaluator.settings, evaluator.timeline
    facts = {
        "session": s.session + 1,
        "returning": timeline.returning(s.session),
        "initializer": "pilot" if s.session < s.pilot else initializer,
        **s.facts,
    }
    main = main_score(evaluator.data.task).name
    for split in settings.splits:
        where = timeline.evaluated_at(t), timeline.mixture_at(t)
        scores = evaluator.scores(start, split, None, *where)
        facts[f"{split}_{main}"] = scores.row(timeline.labels_at(t))[main]
    if settings.session_start_losses:
        models = {"start": start, "previous": (s.w, s.b), "average": average(s), "first": (s.w0, s.b0)}
        samples = evaluator.training_samples(timeline.shards_at(t))  # once for every client that holds it
        facts["losses"] = {
            name: model and evaluator.scores_on(model, *samples).mean_loss() for name, model in models.items()
        }
    return facts
