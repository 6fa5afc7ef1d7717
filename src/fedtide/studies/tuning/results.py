"""Results of a search: the best settings, a table of the trials, figures."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedtide.core.storage.files import replacing, write_text
from fedtide.settings.groups.tuning import Value
from fedtide.settings.scores import score_of
from fedtide.studies.tuning.space import Space

_FILES = ("best.yaml", "trials.csv", "history.png", "importance.png", "front.csv", "front.png")


def pareto_front(study: Any) -> list[Any]:
    """Complete, non-dominated trials of a study with two objectives, by ascending cost and improving metric."""
    return sorted(study.best_trials, key=lambda trial: (trial.values[1], -_quality(study, trial)))


def _quality(study: Any, trial: Any) -> float:
    """The metric, negated if it is minimized."""
    value = float(trial.values[0])
    return value if study.directions[0].name == "MAXIMIZE" else -value


def best(study: Any) -> Any:
    """The complete trial with the best metric, the first of equal ones on the front; ``None`` if there is none."""
    if len(study.directions) == 2:
        return max(pareto_front(study), key=lambda trial: _quality(study, trial), default=None)
    return study.best_trial if _complete(study) else None


def why_none(study: Any, metric: str) -> str:
    """Why none of the ended trials is complete, and what to change."""
    ended = list(_ended(study))
    if any(trial.user_attrs["outcome"] == "undetermined" for trial in ended):
        if score_of(metric).of_erased:
            return (
                f"tune.metric = {metric}: it is undefined in all {len(ended)} trials: no round of `tune.over` "
                "follows the request, or the clients leave too little to divide by; use tune.over: end, or erased_excess"
            )
        return (
            f"tune.metric = {metric}: it is undefined on the validation samples in all {len(ended)} trials; raise "
            "`validation`, or choose another metric"
        )
    return f"tune.space: none of {len(ended)} trials is complete, all diverged; lower the ranges"


def settings_line(values: Mapping[str, Value]) -> str:
    """Settings in one line."""
    texts = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in values.items()}
    return ", ".join(f"{key} = {text}" for key, text in texts.items())


def values_line(objectives: Sequence[str], values: Sequence[float]) -> str:
    """A trial's values in one line."""
    return ", ".join(f"{name} {value:.4f}" for name, value in zip(objectives, values, strict=True))


def summary(study: Any, objectives: Sequence[str], folder: Path) -> str:
    """The outcome of a search with a complete trial, in a few lines."""
    top, ended, complete = best(study), len(list(_ended(study))), len(_complete(study))
    lines = [f"{values_line(objectives, top.values)} with {settings_line(top.params)}"]
    lines += [f"{ended} trials, {complete} of them complete; {folder / 'best.yaml'} can be passed to --params"]
    if len(objectives) == 2:
        lines += [f"Pareto front (all trials are in {folder / 'front.csv'}):"]
        # Some settings have no effect beside others: the first of trials with equal values.
        front = {tuple(trial.values): trial for trial in reversed(pareto_front(study))}
        lines += [
            f"  {values_line(objectives, trial.values)}  {settings_line(trial.params)}"
            for trial in [*front.values()][::-1]
        ]
    return "\n".join(lines)


def facts(study: Any, objectives: Sequence[str]) -> tuple[dict[str, str], dict[str, float]]:
    """The outcome of a search with a complete trial: words (the best trial and its settings) and numbers."""
    top = best(study)
    words = {"best_run": str(top.user_attrs["run"]), **{f"best {key}": str(value) for key, value in top.params.items()}}
    numbers = {f"best_{name}": value for name, value in zip(objectives, top.values, strict=True)}
    counts = {"trials": len(list(_ended(study))), "complete": len(_complete(study))}
    return words, {**numbers, **counts, **({"front": len(pareto_front(study))} if len(objectives) == 2 else {})}


def write(study: Any, space: Space, objectives: Sequence[str], folder: Path, log: Callable[[str], None]) -> list[Path]:
    """Write ``best.yaml`` (a settings file) and a table of the trials with its figures.

    One objective: ``trials.csv``, ``history.png`` and ``importance.png``, the share of the variance of a random forest's
    prediction that a setting explains alone (fANOVA, Hutter et al. 2014). Two objectives: ``front.csv`` and ``front.png``.

    Without a complete trial only the table is written. Files of an earlier search that this one does not write are removed;
    ``log`` gets a line if a figure cannot be drawn.

    Returns:
        The files.
    """
    table = _table(study, [dimension.key for dimension in space.dimensions], objectives)
    name = "trials.csv" if len(objectives) == 1 else "front.csv"
    write_text(folder / name, table.to_csv(index=False, lineterminator="\n"))
    names = [name, *_figures(study, objectives, folder, log)]
    files = [folder / name for name in names]
    if (found := best(study)) is not None:
        write_text(folder / "best.yaml", yaml.safe_dump(space.raw(found.params), sort_keys=False, allow_unicode=True))
        files.append(folder / "best.yaml")
    for stale in {folder / name for name in _FILES} - set(files):
        stale.unlink(missing_ok=True)
    return files


def _table(study: Any, keys: list[str], objectives: Sequence[str]) -> pd.DataFrame:
    """A row per ended trial: its run, outcome, values by seed or whether it is on the front, and settings."""
    single, complete = len(objectives) == 1, _complete(study)
    seeds = list(complete[0].user_attrs.get("seeds", ())) if complete else []
    values, more = (["value"], [f"seed {seed}" for seed in seeds]) if single else (list(objectives), ["front"])
    front = () if single else {trial.number for trial in pareto_front(study)}
    rows = []
    for trial in _ended(study):
        known = trial.values if trial.state.name == "COMPLETE" else [None] * len(values)
        own = [trial.user_attrs.get("seeds", {}).get(seed) for seed in seeds]
        rest = own if single else [str(trial.number in front).lower()]
        facts = (trial.user_attrs["run"], trial.user_attrs["outcome"])
        rows.append([*facts, *known, *rest, *(trial.params[key] for key in keys)])
    return pd.DataFrame(rows, columns=["run", "outcome", *values, *more, *keys], dtype=object)


def _figures(study: Any, objectives: Sequence[str], folder: Path, log: Callable[[str], None]) -> list[str]:
    """Names of the figures that were drawn; none without a complete trial."""
    complete = _complete(study)
    if not complete:
        return []
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization import matplotlib as figures

    def plot() -> Any:
        names = list(objectives[::-1])
        axes = figures.plot_pareto_front(study, targets=lambda trial: trial.values[::-1], target_names=names)
        axes.set_xscale("log")
        return axes

    if len(objectives) == 2:
        _draw(plot, folder / "front.png")
        return ["front.png"]
    _draw(lambda: figures.plot_optimization_history(study), folder / "history.png")
    if len({trial.value for trial in complete}) == 1:
        log("no importance.png: it requires complete trials with different values")
        return ["history.png"]
    evaluator = FanovaImportanceEvaluator(seed=0)
    _draw(lambda: figures.plot_param_importances(study, evaluator=evaluator), folder / "importance.png")
    return ["history.png", "importance.png"]


def _ended(study: Any) -> Iterator[Any]:
    return (trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED"))


def _complete(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def _draw(plot: Callable[[], Any], path: Path) -> None:
    """Save one of Optuna's figures, without keeping its style."""
    from matplotlib import pyplot

    with warnings.catch_warnings(), pyplot.rc_context(), replacing(path) as part:
        warnings.simplefilter("ignore")  # the figures are experimental
        figure = plot().figure
        figure.savefig(part, format="png", bbox_inches="tight")
        pyplot.close(figure)
