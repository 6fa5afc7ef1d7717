"""Predictions for rows of a table: by the command, in Python and through MLflow, against the history of the run."""

import csv
import io
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedtide as package
from commands import sets
from fedtide.runs.mlflow.logged_model import save
from fedtide.settings.params import Params
from fedtide.world.splits.split import SplitSettings, split_samples
from fedtide.world.storage.prepared import load_data

# Rows are numbered by time, so that held-out rows can be told by their positions.
ROWS = "name: table, client: who, time: number, unit: row, split: {period: all}"
TABLE = f"data={{{ROWS}, file: rows.csv, label: verdict, categorical: [zone, color, day]}}"
SETTINGS = (
    *("partition=natural", "scenario={name: static, num_clients: 3, rounds: 3}", "model={name: mlp, widths: [5]}"),
    "local={epochs: 2, batch_size: 16, lr: 0.3}",
    "checkpoint.keep_finished=true",
)


def table(count: int = 240) -> pd.DataFrame:
    """Rows of three shops with numbers, truth values, numbered zones, names and dates; some are missing, some are rare."""
    rng = np.random.default_rng(3)
    size, zone = rng.normal(5, 2, count).round(3), rng.integers(1, 30, count).astype(float)
    frame = pd.DataFrame(
        {
            "number": range(count),
            "who": rng.choice(["ann", "bob", "cy"], count),
            "size": size,
            "express": rng.random(count) < 0.5,
            "zone": zone,
            "color": rng.choice(["red", "blue", "007", "7.0", "NA "], count),
            "day": [f"2013-01-{day:02}" for day in rng.integers(1, 31, count)],
            "verdict": np.select([size > 6, zone > 20], ["late", "lost"], "on time"),
        }
    ).astype({"express": object, "color": object})
    for column in ("size", "express", "zone", "color"):
        frame.loc[rng.random(count) < 0.1, column] = None
    return frame


def held_out(frame: pd.DataFrame) -> np.ndarray:
    groups = pd.factorize(frame["who"], sort=True)[0]
    return split_samples(SplitSettings(), groups, np.zeros(len(frame), dtype=np.int64), None)[1]


def history(folder: str = "runs/one") -> dict[str, str]:
    return list(csv.DictReader(Path(folder, "history.csv").read_text().splitlines()))[-1]


def predictions(lines: list[str]) -> pd.DataFrame:
    return pd.read_csv(io.StringIO("\n".join(lines)), float_precision="round_trip")


@pytest.fixture
def rows(folder: Path) -> pd.DataFrame:
    frame = table()
    frame.to_csv(folder / "rows.csv", index=False)
    return frame


@pytest.mark.slow
def test_every_way_predicts_what_the_history_says(fedtide, folder, rows) -> None:
    """Without the table: of the run, its directory and its MLflow model are left."""
    import mlflow.pyfunc

    settings = sets(TABLE, *SETTINGS)
    assert fedtide("run", "--name", "one", *settings).status == 0
    assert not Path("runs/one/served.pt").exists(), "all clients are served the global model"
    data = load_data(Params.read(Path("params.yaml"), settings[1::2]).run())
    save(Path("runs/one"), data, Path("model"))
    test = rows.iloc[held_out(rows)]
    assert set(test["zone"]) - set(rows.drop(test.index)["zone"]), "no unknown category"
    assert test.isna().to_numpy().sum() > 10
    Path("rows.csv").unlink()
    shutil.rmtree("data")
    shutil.move("runs/one", "elsewhere")

    test.to_csv("test.csv", index=False)
    called = fedtide("predict", "elsewhere", "test.csv")
    assert (called.status, called.err) == (0, [])
    found = predictions(called.out)
    wanted = history("elsewhere")["test_accuracy"]
    assert (found["prediction"].to_numpy() == test["verdict"].to_numpy()).mean() == float(wanted)
    assert list(found) == ["prediction", *(f"probability_{name}" for name in ("late", "lost", "on time"))]
    assert np.allclose(found.iloc[:, 1:].sum(axis=1), 1, atol=1e-12)

    served = mlflow.pyfunc.load_model("model")
    for name, model in (("MLflow", served), ("Python", package.load_model("elsewhere"))):
        for frame in (test, pd.read_csv("test.csv"), pd.read_csv("test.csv", dtype={"size": str, "zone": str})):
            pd.testing.assert_frame_equal(
                model.predict(frame).reset_index(drop=True), found, check_exact=True, obj=name
            )

    test.to_parquet("test.parquet")
    assert fedtide("predict", "elsewhere", "test.parquet").out == called.out
    order = np.random.default_rng(0).permutation(len(test))
    test.iloc[order][list(test.columns[::-1])].drop(columns=["verdict", "who"]).to_csv("other.csv", index=False)
    assert fedtide("predict", "elsewhere", "other.csv", "--out", "out.csv").out == ["out.csv: predictions of 48 rows"]
    other = pd.read_csv("out.csv", float_precision="round_trip")
    assert (other["prediction"].to_numpy() == found["prediction"].to_numpy()[order]).all()
    np.testing.assert_allclose(other.iloc[:, 1:], found.iloc[order, 1:], rtol=0, atol=1e-6)


