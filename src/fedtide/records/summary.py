"""The summary of a run: what it is and how it has ended, the entries of ``summary.json`` and ``manifest.json``."""

from typing import Literal, NamedTuple, TypedDict, cast

from fedtide.settings.scores import Score, TaskName, main_score

State = Literal["complete", "diverged", "pruned", "interrupted", "failed", "follower"]
"""``failed``: an exception, or its process died. ``follower``: one of a run's further processes, which record nothing."""


class Summary(TypedDict, total=False):
    """What a run is and how it has ended; of a run that failed only its name, state and message, of a follower its state.

    ``message``: why it failed or diverged. ``signal``: that interrupted it. ``task``: only if it is no classification.
    ``data`` and ``timeline`` are hashes. ``rounds``: done; in a manifest: planned. ``seconds`` of computation. ``kappa``: mean
    of the rounds. ``latency`` [s] and ``energy`` [J] are simulated. The main score has three entries, see :func:`score_in`.
    Where periods are evaluated ahead, ``mean_next_<score>`` is the mean over the periods, see :func:`headline`, and there
    is no best value, which would compare different test samples. With drift, ``drifts`` and ``drift_*`` are the number of
    events and means over them, of a complete run, see :func:`fedtide.records.measures.drifts.summary`; with a detector, so are
    ``drift_detected``, ``drift_delay`` and ``drift_false_alarms``. ``alarms``: of a detector, with or without drift, see
    :func:`fedtide.records.measures.detections.summary`.
    """

    run_key: str
    label: str
    initializer: str
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


class Headline(NamedTuple):
    """The number of a run: its name in the summary, what it is in words, its score and value."""

    name: str
    words: str
    score: Score
    value: float

    @property
    def text(self) -> str:
        """Words and value."""
        return f"{self.words} {self.score.shown(self.value).strip()}"


def headline(summary: Summary, chosen: Score | None = None) -> Headline | None:
    """The mean over the periods of a score on the next period, else the final value; None if nothing was evaluated.

    The score is the main one of the task, or a ``chosen`` one that is measured on the next period; of the models that clients
    are served, where the samples have owners, else of the global model.
    """
    main = main_score(summary.get("task", "classification"))
    values = cast("dict[str, float | None]", summary)
    first = [chosen] if chosen is not None and chosen.ahead else []
    for score in (*first, main.next.of_served, main.next, main.of_served, main):
        name, words = (score.mean_next, "mean") if score.ahead else (f"final_{score.name}", "final")
        if (value := values.get(name)) is not None:
            return Headline(name, f"{words} {score.words}", score, value)
    return None


def score_in(summary: Summary, which: Literal["final", "best", "mean_last10"]) -> float | None:
    """``<which>_<main score>`` of a summary, such as ``final_accuracy``; None if nothing was evaluated."""
    main = main_score(summary.get("task", "classification"))
    return cast("float | None", summary.get(f"{which}_{main.name}"))
