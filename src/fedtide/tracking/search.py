"""The results of a search in MLflow, logged to the parent run of its trials."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fedtide.tracking.store import Store, reason
from fedtide.tracking.workspace import Workspace


def record(
    workspace: Workspace,
    words: Mapping[str, str],
    numbers: Mapping[str, float],
    files: Iterable[Path],
    log: Callable[[str], None],
) -> None:
    """Log words as tags, numbers as metrics (their step is the number of trials) and files as artifacts.

    Failures never stop the search; they are logged.

    Args:
        workspace: with a folder for MLflow; its comparison is the search.
        words, numbers: by key; ``trials`` is among the numbers. Those of an earlier, shorter search are replaced.
        files: tables, figures, settings.
        log: gets the remark.
    """
    try:
        from mlflow.entities import Metric, RunTag

        assert workspace.mlruns is not None
        store = Store(workspace.mlruns, workspace.experiment)
        run, now, step = store.parent(workspace.comparison), int(time.time() * 1000), int(numbers["trials"])
        metrics = [Metric(key, float(value), now, step) for key, value in numbers.items()]
        store.client.log_batch(run, metrics=metrics, tags=[RunTag(key, value) for key, value in words.items()])
        for path in files:
            store.client.log_artifact(run, str(path))
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        log(f"MLflow: {reason(error)}; the files of the search are complete")
