"""``fedtide trees``: models of scikit-learn on the rows that clients hold, on the runs' held-out rows, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from commands import Fedtide
from fedtide.settings.params import Params
from fedtide.world.building.build import build_timeline
from fedtide.world.dataset import Dataset
from fedtide.world.storage.prepared import load_data
from fedtide.world.timeline import Timeline

Floats = NDArray[np.float64]
TABLE = "data={name: table, file: visits.csv, label: late, client: shop, time: date}"
SET = ("scenario={name: calendar, rounds_per_period: 2}", "partition=natural", "evaluation.metrics=[auroc]")


def settings(*items: str) -> list[str]:
    return [word for item in items for word in ("--set", item)]


@pytest.fixture
def table(folder: Path) -> Path:
    """Three months of three shops; one of them closes after the first month."""
    rng, rows = np.random.default_rng(0), ["date,shop,price,late"]
    for n in range(600):
        month, shop, price = 1 + n // 200, n % 3, int(rng.integers(0, 50))
        if shop < 2 or month == 1:
            late = ("no", "yes")[int(price + rng.integers(0, 20) > 30)]
            rows.append(f"2024-{month:02}-{1 + n % 28:02},shop {shop},{price},{late}")
    (folder / "visits.csv").write_text("\n".join([*rows, ""]))
    return folder


def loaded(items: list[str], seed: int = 0) -> tuple[Dataset, Timeline, Floats, Floats]:
    """The data and the timeline of the runs, and the inputs and labels of the training rows."""
    run = Params.read("params.yaml", items).run(seed=seed)
    data = load_data(run)
    x, y = data.train_inputs.double().numpy(), data.train_labels.double().numpy()
    return data, build_timeline(run, data), x, y.ravel()


@pytest.mark.slow
def test_pooled_trees_are_the_model_on_all_rows_so_far(fedtide: Fedtide, table: Path) -> None:
    called = fedtide("trees", *settings(TABLE, *SET, "compare.seeds=[3]"), "--json", "--quiet")
    assert called.status == 0, called.err
    found = pd.read_csv(table / "trees" / "trees.csv")
    data, world, x, y = loaded([TABLE, *SET], seed=3)
    held = np.sort(np.concatenate(world.shards_at(0) + world.shards_at(2)))
    model = HistGradientBoostingClassifier(random_state=3).fit(x[held], y[held])
    ahead = world.evaluated_ahead_at(3)
    assert ahead is not None
    tested = np.concatenate([data.test_inputs.double().numpy()[ahead.test], x[ahead.train]])
    labels = np.concatenate([data.test_labels.numpy()[ahead.test], y[ahead.train]])
    probabilities = model.predict_proba(tested)
    own = found[found["baseline"] == "pooled_trees"]
    row = own.iloc[1]
    assert row["rows"] == len(held)
    assert row["test_accuracy_next"] == pytest.approx((probabilities.argmax(1) == labels).mean())
    assert row["test_loss_next"] == pytest.approx(log_loss(labels, probabilities))
    assert row["test_auroc_next"] == pytest.approx(roc_auc_score(labels, probabilities[:, 1]), abs=1e-14)
    assert found["test_accuracy_next"].isna().to_list() == [False] * 4 + [True] * 2  # the last month has no next one
    means = json.loads(called.out[-1])
    assert means["pooled_trees"]["test_auroc_next"] == pytest.approx(own["test_auroc_next"].mean())


@pytest.mark.slow
def test_local_trees_predict_the_rows_of_their_owners(fedtide: Fedtide, table: Path) -> None:
    given = settings(TABLE, *SET, "compare.seeds=[0]")
    assert fedtide("trees", *given, "--only", "local_trees", "--quiet").status == 0
    frame = pd.read_csv("trees/trees.csv")
    assert set(frame["baseline"]) == {"local_trees"}
    data, world, x, y = loaded([TABLE, *SET])
    tested = world.evaluated_at(0)
    assert tested is not None
    assert data.origins.test_client is not None
    owners, hits = data.origins.test_client[tested.test], 0
    for client, shard in zip(world.at(0).clients, world.shards_at(0), strict=True):
        own = tested.test[owners == world.origin_of_client[client]]
        model = HistGradientBoostingClassifier(random_state=0).fit(x[shard], y[shard])
        hits += int((model.predict(data.test_inputs.double().numpy()[own]) == data.test_labels.numpy()[own]).sum())
    assert frame["test_accuracy"][0] == pytest.approx(hits / len(tested.test))


def test_a_regression_has_the_scores_of_its_runs(fedtide: Fedtide, table: Path) -> None:
    data = "data={name: table, file: visits.csv, label: price, task: regression, client: shop, time: date, target_scale: 10}"
    given = [data, SET[0], SET[1], "objective=mean_squared_error", "compare.seeds=[0]"]
    called = fedtide("trees", *settings(*given), "--only", "pooled_trees", "--quiet")
    assert called.status == 0, called.err
    frame = pd.read_csv("trees/trees.csv")
    scores = [name for name in map(str, frame) if name.startswith("test_") and not name.endswith("_next")]
    assert scores == ["test_r2", "test_mae", "test_loss"]
    rows, world, x, y = loaded(given)
    held, tested = np.sort(np.concatenate(world.shards_at(0))), world.evaluated_at(0)
    assert tested is not None
    model = HistGradientBoostingRegressor(random_state=0).fit(x[held], y[held])
    outputs = model.predict(rows.test_inputs.double().numpy()[tested.test])
    assert frame["test_r2"][0] == pytest.approx(r2_score(rows.test_labels.numpy()[tested.test].ravel(), outputs))


@pytest.mark.slow
def test_the_table_of_means_names_the_scores(fedtide: Fedtide, table: Path) -> None:
    called = fedtide("trees", *settings(TABLE, *SET, "compare.seeds=[0, 1]"), "--quiet", "--out", "boosted")
    assert called.status == 0
    assert called.out[-1] == "means over sessions, ± over seeds; every session: boosted/trees.csv"
    assert [line.split()[0] for line in called.out if line[:5] in ("poole", "local")] == ["pooled_trees", "local_trees"]
    assert "AUROC on the next" in " ".join(called.out)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            settings("data=digits"),
            "data digits: trees are fitted on rows of a table with one label; not samples of kind image",
        ),
        (["--only", "pooled"], "--only = 'pooled' should be pooled_trees or local_trees"),
        (
            settings(TABLE),
            "partition = dirichlet_equal: local_trees score rows by owner; use partition natural and data with owners, "
            "or --only pooled_trees",
        ),
        (settings(TABLE, "drift=sudden"), "drift = sudden: trees are fitted on the rows as they are; use drift none"),
    ],
    ids=["pictures", "only", "owners", "drift"],
)
def test_what_has_no_trees_is_refused(fedtide: Fedtide, table: Path, arguments: list[str], line: str) -> None:
    called = fedtide("trees", *arguments)
    assert (called.status, called.err[-1]) == (2, f"fedtide: {line}")
    assert not (table / "trees").exists()
