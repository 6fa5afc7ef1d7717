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
    :func:`fedtide.records.measures.detections.summary`. With requests to erase clients, ``erase_*`` and ``erased_*``, see
    :func:`fedtide.records.measures.erasure.summary`.

    Of a complete run whose algorithm serves its clients other models than the global one, ``served`` says what it has of these:
    they are ``kept`` in ``served.pt``, ``discarded`` with ``keep: global``, or ``unowned``, as no client owns the data's
    samples. ``trains_global`` is false where the algorithm trains no global model, and absent otherwise. ``stopped``: the rule
    of ``stop`` that ended a complete run before its last round; absent otherwise.
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
    served: Literal["kept", "discarded", "unowned"]
    trains_global: bool
    stopped: str


class Headline(NamedTuple):
    """The number of a run: its name in the summary, what it is in words, its score and value."""

    name: str
    words: str
    score: Score
    value: float

    @property
    def beside(self) -> str:
        """The same of the global model in the summary, where it is that of what clients are served."""
        return self.score.of_global.mean_next if self.score.ahead else f"final_{self.score.of_global.name}"

    @property
    def text(self) -> str:
        """Words and value."""
        return f"{self.words} {self.score.shown(self.value).strip()}"


def predicts(summary: Summary) -> bool:
    """Whether a complete run has kept a trained model: its global one, or those of its clients."""
    return summary.get("trains_global", True) or summary.get("served") == "kept"


def headline(summary: Summary, chosen: Score | None = None) -> Headline | None:
    """The mean over the periods of a score on the next period, else the final value; None if nothing was evaluated.

    The score is the main one of the task, or a ``chosen`` one that is measured on the next period; of the models that clients
    are served, where the samples have owners, else of the global model.
    """
    main = main_score(summary.get("task", "classification"))
    first = [chosen] if chosen is not None and chosen.ahead else []
    for score in (*first, main.next.of_served, main.next, main.of_served, main):
        name, words = (score.mean_next, "mean") if score.ahead else (f"final_{score.name}", "final")
        if (value := number_in(summary, name)) is not None:
            return Headline(name, f"{words} {score.words}", score, value)
    return None


def number_in(summary: Summary, name: str) -> float | None:
    """An entry of a summary by its name, such as ``mean_next_served_accuracy``."""
    return cast("dict[str, float | None]", summary).get(name)


def of_global(summary: Summary, first: Headline | None) -> Headline | None:
    """The same number of the global model beside a headline of what clients are served; None if it has none."""
    if first is None or not first.score.served:
        return None
    value = number_in(summary, first.beside)
    return None if value is None else Headline(first.beside, "global model", first.score.of_global, value)


def score_in(summary: Summary, which: Literal["final", "best", "mean_last10"]) -> float | None:
    """``<which>_<main score>`` of a summary, such as ``final_accuracy``; None if nothing was evaluated."""
    main = main_score(summary.get("task", "classification"))
    return number_in(summary, f"{which}_{main.name}")
