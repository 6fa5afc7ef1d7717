"""Models at the end of a session are scored on the held-out samples of every session so far."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtide.core.storage.files import short_hash
from fedtide.records.frames import Records, load
from fedtide.records.measures.forgetting import matrix
from fedtide.records.run_directory import RunDirectory
from fedtide.report.tables.table import tabulate
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.run import RunSettings
from fedtide.settings.scores import Score
from small_runs import execute, history

MONTHS = 4
Make = Callable[..., RunSettings]


def months(count: int, seed: int = 7) -> pd.DataFrame:
    """Rows of six clients over four months, with the number of the month."""
    rng = np.random.default_rng(seed)
    month = np.arange(count) % MONTHS + 1
    when = [f"2013-{number:02}-{day:02}" for number, day in zip(month, rng.integers(1, 28, count), strict=True)]
    return pd.DataFrame({"who": rng.integers(0, 6, count), "when": when, "month": month})


@pytest.fixture(scope="module")
def calendar(small: Make, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Settings of a run on rows, written to a table, two rounds per month."""
    root = tmp_path_factory.mktemp("tables")

    def make(rows: pd.DataFrame, label: dict[str, Any] | None = None, **changes: Any) -> RunSettings:
        text = rows.drop(columns="month").to_csv(index=False)
        file = root / f"{short_hash(text)}.csv"
        file.write_text(text)
        source = {"name": "table", "file": str(file), "root": str(root / "data")}
        raw: dict[str, Any] = {
            "data": {**source, "label": "y", "client": "who", "time": "when", **(label or {})},
            "scenario": {"name": "calendar", "rounds_per_period": 2},
            "partition": "natural",
            "participation": "all",
            "algorithm": "fedavg",
        }
        return small(**{**raw, **changes})

    return make


def flipped(count: int = 480) -> pd.DataFrame:
    """One feature that is 1 or -1; the label is its sign, from the third month on the opposite."""
    rows = months(count)
    x = np.random.default_rng(1).choice([-1.0, 1.0], count)
    return rows.assign(x=x, y=np.where(rows["month"] > 2, x < 0, x > 0).astype(int))


def drifting(count: int = 1200) -> pd.DataFrame:
    """Three features with noise; the coefficient of the first changes its sign after the second month."""
    rows, rng = months(count), np.random.default_rng(2)
    x = rng.normal(size=(count, 3))
    logit = np.where(rows["month"] > 2, -2, 2) * x[:, 0] + 1.5 * x[:, 1] + x[:, 2] + 0.5 * rng.normal(size=count)
    return rows.assign(a=x[:, 0], b=x[:, 1], c=x[:, 2], y=(logit > 0).astype(int))


def scores_of(records: Records, column: str = "test_accuracy") -> np.ndarray[Any, Any]:
    return matrix(records.session_scores, column)


def without_scores(run: Path) -> Records:
    """The records of a run that has recorded no session scores."""
    summary = RunDirectory(run).summary()
    (run / "session_scores.csv").unlink()
    assert summary is not None
    RunDirectory(run).finish(summary)
    return load([run])


@pytest.mark.slow
def test_a_relation_that_turns_around(calendar: Make, tmp_path: Path) -> None:
    """Without noise, the matrix is known: all or nothing. The estimate does not see that anything has been lost."""
    settings = calendar(flipped(), local={"steps": 30, "lr": 1.0})
    execute(settings, tmp_path, name="run")
    records = load([tmp_path / "run"])
    no = np.nan
    expected = [[1, no, no, no], [1, 1, no, no], [0, 0, 1, no], [0, 0, 1, 1]]
    np.testing.assert_array_equal(scores_of(records), expected)
    assert records.forgetting["run"] == pytest.approx((1 / 2, -2 / 3, 2 / 3))
    assert np.isnan(records.estimated["run"]).all()
    blind = without_scores(tmp_path / "run")
    assert blind.estimated["run"] == pytest.approx((1, 0, 0))
    assert np.isnan(blind.forgetting["run"]).all()
    assert blind.session_scores.empty


TASKS: dict[str, dict[str, Any]] = {
    "classification": {"evaluation": {"metrics": ["auroc"], "splits": ["test", "validation"]}},
    "regression": {"label": {"task": "regression"}, "objective": {"name": "huber", "delta": 2.0}},
    "multilabel": {"label": {"task": "multilabel", "labels": ["y", "z"]}, "objective": "binary_cross_entropy"},
}


def of_task(calendar: Make, task: str, **changes: Any) -> RunSettings:
    rows = drifting(400)
    rows = rows.assign(y=rows["a"]) if task == "regression" else rows.assign(z=(rows["b"] > 0).astype(int))
    return calendar(rows, **{**TASKS[task], **changes})


