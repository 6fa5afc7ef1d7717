"""Runs that another version has recorded: the mirror names what it cannot read, and mirrors the rest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtide.runs.execution import execute
from fedtide.runs.mlflow.store import Store
from fedtide.runs.mlflow.upload import mirror
from fedtide.runs.workspace import Workspace
from fedtide.settings.run import RunSettings

EXPERIMENT = "older"


def changed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_a_run_of_older_settings_is_named_and_the_rest_is_mirrored(
    settings: Callable[..., RunSettings], raw: dict[str, Any], tmp_path: Path, mlruns: Path
) -> None:
    """An unknown setting of the model, an unknown model, no label in the manifest, and a run of today."""
    names = ("setting", "model", "label", "today")
    for name in names:
        assert execute(settings(), Workspace(tmp_path), name=name)["state"] == "complete"
    changed(tmp_path / "setting" / "settings.json", lambda values: values["model"].update(width=3))
    changed(tmp_path / "model" / "settings.json", lambda values: values["model"].update(name="softmax_regresion"))
    changed(tmp_path / "label" / "manifest.json", lambda values: values.pop("label"))
    root, lines, folders = Path(raw["data"]["root"]), list[str](), [tmp_path / name for name in names]

    def again() -> int:
        lines.clear()
        return mirror(folders, mlruns, EXPERIMENT, lines.append, root)

    assert again() == 3
    problems = [
        "setting: not uploaded, without its model: model in its settings.json: unknown key 'width'",
        "model: not uploaded, without its model: unknown name 'softmax_regresion' in models; "
        "did you mean 'softmax_regression'?",
        "label: not uploaded, its manifest.json has no label, so another version wrote it",
    ]
    for line, problem in zip(lines, problems, strict=False):
        assert line.startswith(problem)
    assert lines[3:] == ["MLflow: 1 runs written, 0 up to date, 3 not uploaded"]
    store = Store(mlruns, EXPERIMENT)
    known = {run.info.run_name: (run.info.status, run.data.tags["outcome"]) for run in store.runs("tags.run_key != ''")}
    assert known == dict.fromkeys(("setting", "model", "today"), ("FINISHED", "complete"))
    (model,) = store.client.search_logged_models([store.experiment])
    assert model.name == "today"
    assert again() == 3
    assert lines[3:] == ["MLflow: 0 runs written, 1 up to date, 3 not uploaded"]
