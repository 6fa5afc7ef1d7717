"""How the clients fare."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedtide.federation.scoring.client_scores import expected, summary
from fedtide.records import frames
from fedtide.settings.params import Params
from fedtide.settings.scores import Score
from fedtide.training.engine.passes.evaluation import Scores
from fedtide.world.building.build import build_timeline
from fedtide.world.storage.prepared import load_data
from small_runs import execute

SESSIONS = {"name": "sessions", "num_devices": 3, "num_sessions": 3, "rounds_per_session": 2}
CALENDAR = {"scenario": {"name": "calendar", "rounds_per_period": 2}, "partition": "natural"}


def table(root, label):
    """Data settings of 600 rows of 12 clients in three months; labels follow from a client's number and a noisy sum."""
    rng = np.random.default_rng(5)
    x, who, month = rng.normal(size=(600, 2)), rng.integers(0, 12, 600), rng.integers(1, 4, 600)
    month[who == 3], month[who == 4] = 2, np.where(month[who == 4] == 2, 1, month[who == 4])
    rows = pd.DataFrame(
        {"who": [f"c{number:02}" for number in who], "when": [f"2013-{number:02}-05" for number in month]}
    )
    rows = rows.assign(x=x[:, 0], y=x[:, 1], label=label(who, x.sum(1) + rng.normal(size=600)))
    rows.to_csv(root / "rows.csv", index=False)
    return {"name": "table", "client": "who", "time": "when", "file": str(root / "rows.csv")}


