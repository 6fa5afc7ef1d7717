"""The summary of a run: what it is and how it has ended, the entries of ``summary.json`` and ``manifest.json``."""

from __future__ import annotations

from typing import Literal, TypedDict, cast

from fedtide.settings.scores import TaskName, main_score

State = Literal["complete", "diverged", "pruned", "interrupted", "failed", "follower"]
"""``failed``: an exception, or its process died. ``follower``: one of a run's further processes, which record nothing."""


class Summary(TypedDict, total=False):
    """What a run is and how it has ended; of a run that failed only its name, state and message, of a follower its state.

    ``message``: why it failed or diverged. ``signal``: that interrupted it. ``task``: only if it is no classification.
    ``data`` and ``timeline`` are hashes. ``rounds``: done; in a manifest: planned. ``seconds`` of computation. ``kappa``: mean
    of the rounds. ``latency`` [s] and ``energy`` [J] are simulated. The main score has three entries, see :func:`score_in`.
    """

    run_key: str
    label: str
    initialiser: str
    seed: int
    state: State
    message: str
    signal: int
    task: TaskName
    algorithm: str
    scenario: str
    dataset: str
    data: str
    timeline: str
    rounds: int
    bytes_up: int
    bytes_down: int
    gradient_rounds: int
    seconds: float
    kappa: float
    latency: float
    energy: float


def score_in(summary: Summary, which: Literal["final", "best", "mean_last10"]) -> float | None:
    """``<which>_<main score>`` of a summary, such as ``final_accuracy``; None if nothing was evaluated."""
    main = main_score(summary.get("task", "classification"))
    return cast("float | None", summary.get(f"{which}_{main.name}"))
