"""A search with two aims, a good metric and a low cost: the trials that no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedtide.report import front as pareto
from fedtide.settings.tuning import Value


def front(study: Any) -> list[Any]:
    """Complete trials of a study with two aims that no other one beats in both, by ascending cost and rising metric."""
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    costs, goods = [trial.values[1] for trial in complete], [_good(study, trial) for trial in complete]
    return [complete[place] for place in pareto.front(costs, goods)]


def distinct(kept: Sequence[Any]) -> list[Any]:
    """Of trials that reached the same the first, in the order given: not all settings matter beside others."""
    return list({tuple(trial.values): trial for trial in reversed(kept)}.values())[::-1]


def best_of_front(study: Any) -> Any:
    """The trial with the best metric on the front: of several, the first; ``None`` without a complete trial."""
    return max(front(study), key=lambda trial: _good(study, trial), default=None)


def _good(study: Any, trial: Any) -> float:
    """The metric, or its negative where it is to be small."""
    value = float(trial.values[0])
    return value if study.directions[0].name == "MAXIMIZE" else -value


def picture(study: Any, keys: Sequence[str], metric: str) -> bytes:
    """A PNG: all complete trials as dots over their cost, those on the front joined and named by their settings ``keys``."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    from fedtide.report.style import GREY, PALETTE, WIDTH, paper, percent_axis, png

    kept = front(study)
    values, costs = zip(*(trial.values for trial in study.trials if trial.state.name == "COMPLETE"), strict=True)
    with paper():
        figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.plot(costs, values, "o", color=GREY, alpha=0.6, markersize=4, markeredgewidth=0)
        goods, prices = zip(*(trial.values for trial in kept), strict=True)
        axes.step(prices, goods, "o-", where="post", color=PALETTE[0], linewidth=1.0, markersize=5)
        free = (-4, 3 if metric.endswith("_accuracy") else -9)  # what is cheaper and better than the front is empty
        for trial in distinct(kept):
            name = ", ".join(shown(trial.params[key], 2) for key in keys)
            axes.annotate(name, trial.values[::-1], free, textcoords="offset points", ha="right", fontsize=7.5)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.margins(x=0.1)  # room for the leftmost name
        axes.grid(visible=True, axis="both")
        if metric.endswith("_accuracy"):
            percent_axis(axes, min(values), max(values))
        axes.set_xlabel("Communication cost per round (kappa; 1 is an exchange after every local step)")
        axes.set_ylabel(metric.replace("_", " ").capitalize())
        return png(figure)


def shown(value: Value, digits: int = 4) -> str:
    """A setting's value for people."""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