def six_rounds(root, data, local, evaluation, **values):
    raw = {
        "data": {**data, "root": str(root)},
        "model": "softmax_regression",
        "local": {"steps": 3, "batch_size": 16, "lr": 0.1, **local},
        "evaluation": {"clients_every": 2, **evaluation},
        "engine": {"workers": 1, "accelerator": "cpu"},
    }
    return Params({**raw, **values}).run()


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Six rounds of two groups that take turns: ``settings(**evaluation)``; ``natural=True`` on a table of 12 clients."""
    root = tmp_path_factory.mktemp("data")
    rows = table(root, lambda who, target: (target > 0).astype(int))

    def make(natural=False, model="softmax_regression", local=None, **evaluation):
        data, world = (rows, CALENDAR) if natural else ({"name": "digits"}, {"scenario": SESSIONS})
        return six_rounds(root, data, local or {}, evaluation, model=model, **world)

    return make


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    """Six rounds in three periods of the same table; client 5 always has the same target: ``regression(**values)``."""
    root = tmp_path_factory.mktemp("numbers")
    data = {**table(root, lambda who, target: np.where(who == 5, 1.0, target)), "task": "regression"}
    usual = {"objective": "mean_squared_error", **CALENDAR}
    return lambda **values: six_rounds(root, data, {"lr": 0.05}, {}, **{**usual, **values})


def finished(chosen, folder):
    """Data, timeline and the last table of client scores of a run."""
    execute(chosen, folder, name="x")
    data = load_data(chosen)
    scores = pd.read_parquet(folder / "x" / "client_scores" / "round-000006.parquet")
    return data, build_timeline(chosen, data), scores


def history(run):
    with (run / "history.csv").open() as stream:
        return [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(stream)]


def model_of(run):
    """Logits of the logistic model of a complete run."""
    parameters = list(torch.load(run / "model.pt", weights_only=True).values())
    return lambda inputs: inputs.flatten(1) @ parameters[0].T + parameters[1]


def test_expected_accuracy_is_the_mean_over_labels_drawn_like_the_clients():
    scores = Scores(torch.tensor([3, 1, 0]), torch.tensor([4, 2, 0]), torch.tensor([2.0, 4.0, 0.0]))
    counts = torch.tensor([[1.0, 0, 0], [1, 1, 0], [3, 1, 9], [0, 0, 5], [0, 0, 0]], dtype=torch.float64)
    accuracy, loss = expected(scores, counts)
    np.testing.assert_allclose(accuracy, [3 / 4, 5 / 8, 11 / 16, math.nan, math.nan])
    np.testing.assert_allclose(loss, [0.5, 1.25, 0.875, math.nan, math.nan])


def test_the_summary_counts_clients_that_are_present_and_known():
    accuracy = np.array([*(np.arange(20) / 20), math.nan, 1.0])
    groups = {"newcomers": np.array([0, 1, 20]), "stayers": np.array([20]), "departed": np.array([21])}
    found = summary(accuracy, np.arange(22), groups, 0.25)
    expected_values = {
        "mean": 0.475, "std": np.std(np.arange(20) / 20), "worst_decile": 0.025, "below": 0.25, "newcomers": 0.025,
        "stayers": None, "departed": 1.0,
    }  # fmt: skip
    assert found == {name: value if value is None else pytest.approx(value) for name, value in expected_values.items()}


def test_dealt_data_give_the_accuracy_expected_under_the_label_shares(settings, tmp_path):
    data, timeline, table = finished(settings(), tmp_path)
    logits = model_of(tmp_path / "x")(data.prepare(data.test_inputs))
    hits = (logits.argmax(1) == data.test_labels).double()
    losses = cross_entropy(logits.double(), data.test_labels, reduction="none")
    assert table.client.tolist() == [*timeline.at(5).clients, *timeline.at(3).clients]
    assert table.group.tolist() == ["returners"] * 3 + ["departed"] * 3
    for row in table.itertuples():
        held = timeline.at(5 if row.group == "returners" else 3)
        shard = timeline.shards[held.shards[held.clients.tolist().index(row.client)]]
        share = torch.bincount(data.train_labels[shard], minlength=10) / len(shard)
        weights = (share / torch.bincount(data.test_labels))[data.test_labels]
        assert row.accuracy == pytest.approx(float((weights * hits).sum()), abs=1e-6)
        assert row.loss == pytest.approx(float((weights * losses).sum()), rel=1e-4)
    assert table.samples.isna().all()


@pytest.mark.parametrize("split", ["test", "validation"])
def test_natural_data_give_the_accuracy_on_own_samples(settings, tmp_path, split):
    data, timeline, table = finished(settings(natural=True, splits=[split]), tmp_path)
    inputs, labels = (data.test_inputs, data.test_labels) if split == "test" else (data.train_inputs, data.train_labels)
    owners = data.origins.test_client if split == "test" else data.origins.train_client
    hits = (model_of(tmp_path / "x")(data.prepare(inputs)).argmax(1) == labels).double()
    assert dict(zip(table.name, table.group, strict=True))["c03"] == "departed"
    assert dict(zip(table.name, table.group, strict=True))["c04"] == "returners"
    for row in table.itertuples():
        last = max(t for t in range(6) if row.client in timeline.at(t).clients)
        positions = getattr(timeline.evaluated_at(last), split)
        own = positions[owners[positions] == data.origins.clients.index(row.name)]
        assert row.samples == len(own)
        assert row.accuracy == pytest.approx(float(hits[own].mean()), nan_ok=True)
    present = table[table.group != "departed"].accuracy.dropna()
    last = history(tmp_path / "x")[-1]
    assert float(last["client_accuracy_mean"]) == pytest.approx(present.mean())
    assert float(last["client_accuracy_std"]) == pytest.approx(present.std(ddof=0))


@pytest.mark.slow
@pytest.mark.parametrize("natural", [False, True])
def test_evaluating_clients_leaves_no_trace(settings, tmp_path, natural):
    """Training, costs and all other records are the same to the bit."""
    local = {"momentum": 0.9, "batch_size": 4}
    execute(settings(natural, model="mlp", local=local, clients_every=0), tmp_path, name="off")
    execute(settings(natural, model="mlp", local=local, finetune_steps=4), tmp_path, name="on")
    plain = history(tmp_path / "off")
    assert [{name: row[name] for name in plain[0]} for row in history(tmp_path / "on")] == plain
    models = [torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("off", "on")]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert not (tmp_path / "off" / "client_scores").exists()


@pytest.mark.slow
def test_full_batches_make_personal_models_a_naive_loop(settings, tmp_path):
    chosen = settings(local={"batch_size": 1000, "momentum": 0.5, "weight_decay": 0.01}, finetune_steps=3)
    data, timeline, table = finished(chosen, tmp_path)
    start = list(torch.load(tmp_path / "x" / "model.pt", weights_only=True).values())
    table = table.set_index("client")
    for client, shard in zip(timeline.at(5).clients, timeline.shards_at(5), strict=True):
        weights = [value.clone().requires_grad_() for value in start]
        optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.5, weight_decay=0.01)
        inputs, labels = data.prepare(data.train_inputs[shard]).flatten(1), data.train_labels[shard]
        for _ in range(3):
            optimizer.zero_grad()
            cross_entropy(inputs @ weights[0].T + weights[1], labels).backward()
            optimizer.step()
        with torch.no_grad():
            logits = data.prepare(data.test_inputs).flatten(1) @ weights[0].T + weights[1]
        share = torch.bincount(labels, minlength=10) / len(shard)
        each = (share / torch.bincount(data.test_labels))[data.test_labels]
        losses = cross_entropy(logits.double(), data.test_labels, reduction="none")
        assert table.finetuned_loss[client] == pytest.approx(float((each * losses).sum()), rel=1e-3)
    assert table[table.group == "departed"].finetuned_accuracy.isna().all()


def test_rounds_of_the_table_and_the_last_one(settings, tmp_path):
    execute(settings(clients_every=4), tmp_path, name="x")
    assert sorted(file.name for file in (tmp_path / "x" / "client_scores").iterdir()) == [
        "round-000004.parquet", "round-000006.parquet",
    ]  # fmt: skip
    filled = [bool(row["client_accuracy_mean"]) for row in history(tmp_path / "x")]
    assert filled == [False, False, False, True, False, True]


@pytest.mark.slow
def test_a_client_is_scored_on_its_own_samples(regression: Any, tmp_path: Path) -> None:
    data, timeline, table = finished(regression(), tmp_path)
    errors = model_of(tmp_path / "x")(data.prepare(data.test_inputs)) - data.test_labels.reshape(-1, 1)
    assert dict(zip(table.name, table.group, strict=True))["c03"] == "departed"
    owners, ((_, unit),) = data.origins.test_client, data.standardized
    assert owners is not None
    for row in table.itertuples():
        last = max(t for t in range(6) if row.client in timeline.at(t).clients)
        held = timeline.evaluated_at(last)
        assert held is not None
        own = held.test[owners[held.test] == data.origins.clients.index(row.name)]
        labels = data.test_labels[own].double().reshape(-1)
        found = errors[own].double().reshape(-1)
        assert row.samples == len(own)
        assert row.mae == pytest.approx(unit * float(found.abs().mean()), rel=1e-4, nan_ok=True)
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


def test_without_owners_there_are_none_and_a_line_says_so(regression: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    chosen = regression(
        partition={"name": "iid", "stratified": False}, scenario={"name": "static", "rounds": 2, "num_clients": 3}
    )
    execute(chosen, tmp_path, name="x", log=lines.append)
    wanted = "evaluation.clients_every = 2: per-client scores are unavailable, since test samples have no client IDs"
    assert wanted in lines
    assert not (tmp_path / "x" / "client_scores").exists()
    assert "client_" not in (tmp_path / "x" / "history.csv").read_text().partition("\n")[0]


def test_test_users_who_do_not_train_are_named_as_the_reason(tmp_path: Path) -> None:
    """LEAF's ``-t user`` puts other users into the test files: what they are served is scored, as that of newcomers."""
    for part, users in (("train", "ab"), ("test", "cd")):
        samples = {"x": [[0.0], [1.0]], "y": ["no", "yes"]}
        content = {"users": list(users), "user_data": dict.fromkeys(users, samples)}
        (tmp_path / f"{part}.json").write_text(json.dumps(content))
    data = {"name": "leaf", "path": str(tmp_path / "train.json"), "test": str(tmp_path / "test.json")}
    raw = {"data": {**data, "root": str(tmp_path)}, "partition": "natural", "model": "softmax_regression"}
    raw |= {"scenario": {"name": "static", "rounds": 1, "num_clients": None}}
    raw |= {"evaluation": {"clients_every": 1}}
    lines: list[str] = []
    execute(Params(raw).run(), tmp_path, name="x", log=lines.append)
    why = "no test sample is of a client with training samples; use data split by sample, not by client"
    assert f"evaluation.clients_every = 1: per-client scores are unavailable, since {why}" in lines
    assert history(tmp_path / "x")[-1]["test_served_accuracy_mean"] != ""
