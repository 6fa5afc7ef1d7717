"""A real run whose periods do not determine every score: empty cells from the history to report, search and MLflow."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedtide.report import page, parts
from fedtide.report.parts import Contents, Source
from fedtide.runs.execution import execute
from fedtide.runs.workspace import Workspace
from fedtide.settings.experiment import ReportSettings
from fedtide.settings.params import Params
from small_runs import calendar

METRICS = ["balanced_accuracy", "macro_f1", "auroc", "calibration_error"]


def settings(root: Path) -> Params:
    """Four clients over three months: the second has one label, the third hardly any rows, so none for validation."""
    rng = np.random.default_rng(3)
    month = np.repeat([1, 2, 3], [120, 120, 40])
    x = rng.normal(size=len(month))
    frame = pd.DataFrame(
        {
            "who": np.arange(len(month)) % 4,
            "when": [f"2013-{number:02}-{1 + day % 27:02}" for day, number in enumerate(month)],
            "x": x,
            "label": np.where(month == 2, 1, (x > 0).astype(int)),
        }
    )
    frame.to_csv(root / "rows.csv", index=False)
    raw = calendar(root / "rows.csv") | {
        "seed": 1,
        "validation": 0.02,
        "local": {"epochs": 1},
        "engine": {"workers": 1},
        "evaluation": {"metrics": METRICS, "splits": ["test", "validation"], "clients_every": 1},
    }
    return Params(raw)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """Where the run and its mirror are."""
    root = tmp_path_factory.mktemp("undetermined")
    (root / "mlruns").mkdir()
    shutil.copy(empty_store, root / "mlruns" / "mlflow.db")
    summary = execute(settings(root).run(), Workspace(root / "runs", None, root / "mlruns", "tests"), name="x")
    assert summary["state"] == "complete"
    return root


@pytest.mark.slow
def test_the_history_has_empty_cells(home: Path) -> None:
    text = (home / "runs" / "x" / "history.csv").read_text()
    assert "nan" not in text.lower()
    history = pd.read_csv(home / "runs" / "x" / "history.csv")
    assert history["test_auroc"].isna().tolist() == [False, False, True, True, False, False]
    assert history["test_auroc_next"].isna().tolist() == [True, True, False, False, True, True]
    unknown = history.loc[history["session"] == 3, [f"validation_{name}" for name in ("accuracy", "loss", *METRICS)]]
    assert unknown.isna().all(axis=None)
    unknown = history.loc[history["session"] == 2, ["validation_accuracy_next", "validation_loss_next"]]
    assert unknown.isna().all(axis=None)


@pytest.mark.slow
def test_the_report_has_no_number_where_there_is_none(home: Path) -> None:
    score = "auroc_next"
    source = Source.read(
        [home / "runs" / "x"], Contents(ReportSettings(title="A", last=4, metric=score), "fedtide report")
    )
    history = pd.read_csv(home / "runs" / "x" / "history.csv")[f"test_{score}"]
    assert source.table.methods.loc[("fedavg", "previous"), "final_mean"] == pytest.approx(history.dropna().iloc[-1])
    cells = [text for _, _, row in page.rows(source.table) for text, _ in row]
    cells += [text for sheet in parts.sheets.of(source) for _, row in sheet.rows for text in row]
    assert len(cells) > 10
    assert not [text for text in cells if re.search(r"\bnan\b", text, re.IGNORECASE)]
