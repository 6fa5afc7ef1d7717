"""What a search found, in MLflow: at the run that gathers its trials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fedtide.compare import Place
from fedtide.tracking.store import Store, reason


def record(
    place: Place,
    words: Mapping[str, str],
    numbers: Mapping[str, float],
    files: Iterable[Path],
    say: Callable[[str], None],
) -> None:
    """Log words as tags, numbers as metrics (their step is the number of trials) and files as artifacts.

    The search never suffers: trouble is said once.

    Args:
        place: with a folder for MLflow; its comparison is the search.
        words, numbers: by key; ``trials`` is among the numbers. What an earlier, shorter search has logged is replaced.
        files: tables, figures, settings.
        say: gets the remark.
    """
    try:
        from mlflow.entities import Metric, RunTag

        assert place.mlruns is not None
        store = Store(place.mlruns, place.experiment)
        run, now, step = store.parent(place.comparison), int(time.time() * 1000), int(numbers["trials"])
        metrics = [Metric(key, float(value), now, step) for key, value in numbers.items()]
        store.client.log_batch(run, metrics=metrics, tags=[RunTag(key, value) for key, value in words.items()])
        for path in files:
            store.client.log_artifact(run, str(path))
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        say(f"MLflow: {reason(error)}; the files of the search are complete")
