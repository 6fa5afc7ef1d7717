"""The Pareto front of a search with two objectives, a good metric and a low cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedtide.settings.groups.tuning import Value
from fedtide.settings.scores import score_of


def pareto_front(study: Any) -> list[Any]:
    """Complete, non-dominated trials of a study with two objectives, by ascending cost and improving metric."""
    return sorted(study.best_trials, key=lambda trial: (trial.values[1], -_quality(study, trial)))


def distinct(trials: Sequence[Any]) -> list[Any]:
    """The first of trials with equal values, in the given order: some settings have no effect beside others."""
    return list({tuple(trial.values): trial for trial in reversed(trials)}.values())[::-1]


def best_of_front(study: Any) -> Any:
    """The first trial with the best metric on the front; ``None`` without a complete trial."""
    return max(pareto_front(study), key=lambda trial: _quality(study, trial), default=None)


def _quality(study: Any, trial: Any) -> float:
    """The metric, negated if it is minimized."""
    value = float(trial.values[0])
    return value if study.directions[0].name == "MAXIMIZE" else -value


def picture(study: Any, keys: Sequence[str], metric: str) -> bytes:
    """A PNG: all complete trials as dots over their cost; those on the front joined and labeled with settings ``keys``."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    from fedtide.report.charts.style import GRAY, PALETTE, WIDTH, paper, percent, percent_limits, png

    best, score = pareto_front(study), score_of(metric)
    values, costs = zip(*(trial.values for trial in study.trials if trial.state.name == "COMPLETE"), strict=True)
    with paper():
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(costs, values, "o", color=GRAY, alpha=0.6, markersize=4, markeredgewidth=0)
        best_values, best_costs = zip(*(trial.values for trial in best), strict=True)
        axes.step(best_costs, best_values, "o-", where="post", color=PALETTE[0], linewidth=1.0, markersize=5)
        offset = (-4, -9 if score.lower else 3)  # into the empty region beyond the front
        for trial in distinct(best):
            name = ", ".join(format_value(trial.params[key], 2) for key in keys)
            axes.annotate(name, trial.values[::-1], offset, textcoords="offset points", ha="right", fontsize=7.5)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.margins(x=0.1)  # room for the leftmost label
        axes.grid(visible=True, axis="both")
        if score.share:
            axes.set_ylim(*percent_limits(min(values), max(values)))
            percent(axes.yaxis)
        axes.set_xlabel("Communication cost per round (kappa; 1 is an exchange after every local step)")
        axes.set_ylabel(f"Validation {score.words}")
        return png(figure)


def format_value(value: Value, digits: int = 4) -> str:
    """A setting's value for people."""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
