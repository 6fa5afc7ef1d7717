"""What a search leaves behind: the best settings, a table of the trials, two figures."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from fedtide.tuning.space import Space


def write(study: Any, space: Space, folder: Path, say: Callable[[str], None]) -> None:
    """Write ``best.yaml`` (a settings file), ``trials.csv``, ``history.png`` and ``importance.png``.

    Importance is the share of the variance of a random forest's prediction that a setting explains by itself (fANOVA,
    Hutter et al. 2014).

    Args:
        study: an Optuna study; without a complete trial there is only the table.
        space: of the search.
        folder: where to write; every file is renamed into place when it is whole.
        say: told if a figure cannot be drawn.
    """
    _write_table(study, folder / "trials.csv")
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    if not complete:
        return
    with _renamed(folder / "best.yaml") as part:
        text = yaml.safe_dump(space.raw(study.best_params), sort_keys=False, allow_unicode=True)
        part.write_text(text, encoding="utf-8")
    from optuna.importance import FanovaImportanceEvaluator
    from optuna.visualization import matplotlib as figures

    _draw(lambda: figures.plot_optimization_history(study), folder / "history.png")
    importance = folder / "importance.png"
    if len({trial.value for trial in complete}) > 1:
        _draw(lambda: figures.plot_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0)), importance)
    else:
        importance.unlink(missing_ok=True)
        say(f"no {importance.name}: it needs complete trials of different values")


def _write_table(study: Any, path: Path) -> None:
    """One row per trial that counts: its run directory, outcome, value and settings."""
    counted = [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]
    keys = sorted({key for trial in counted for key in trial.params})
    with _renamed(path) as part, part.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["run", "outcome", "value", *keys])
        for trial in counted:
            value = trial.value if trial.state.name == "COMPLETE" else None
            settings = [trial.params.get(key) for key in keys]
            writer.writerow([trial.user_attrs["run"], trial.user_attrs["outcome"], value, *settings])


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