@pytest.fixture(scope="module")
def whole(calendar: Make, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of uninterrupted runs, by task."""
    runs = tmp_path_factory.mktemp("whole")
    for task in TASKS:
        execute(of_task(calendar, task), runs, name=task)
    return {task: runs / task for task in TASKS}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_diagonal_is_the_history_at_the_ends_of_sessions(whole: dict[str, Path], task: str) -> None:
    records = load([whole[task]], Score({"regression": "mae", "multilabel": "mean_ap"}.get(task, "auroc")))
    ends = pd.read_csv(whole[task] / "history.csv").groupby("session").last()
    rows = records.session_scores
    own = rows[rows["session"] == rows["tested"]].set_index("session")
    scores = [name for name in rows if name.startswith(("test_", "validation_"))]
    assert len(scores) == {"classification": 12, "regression": 6, "multilabel": 4}[task]
    for name in scores:
        assert own[name].to_list() == ends[name].to_list(), name
    assert (own["round"] == ends["round"]).all()
    assert len(rows) == MONTHS * (MONTHS + 1) / 2
    seen = records.forgetting[task].seen
    assert seen == pytest.approx(rows.loc[rows["session"] == MONTHS, records.column].mean())


@pytest.mark.slow
def test_scores_of_earlier_sessions_are_those_of_the_models_then(
    calendar: Make, whole: dict[str, Path], tmp_path: Path
) -> None:
    """A run that ends with an earlier month has the same rows up to there, and its model gives the last of them."""
    shorter = of_task(calendar, "classification", scenario={"name": "calendar", "rounds_per_period": 2, "last": 3})
    execute(shorter, tmp_path, name="shorter")
    runs = (whole["classification"], tmp_path / "shorter")
    lines = [(run / "session_scores.csv").read_text().splitlines() for run in runs]
    assert lines[0][:7] == lines[1]


@pytest.mark.slow
def test_the_end_of_a_session_is_scored_whenever_rounds_are(
    calendar: Make, whole: dict[str, Path], tmp_path: Path
) -> None:
    evaluated = TASKS["classification"]["evaluation"]
    execute(of_task(calendar, "classification", evaluation={**evaluated, "every": 5}), tmp_path, name="rarely")
    evaluated_rounds = load([tmp_path / "rarely"]).history["test_accuracy"].notna()
    fifth_and_ends = (2, 4, 5, 6, 8)
    assert (*(evaluated_rounds[evaluated_rounds].index + 1),) == fifth_and_ends
    runs = (whole["classification"], tmp_path / "rarely")
    assert len({(run / "session_scores.csv").read_bytes() for run in runs}) == 1


@pytest.mark.slow
def test_training_is_the_same_without(calendar: Make, whole: dict[str, Path], tmp_path: Path) -> None:
    execute(of_task(calendar, "classification", evaluation={"earlier_sessions": False}), tmp_path, name="without")
    runs = (whole["classification"], tmp_path / "without")
    assert not (runs[1] / "session_scores.csv").exists()
    assert (runs[0] / "model.pt").read_bytes() == (runs[1] / "model.pt").read_bytes()
    columns = ["test_accuracy", "test_loss", "train_loss", "drift", "bytes_up"]
    run, without = (pd.read_csv(each / "history.csv")[columns] for each in runs)
    pd.testing.assert_frame_equal(run, without)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_an_interrupted_run_records_the_same(
    calendar: Make, whole: dict[str, Path], run_once: Callable[..., Any], stop_after: Any, tmp_path: Path, task: str
) -> None:
    """Also one that was killed while it wrote the rows of a session."""
    settings = of_task(calendar, task)
    file = tmp_path / "x" / "session_scores.csv"
    assert run_once(settings, callbacks=[stop_after(3)])["state"] == "interrupted"
    with file.open("a") as torn:
        torn.write("4,2,1,0.5,0.1")
    assert len(load([tmp_path / "x"]).session_scores) == 1
    assert run_once(settings)["state"] == "complete"
    assert file.read_bytes() == (whole[task] / "session_scores.csv").read_bytes()
    assert history(tmp_path / "x") == history(whole[task])


@pytest.mark.slow
def test_sessions_of_a_diverged_run_count_up_to_there(calendar: Make, tmp_path: Path) -> None:
    rows = drifting(400)
    rows.loc[rows["month"] == 3, "a"] *= 1e6
    settings = calendar(rows, divergence_threshold=100.0)
    assert execute(settings, tmp_path, name="run")["state"] == "diverged"
    assert np.isfinite(scores_of(load([tmp_path / "run"]))).tolist() == [[True, False], [True, True]]


def test_sessions_on_the_same_samples_have_an_estimate(small: Make, tmp_path: Path) -> None:
    (tmp_path / "presence.csv").write_text("client,join,leave\n0,0,4\n1,0,2\n2,2,4\n")
    scenario = {"name": "trace", "file": str(tmp_path / "presence.csv"), "session_at_change": True}
    execute(small(scenario=scenario, partition="iid"), tmp_path, name="run")
    records = load([tmp_path / "run"])
    assert not (tmp_path / "run" / "session_scores.csv").exists()
    assert np.isnan(records.forgetting["run"]).all()
    assert np.isfinite(records.estimated["run"]).all()
    titles = [column.title for column in tabulate(records, ReportSettings(last=2)).columns]
    assert "All data so far (estimate), %" in titles
    assert not any(title.startswith("All sessions") for title in titles)


def test_sessions_with_labels_of_their_own_are_scored_on_these(small: Make, tmp_path: Path) -> None:
    """Two groups with disjoint digits take turns; the first group's test samples are those of sessions 1 and 3."""
    sessions = {"name": "sessions", "num_devices": 4, "num_sessions": 3, "rounds_per_session": 2}
    settings = small(
        scenario={**sessions, "label_overlap": 0.0}, partition="dirichlet_session", evaluation={"metrics": ["auroc"]}
    )
    execute(settings, tmp_path, name="run")
    records = load([tmp_path / "run"])
    A = scores_of(records)
    assert A[2, 0] == A[2, 2] != A[2, 1]
    assert np.diag(A).tolist() == records.history["test_accuracy"][1::2].to_list()
    assert "test_auroc" not in records.session_scores