@pytest.fixture
def trained(fedtide, rows) -> pd.DataFrame:
    assert fedtide("run", "--name", "one", *sets(TABLE, *SETTINGS)).status == 0
    return rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two", "rows.csv"), "runs: 'two': no such run"),
        (("one", "none.csv"), "none.csv: no such file"),
        (("one", "bare.csv"), "bare.csv: no column 'size'; did you mean 'sise'? (known: express, sise, zone)"),
        (("one", "wrong.csv"), "wrong.csv, line 4: size is 'big', expected a number"),
        (
            ("one", "infinite.csv"),
            "infinite.csv, line 4: size is 'inf', expected a finite number, or nothing if unknown",
        ),
        (("one", "large.csv"), "large.csv, line 4: size is 'inf', expected a finite number, or nothing if unknown"),
        (("one", "wrong.parquet"), "wrong.parquet: not a readable table: "),
        (("one", "empty.csv"), "empty.csv: no"),
        (("one", "rows.csv", "--out", "no/out.csv"), "--out = 'no/out.csv' should be a new file in a folder"),
        (("one", "rows.csv", "--out", "rows.csv"), "--out = 'rows.csv' should be a new file"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(fedtide, folder, trained, arguments, message) -> None:
    trained.rename(columns={"size": "sise"})[["express", "sise", "zone"]].to_csv("bare.csv", index=False)
    for name, value in (("wrong", "big"), ("infinite", "inf"), ("large", "1e400")):
        sizes = [*trained["size"][:2], value, *trained["size"][3:]]
        trained.astype(object).assign(size=sizes).to_csv(f"{name}.csv", index=False)
    Path("wrong.parquet").write_text("rows")
    trained[:0].to_csv("empty.csv", index=False)
    before = sorted(folder.rglob("*"))
    assert fedtide("predict", *arguments).refusal.startswith(message)
    assert sorted(folder.rglob("*")) == before


def test_damage_is_one_line_and_seen_by_check(fedtide, folder, trained) -> None:
    stored = Path("runs/one/encoding.json")
    text, summary = stored.read_text(), Path("runs/one/summary.json").read_bytes()

    def refused() -> str:
        return fedtide("predict", "one", "rows.csv").refusal

    stored.write_text(text.replace('"red"', '"rad"'))
    assert refused().startswith("runs/one: encoding.json was changed; restore it, or delete its summary.json")
    assert fedtide("check").out == ["one: encoding.json was changed", "1 run: 1 damaged: one"]
    stored.unlink()
    assert "encoding.json is missing" in refused()
    # Without marks, what is read is checked all the same.
    Path("runs/one/summary.json").unlink()
    stored.write_text(text.replace('"red"', '"red", "pink"'))
    assert refused().startswith("runs/one/model.pt: does not match the current code of model mlp: ")
    # The same run restores it.
    stored.unlink()
    Path("runs/one/summary.json").write_bytes(summary)
    assert fedtide("run", "--name", "one", *sets(TABLE, *SETTINGS)).status == 0
    assert stored.read_text() == text
    assert fedtide("check").out == ["1 run: 1 intact"]


def test_runs_without_rows_or_a_model_are_one_line(fedtide, folder, rows) -> None:
    assert fedtide("run", "--name", "images").status == 0
    assert fedtide("run", "--name", "diverged", *sets(TABLE, *SETTINGS, "local.lr=1e30")).status == 1
    for name, message in (
        ("images", "no encoding.json, since its data (digits) are not rows of a table"),
        ("diverged", "no final model, the run is diverged"),
    ):
        assert fedtide("predict", f"runs/{name}", "rows.csv").refusal == f"runs/{name}: {message}"


def of_a_task(fedtide, frame: pd.DataFrame, label: str, *settings: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The held-out rows of a table with other labels, and what the command predicts of them after a run."""
    frame.to_csv("other.csv", index=False)
    chosen = sets(f"data={{{ROWS}, file: other.csv, {label}}}", *SETTINGS, *settings, "engine.precision=64-true")
    assert fedtide("run", "--name", "one", *chosen).status == 0
    test = frame.iloc[held_out(frame)]
    test.to_csv("test.csv", index=False)
    return test, predictions(fedtide("predict", "one", "test.csv").out)


@pytest.mark.slow
def test_a_regression_predicts_in_the_unit_of_its_label(fedtide, folder, rows) -> None:
    frame = rows.assign(minutes=rows["size"].fillna(5) * 20 + 100).drop(columns="verdict")
    label = "label: minutes, task: regression, target_scale: 50"
    test, found = of_a_task(fedtide, frame, label, "objective=mean_squared_error", "local.lr=0.01")
    assert list(found) == ["prediction"]
    error = (found["prediction"].to_numpy() - test["minutes"].to_numpy()) / 50
    assert np.abs(error).mean() == pytest.approx(float(history()["test_mae"]), abs=1e-6)
    assert (error**2).mean() == pytest.approx(float(history()["test_loss"]), rel=1e-6)


@pytest.mark.slow
def test_targets_of_different_scale_are_learned_and_predicted_each_in_its_own_unit(fedtide, folder, rows) -> None:
    size = rows["size"].fillna(5)
    frame = rows.assign(price=size * 50_000 + 200_000, rooms=size / 1000 + 3).drop(columns="verdict")
    label = "labels: [price, rooms], task: regression"
    test, found = of_a_task(fedtide, frame, label, "objective=mean_squared_error", "local.lr=0.05")
    assert list(found) == ["prediction_price", "prediction_rooms"]
    error = np.abs(found.to_numpy() - test[["price", "rooms"]].to_numpy())
    assert error.mean() == pytest.approx(float(history()["test_mae"]), rel=1e-6)
    assert float(history()["test_r2"]) > 0.3
    assert (error.mean(0) < test[["price", "rooms"]].std()).all()


@pytest.mark.slow
def test_several_labels_have_columns_of_their_own(fedtide, folder, rows) -> None:
    frame = rows.assign(big=rows["size"] > 5, far=rows["zone"] > 15).drop(columns="verdict")
    label = "labels: [big, far], task: multilabel"
    test, found = of_a_task(fedtide, frame, label, "objective=binary_cross_entropy")
    assert list(found) == ["prediction_big", "prediction_far", "probability_big", "probability_far"]
    shares, labels = found.iloc[:, 2:].to_numpy(), test[["big", "far"]].to_numpy(dtype=float)
    assert (found.iloc[:, :2].to_numpy() == (shares > 0.5)).all()
    loss = -(labels * np.log(shares) + (1 - labels) * np.log(1 - shares))
    assert loss.mean() == pytest.approx(float(history()["test_loss"]), rel=1e-6)
