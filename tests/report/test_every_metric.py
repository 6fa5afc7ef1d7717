"""The report by every score, on one grid with every kind of method: a global model, models of clients, of both, of clusters."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedtide.cli import stages
from fedtide.report.comparison import report
from fedtide.runs.display.progress import UNWATCHED
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.settings.scores import RECORDED, Score, TaskName
from fedtide.training.engine.passes.metrics import METRICS
from small_runs import calendar

METHODS: dict[TaskName, list[str]] = {
    "classification": ["fedavg", "local", "ditto", "feddrift", "fedensemble"],
    "regression": ["fedavg", "local", "ditto"],
    "multilabel": ["fedavg", "ditto"],
}
FORMS = ("{}", "{}_next", "served_{}", "served_{}_next")
WHOLE = ("auroc", "loss", "r2")  # a share, one where lower is better, and one below zero: in every form, others in one
CASES: list[tuple[TaskName, str, str]] = [
    (task, measure, form)
    for task, extra in (("classification", METRICS), ("regression", ()), ("multilabel", ()))
    for place, measure in enumerate((*RECORDED[task], *extra))
    for form in (FORMS if measure in WHOLE else [FORMS[place % len(FORMS)]])
]
_LABELS = {"regression": {"label": "x"}, "multilabel": {"labels": ["high", "low"]}}
_LOSSES = {"regression": "mean_squared_error", "multilabel": "binary_cross_entropy"}


def grid(root: Path, task: TaskName, metric: str = "accuracy") -> Params:
    """Four shops over three months, a round in each."""
    data = {"client": "shop", "time": "when", "task": task, "split": {"share": 0.4}, "numeric": ["a", "b"]}
    raw = calendar(root / "rows.csv", 1, data | {"categorical": []} | _LABELS.get(task, {"label": "y"}))
    raw["scenario"] |= {"next_period": 1}
    chosen = {"metrics": list(METRICS)} if task == "classification" else {}
    return Params(
        raw
        | {"model": "mlp" if task == "classification" else "softmax_regression", "local": {"steps": 2}}
        | ({"objective": _LOSSES[task]} if task in _LOSSES else {})
        | {"client_state": {"on_session_start": "keep"}, "evaluation": chosen, "engine": {"workers": 1}}
        | {"compare": {"algorithms": METHODS[task], "seeds": [0], "workers": 1}}
        | {"report": {"metric": metric}, "tracking": {"mlflow": False}}
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs are."""
    root, rng = tmp_path_factory.mktemp("every"), np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(360, 3)).round(3), columns=["a", "b", "x"])
    frame["x"] += frame["a"]
    frame = frame.assign(y=frame["x"] > 0, high=(frame["x"] > 1).astype(int), low=(frame["b"] < 0).astype(int))
    frame["shop"] = [f"s{number % 4}" for number in range(360)]
    frame["when"] = [f"2025-{1 + number // 120:02}-{1 + number % 28:02}" for number in range(360)]
    frame.to_csv(root / "rows.csv", index=False)
    for task in RECORDED:
        first = grid(root, task, RECORDED[task][0])
        summaries, _ = stages.train(first, Workspace(root / "runs"), UNWATCHED)
        assert {summary["state"] for summary in summaries} == {"complete"}
    return root


@pytest.mark.slow
@pytest.mark.parametrize(("task", "measure", "form"), CASES)
def test_a_report_by_any_score_has_all_methods(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: TaskName, measure: str, form: str
) -> None:
    monkeypatch.setattr("fedtide.report.charts.pictures.saved", lambda figure, form: b"")  # drawn, but in no file
    score = Score(form.format(measure))
    summary = report(grid(home, task, score.name), home / "runs", None, tmp_path, "fedtide report")
    table = pd.read_csv(tmp_path / "table.csv").set_index("label")
    assert summary.complete == summary.total == len(table)
    named = table[f"{score.mean_next if score.ahead else 'final'}_mean"]
    assert named.index[named.isna()].tolist() == [
        name for name in ("local",) if name in METHODS[task] and not score.served
    ]
