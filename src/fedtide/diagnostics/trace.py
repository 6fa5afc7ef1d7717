"""Run softmax regression and measure the quantities of the convergence analysis, session by session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedtide.core.array_types import Ints
from fedtide.core.errors import SettingsError
from fedtide.diagnostics.bound import Constants, Spread, Work, drift, largest_rate, terms
from fedtide.diagnostics.softmax import SoftmaxProblem
from fedtide.engine.flat import Layout
from fedtide.engine.plan import step_count
from fedtide.federation.assembly.choose import choose
from fedtide.federation.federation import Federation
from fedtide.federation.parts import assemble
from fedtide.federation.state import initial_state
from fedtide.federation.types import Hardware
from fedtide.settings.run import LocalSettings, RunSettings
from fedtide.world.concepts import under
from fedtide.world.dataset import Dataset
from fedtide.world.timeline import Timeline


@dataclass(frozen=True)
class Options:
    """Reading of the bound, see :mod:`fedtide.diagnostics.bound`; ``pairs`` are drawn per client for Theta."""

    theta_power: Literal[1, 2] = 2
    spread: Spread = "scatter"
    pairs: int = 1000


@dataclass(frozen=True)
class SessionDiagnosis:
    """Diagnosis of one session.

    Attributes:
        session: from 1. rounds: T.
        F_init, F_previous, F_average, F_first, F_end: training loss, on the data of this session, of its initial model, of
            the previous session's final model, of the mean of the final models since the pilot (NaN before there is one), of
            the run's initial model, and of the session's final model.
        gradient: mean of |grad F(w_t)|^2 over the rounds, the bounded quantity.
        beta, theta, sigma, zeta2: constants; theta is a lower bound, sigma the root of the largest sigma_k^2, zeta2 the
            largest over the rounds.
        drift: Lambda of the first round. rate, largest_rate: eta of the first round, and the condition on it.
        a, b, b_tight, c, d, bound: terms, mean over the rounds.
    """

    session: int
    rounds: int
    F_init: float
    F_previous: float
    F_average: float
    F_first: float
    F_end: float
    gradient: float
    beta: float
    theta: float
    sigma: float
    zeta2: float
    drift: float
    rate: float
    largest_rate: float
    a: float
    b: float
    b_tight: float
    c: float
    d: float
    bound: float

    def values(self) -> dict[str, Any]:
        return dict(vars(self))


def remarks(settings: RunSettings) -> list[str]:
    """Assumptions of the analysis that a run violates."""
    local, weighting = settings.local, settings.algorithm.weighting.name
    unmet = [
        (settings.algorithm.name != "fedavg", f"algorithm {settings.algorithm.name}: the analysis is for fedavg"),
        (weighting != "samples", f"algorithm.weighting {weighting}: F weights clients by samples"),
        (settings.exchange.name != "end", f"exchange {settings.exchange.name}: the analysis averages once a round"),
        (local.momentum > 0, f"local.momentum = {local.momentum:g}: the analysis has none"),
        (local.optimiser.name != "sgd", f"local.optimiser {local.optimiser.name}: the analysis is for sgd"),
        (local.weight_decay > 0, "local.weight_decay: not part of F"),
        (bool(local.clip), "local.clip: the constants are for unclipped gradients"),
        (local.flip > 0 or local.crop > 0, "local.flip, local.crop: F is over unaugmented samples"),
        (settings.participation.name != "all", "participation: the analysis assumes full participation"),
    ]
    return [text for problem, text in unmet if problem]


def diagnose(
    settings: RunSettings, data: Dataset, timeline: Timeline, options: Options, log: Callable[[str], None]
) -> list[SessionDiagnosis]:
    """Execute the run in float64, without recording it, and measure every session; ``log`` gets a line for each.

    Raises:
        SettingsError: not softmax regression, or clients or their data change inside a session. Diverged: training diverged.
    """
    if settings.model.name != "logistic" or settings.objective.name != "cross_entropy":
        raise SettingsError(
            f"model {settings.model.name} with objective {settings.objective.name}: the constants are known "
            "only for model logistic with objective cross_entropy"
        )
    changes = np.flatnonzero(np.diff(timeline.assignment_of_round)) + 1
    if len(inside := np.setdiff1d(changes, timeline.session_starts)):
        raise SettingsError(
            f"scenario {settings.scenario.name}: in round {inside[0] + 1} clients or their data change inside a session; the "
            "analysis assumes that they do not"
        )
    data = under(data, timeline.concepts)
    parts = assemble(choose(settings, timeline, data), timeline, data, Hardware(dtype=torch.float64))
    fed, state = Federation(parts), initial_state(parts)
    found: list[SessionDiagnosis] = []
    stored: list[Tensor] = []
    first = _matrix(parts.layout, state.w)
    pilot = timeline.pilot
    try:
        while state.round < timeline.rounds:
            shards = [shard for shard in timeline.shards_at(state.round) if len(shard) > 0]
            problem = _problem(parts.data, shards)
            work = _work(settings.local, shards, float(timeline.sizes_at(state.round).mean()))
            _, rounds = timeline.session_span(state.round)
            previous = _matrix(parts.layout, state.w)
            path: list[Tensor] = []
            rates: list[float] = []
            for _ in range(rounds):
                record = fed.run_round(state)
                rates.append(_rate(record.row["lr"]))
                path += [_matrix(parts.layout, w) for w in (record.initial, state.w) if w is not None]
            average = torch.stack(stored).mean(0) if stored else None
            number = len(found) + 1
            row = _measure(number, problem, work, path, rates, (previous, average, first), settings.seed, options)
            found.append(row)
            stored += [path[-1]] if number > pilot else []
            log(f"session {number}: F {row.F_init:.4f} -> {row.F_end:.4f}")
    finally:
        parts.workers.close()
    return found


def _measure(
    number: int,
    problem: SoftmaxProblem,
    work: Work,
    path: list[Tensor],
    rates: list[float],
    others: tuple[Tensor, Tensor | None, Tensor],
    seed: int,
    options: Options,
) -> SessionDiagnosis:
    losses = [problem.loss(m) for m in path]
    gradients = [problem.gradients(m) for m in path[:-1]]
    beta, scatter = problem.smoothness(), problem.scatter().numpy()
    theta = max(problem.lipschitz(m, options.pairs, seed) for m in (path[0], path[-1]))
    zeta2 = max(problem.dissimilarity(g) for g in gradients)
    constants = Constants(beta, theta, zeta2, scatter)
    reading = (options.theta_power, options.spread)
    rounds = [terms(work, constants, lr, losses[t], losses[t + 1], *reading) for t, lr in enumerate(rates)]
    sigma = scatter if options.spread == "scatter" else scatter / np.maximum(work.samples - 1, 1)
    previous, average, first = (problem.loss(m) if m is not None else float("nan") for m in others)
    steps = work.steps
    return SessionDiagnosis(
        session=number,
        rounds=len(rates),
        F_init=losses[0],
        F_previous=previous,
        F_average=average,
        F_first=first,
        F_end=losses[-1],
        gradient=float(np.mean([float(problem.gradient(g).square().sum()) for g in gradients])),
        beta=beta,
        theta=theta,
        sigma=float(np.sqrt(sigma.max())),
        zeta2=zeta2,
        drift=drift(beta, rates[0], float(steps.max())),
        rate=rates[0],
        largest_rate=min(largest_rate(beta, float(e)) for e in (steps.min(), steps.max())),
        **{name: float(np.mean([getattr(part, name) for part in rounds])) for name in ("a", "b", "b_tight", "c", "d")},
        bound=float(np.mean([part.total for part in rounds])),
    )


def _problem(data: Dataset, shards: list[Ints]) -> SoftmaxProblem:
    """The problem of clients that hold these shards, with samples as the model sees them."""
    samples = [data.read("train", torch.from_numpy(shard)) for shard in shards]
    inputs = [data.prepare(part, torch.float64).flatten(1) for part, _ in samples]
    return SoftmaxProblem(inputs, [labels for _, labels in samples], data.num_classes)


def _work(local: LocalSettings, shards: list[Ints], mean: float) -> Work:
    sizes = [len(shard) for shard in shards]
    samples = np.array(sizes, dtype=np.float64)
    steps = np.array([step_count(size, mean, local) for size in sizes], dtype=np.float64)
    return Work(samples, np.minimum(samples, local.step_samples), steps)


def _matrix(layout: Layout, w: Tensor) -> Tensor:
    """The matrix [L, f + 1] of a flat model."""
    named = layout.named(w)
    return torch.cat([named["head.weight"], named["head.bias"].unsqueeze(1)], 1).to(torch.float64).clone()


def _rate(value: float | None) -> float:
    if value is None:
        raise TypeError("a round records its learning rate")
    return float(value)
