"""The results of a comparison or search in MLflow, at the parent of its runs."""

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fedtide.runs.mlflow.store import Store, database_of, reason
from fedtide.runs.workspace import Workspace

_PAGE = "report.html"
_NOTE = "mlflow.note.content"  # tag: a run's description, in Markdown


def record(
    workspace: Workspace,
    words: Mapping[str, str],
    numbers: Mapping[str, float],
    files: Mapping[Path, str],
    log: Callable[[str], None],
    what: str = "the files of the search are complete",
) -> None:
    """Log words as tags, numbers as metrics (their step is the number of trials, if any) and files as artifacts.

    They go to the parent run of the workspace's comparison, and replace those of an earlier, shorter search. ``files`` has
    their folders among the artifacts, by path. Failures are logged in a line that ends with ``what``, never raised.
    """
    try:
        from mlflow.entities import Metric, RunTag

        assert workspace.mlruns is not None
        store = Store(workspace.mlruns, workspace.experiment)
        run = store.parent(workspace.comparison)
        now, step = int(time.time() * 1000), int(numbers.get("trials", 0))
        metrics = [Metric(key, float(value), now, step) for key, value in numbers.items()]
        store.client.log_batch(run, metrics=metrics, tags=[RunTag(key, value) for key, value in words.items()])
        for path, folder in files.items():
            store.client.log_artifact(run, str(path), folder or None)
    except Exception as error:  # whatever MLflow, SQLAlchemy or the disk may raise
        log(f"MLflow: {workspace.mlruns}: {reason(error)}; {what}")


def record_report(workspace: Workspace, folder: Path, description: str, log: Callable[[str], None]) -> None:
    """Log the files of a report, and a description in Markdown, to the parent of its comparison.

    Nothing is done where MLflow's folder has no store yet; reports in folders below this one's are not part of it.
    """
    where = workspace.mlruns
    if where is None or (isinstance(where, Path) and not database_of(where).is_file()):
        return
    files = {path: str(Path("report") / path.relative_to(folder).parent) for path in report_files(folder)}
    record(workspace, {_NOTE: description}, {}, files, log, "the report is complete")


def report_files(folder: Path) -> Iterable[Path]:
    """Files of a report, without those of reports in folders below it."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            yield path
        elif path.is_dir() and not (path / _PAGE).exists():
            yield from report_files(path)
