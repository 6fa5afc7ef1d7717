"""What a search leaves behind: the best settings, a table of the trials, figures."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fedtide.settings.tuning import Value
from fedtide.tuning.front import best_of_front, distinct, front, picture, shown
from fedtide.tuning.space import Space

_TABLES_AND_FIGURES = ("trials.csv", "history.png", "importance.png", "front.csv", "front.png")


def best(study: Any) -> Any:
    """The complete trial with the best metric, ``None`` if there is none."""
    if len(study.directions) == 2:
        return best_of_front(study)
    return study.best_trial if any(trial.state.name == "COMPLETE" for trial in study.trials) else None


def listed(values: Mapping[str, Value]) -> str:
    """Settings in a line."""
    return ", ".join(f"{key} = {shown(value)}" for key, value in values.items())


def reached(aims: Sequence[str], values: Sequence[float]) -> str:
    """What a trial reached, in a line."""
    return ", ".join(f"{aim} {value:.4f}" for aim, value in zip(aims, values, strict=True))


def summary(study: Any, aims: Sequence[str], folder: Path) -> str:
    """What a search with a complete trial found, in a few lines."""
    top, counted, complete = best(study), len(list(_counted(study))), len(_complete(study))
    lines = [f"{reached(aims, top.values)} with {listed(top.params)}"]
    lines += [f"{counted} trials, {complete} of them complete; {folder / 'best.yaml'} can be given to --params"]
    if len(aims) == 2:
        lines += [f"no other trial beats one of these in both ({folder / 'front.csv'} has all):"]
        lines += [f"  {reached(aims, trial.values)}  {listed(trial.params)}" for trial in distinct(front(study))]
    return "\n".join(lines)


def facts(study: Any, aims: Sequence[str]) -> tuple[dict[str, str], dict[str, float]]:
    """What a search with a complete trial found as words (the best trial and its settings) and as numbers."""
    top = best(study)
    words = {"best_run": str(top.user_attrs["run"]), **{f"best {key}": str(value) for key, value in top.params.items()}}
    numbers = {f"best_{aim}": value for aim, value in zip(aims, top.values, strict=True)}
    counts = {"trials": len(list(_counted(study))), "complete": len(_complete(study))}
    return words, {**numbers, **counts, **({"front": len(front(study))} if len(aims) == 2 else {})}


def write(study: Any, space: Space, aims: Sequence[str], folder: Path, log: Callable[[str], None]) -> list[Path]:
    """Write ``best.yaml`` (a settings file) and a table of the trials with its figures.

    One aim: ``trials.csv``, ``history.png`` and ``importance.png``, the share of the variance of a random forest's
    prediction that a setting explains by itself (fANOVA, Hutter et al. 2014). Two aims: ``front.csv`` and ``front.png``.

    Args:
        study: an Optuna study; without a complete trial there is only the table.
        space: of the search.
        aims: names of what it optimises, one or two.
        folder: where to write; every file is renamed into place when it is whole. Tables and figures that an earlier
            search has left here, and this one does not make, are removed.
        log: told if a figure cannot be drawn.

    Returns:
        The files.
    """
    keys = [dimension.key for dimension in space.dimensions]
    made = _one_aim(study, keys, folder, log) if len(aims) == 1 else _two_aims(study, keys, aims, folder)
    files = [folder / name for name in made]
    if (found := best(study)) is not None:
        with _renamed(folder / "best.yaml") as part:
            text = yaml.safe_dump(space.raw(found.params), sort_keys=False, allow_unicode=True)
            part.write_text(text, encoding="utf-8")
        files.append(folder / "best.yaml")
    for stale in {folder / name for name in _TABLES_AND_FIGURES} - set(files):
        stale.unlink(missing_ok=True)
    return files


def _one_aim(study: Any, keys: list[str], folder: Path, log: Callable[[str], None]) -> list[str]:
    """Write the table and figures of a search for one aim; their names."""
    rows = (
        [
            *_outcome(trial),
            trial.value if trial.state.name == "COMPLETE" else None,
            *(trial.params[key] for key in keys),
        ]
        for trial in _counted(study)
    )
    _write_table(["run", "outcome", "value", *keys], rows, folder / "trials.csv")
    if not (complete := _complete(study)):
        return ["trials.csv"]
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization import matplotlib as figures

    _draw(lambda: figures.plot_optimization_history(study), folder / "history.png")
    if len({trial.value for trial in complete}) == 1:
        log("no importance.png: it needs complete trials of different values")
        return ["trials.csv", "history.png"]
    evaluator = FanovaImportanceEvaluator(seed=0)
    _draw(lambda: figures.plot_param_importances(study, evaluator=evaluator), folder / "importance.png")
    return ["trials.csv", "history.png", "importance.png"]


def _two_aims(study: Any, keys: list[str], aims: Sequence[str], folder: Path) -> list[str]:
    """Write the table and the figure of a search for two aims; their names."""
    on_it = {trial.number for trial in front(study)}
    rows = (
        [*_outcome(trial), *(trial.values or (None, None)), str(trial.number in on_it).lower(),
         *(trial.params[key] for key in keys)]
        for trial in _counted(study)
    )  # fmt: skip
    _write_table(["run", "outcome", *aims, "front", *keys], rows, folder / "front.csv")
    if not on_it:
        return ["front.csv"]
    with _renamed(folder / "front.png") as part:
        part.write_bytes(picture(study, keys, aims[0]))
    return ["front.csv", "front.png"]


def _counted(study: Any) -> Iterator[Any]:
    """Trials that have ended."""
    return (trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED"))


def _complete(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def _outcome(trial: Any) -> tuple[str, str]:
    return trial.user_attrs["run"], trial.user_attrs["outcome"]


def _write_table(head: list[str], rows: Iterable[list[Any]], path: Path) -> None:
    with _renamed(path) as part, part.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([head, *rows])


def _draw(plot: Callable[[], Any], path: Path) -> None:
    """Save one of Optuna's figures, without leaving its style behind."""
    from matplotlib import pyplot

    with warnings.catch_warnings(), pyplot.rc_context(), _renamed(path) as part:
        warnings.simplefilter("ignore")  # that they are experimental
        figure = plot().figure
        figure.savefig(part, format="png", bbox_inches="tight")
        pyplot.close(figure)


@contextmanager
def _renamed(path: Path) -> Iterator[Path]:
    """A temporary name, renamed to ``path`` at the end."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    yield part
    part.replace(path)
