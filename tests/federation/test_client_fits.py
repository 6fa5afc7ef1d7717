"""How the clients of a regression fare."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedtide.federation.scoring.client_samples import own_samples
from fedtide.records import frames
from fedtide.report.sections import fairness
from fedtide.settings.params import Params
from fedtide.settings.scores import Score
from fedtide.world.building.build import build_timeline
from fedtide.world.storage.prepared import load_data
from small_runs import execute
from support import federation, run_rounds


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Six rounds in three periods of a table of 12 clients, one of which always has the same target."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(5)
    x, who, month = rng.normal(size=(600, 2)), rng.integers(0, 12, 600), rng.integers(1, 4, 600)
    month[who == 3], month[who == 4] = 2, np.where(month[who == 4] == 2, 1, month[who == 4])
    target = np.where(who == 5, 1.0, x.sum(1) + rng.normal(size=600))
    rows = pd.DataFrame(
        {"who": [f"c{number:02}" for number in who], "when": [f"2013-{number:02}-05" for number in month]}
    )
    rows.assign(x=x[:, 0], y=x[:, 1], label=target).to_csv(root / "rows.csv", index=False)
    raw = {
        "data": {
            "name": "table",
            "file": str(root / "rows.csv"),
            "client": "who",
            "time": "when",
            "root": str(root),
            "task": "regression",
        },
        "scenario": {"name": "calendar", "rounds_per_period": 2},
        "objective": "mean_squared_error",
        "model": "softmax_regression",
        "local": {"steps": 3, "batch_size": 16, "lr": 0.05},
        "evaluation": {"clients_every": 2},
        "engine": {"workers": 1, "accelerator": "cpu"},
    }
    return lambda **values: Params({**raw, "partition": "natural", **values}).run()


def test_a_client_is_scored_on_its_own_samples(settings: Any, tmp_path: Path) -> None:
    chosen = settings()
    execute(chosen, tmp_path, name="x")
    data = load_data(chosen)
    timeline = build_timeline(chosen, data)
    weight, bias = torch.load(tmp_path / "x" / "model.pt", weights_only=True).values()
    errors = data.prepare(data.test_inputs).flatten(1) @ weight.T + bias - data.test_labels.reshape(-1, 1)
    table = pd.read_parquet(tmp_path / "x" / "client_scores" / "round-000006.parquet")
    assert dict(zip(table.name, table.group, strict=True))["c03"] == "departed"
    owners = data.origins.test_client
    assert owners is not None
    for row in table.itertuples():
        last = max(t for t in range(6) if row.client in timeline.at(t).clients)
        held = timeline.evaluated_at(last)
        assert held is not None
        own = held.test[owners[held.test] == data.origins.clients.index(row.name)]
        labels = data.test_labels[own].double().reshape(-1)
        found = errors[own].double().reshape(-1)
        assert row.samples == len(own)
        assert row.mae == pytest.approx(float(found.abs().mean()), rel=1e-4, nan_ok=True)
        assert row.loss == pytest.approx(float(found.square().mean()), rel=1e-4, nan_ok=True)
        spread = float((labels - labels.mean()).square().sum())
        assert (
            np.isnan(row.r2)
            if not spread
            else row.r2 == pytest.approx(1 - float(found.square().sum()) / spread, rel=1e-3)
        )
    present = table[table.group != "departed"]
    r2, mae = present.r2.dropna(), present.mae.dropna()
    assert len(r2) < len(mae)  # a single sample, or equal ones, leave R² open
    (last_row,) = frames.load([tmp_path / "x"], Score("r2")).history.query("round == 6").to_dict("records")
    for score in ("r2", "mae"):
        values = present[score].dropna()
        assert last_row[f"client_{score}_mean"] == pytest.approx(values.mean())
        assert last_row[f"client_{score}_std"] == pytest.approx(values.std(ddof=0))
    assert last_row["client_r2_worst_decile"] == pytest.approx(r2.nsmallest(math.ceil(len(r2) / 10)).mean())
    assert last_row["client_mae_worst_decile"] == pytest.approx(mae.nlargest(math.ceil(len(mae) / 10)).mean())


def test_the_models_that_clients_are_served_are_scored_too(settings: Any) -> None:
    """Own ones of those that have taken part, the global one for the others."""
    chosen = settings(algorithm="ditto", participation={"name": "fixed", "count": 2})
    data = load_data(chosen)
    fed = federation(chosen, build_timeline(chosen, data), data)
    state, records = run_rounds(fed)
    table, row = pd.DataFrame(records[-1].client_scores), records[-1].row
    part = fed.parts.timeline.at(5).clients
    assert table.known.dropna().tolist() == state.seen[part].tolist()
    assert 0 < row["served_known"] == state.seen[part].double().mean() < 1
    own = own_samples(fed.parts.evaluator, 5, part)
    assert own is not None
    models = torch.where(state.seen.unsqueeze(1), state.memory["v"], state.w).double()[part]
    inputs = fed.parts.data.prepare(data.test_inputs, torch.float64).flatten(1)
    labels = data.test_labels.reshape(-1)
    errors = []
    for (*weight, bias), positions in zip(models.tolist(), own, strict=True):
        errors.append((inputs[positions] @ torch.tensor(weight).double() + bias - labels[positions]).abs())
    expected = [float(each.mean()) for each in errors]
    assert table.served_mae[: len(part)].tolist() == pytest.approx(expected, rel=1e-4, nan_ok=True)
    assert table.served_mae[len(part) :].isna().all()
    here = table[: len(part)]
    unknown = here[~here.known.astype(bool)]
    assert unknown.served_mae.tolist() == pytest.approx(unknown.mae.tolist(), nan_ok=True)
    assert row["served_mae_unknown"] == pytest.approx(unknown.served_mae.mean())
    assert row["served_mae_mean"] == pytest.approx(here.served_mae.mean())
    assert {*fed.scoring.columns} <= {*row}


def test_the_report_has_a_table_of_them(settings: Any, tmp_path: Path) -> None:
    runs = [execute(settings(seed=seed, algorithm="ditto"), tmp_path)["run_key"] for seed in (0, 1)]
    records = frames.load([tmp_path / run for run in runs], Score("r2"))
    table = fairness.fairness(records, 6)
    assert table is not None
    sheet = fairness.sheet(table, 6)
    assert "R² and mean absolute error of the clients present" in sheet.caption
    means = records.history.groupby("key").client_r2_mean.mean()
    assert table.methods.client_mean_mean.item() == pytest.approx(means.mean())
    assert {"client_worst_decile", "error_mean", "error_worst_decile"} < {column.key for column in table.columns}
    served = records.history.groupby("key").served_mae_mean.mean()
    assert table.methods.served_error_mean_mean.item() == pytest.approx(served.mean())


def test_without_owners_there_are_none_and_a_line_says_so(settings: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    chosen = settings(
        partition={"name": "iid", "stratified": False}, scenario={"name": "static", "rounds": 2, "num_clients": 3}
    )
    execute(chosen, tmp_path, name="x", log=lines.append)
    wanted = "evaluation.clients_every = 2: per-client scores are unavailable, since test samples have no client IDs"
    assert wanted in lines
    assert not (tmp_path / "x" / "client_scores").exists()
    assert "client_" not in (tmp_path / "x" / "history.csv").read_text().partition("\n")[0]
