"""A run is used with the models that its clients are served: each row with its owner's, and what the command says of it."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedtide as package
from fedtide.core.errors import SettingsError
from fedtide.records.client_models import ClientModels, Kind
from fedtide.runs.mlflow.logged_model import save
from fedtide.settings.params import Params
from fedtide.world.storage.prepared import load_data

SHOPS, MONTHS, ROWS = 6, 3, 12
SPLIT = {"by": "time", "share": 0.25}
SETTINGS = {
    "data": {"name": "table", "file": "rows.csv", "label": "sold", "client": "shop", "time": "day", "split": SPLIT},
    "partition": "natural",
    "scenario": {"name": "calendar", "period": "month", "rounds_per_period": 2},
    "model": "softmax_regression",
    "client_state": {"on_session_start": "keep"},
    "local": {"epochs": 1, "batch_size": 10, "lr": 0.3},
    "evaluation": {"every": 2, "earlier_sessions": True},
    "tracking": {"mlflow": False},
}


def table() -> pd.DataFrame:
    """Rows of shops 1 to 6 in three months; two of them behave contrary to the others, and shop 6 ends after a month."""
    rng = np.random.default_rng(5)
    shop, month, row = (axis.ravel() for axis in np.mgrid[1 : SHOPS + 1, 1 : MONTHS + 1, :ROWS])
    a, b = rng.normal(size=(2, len(shop))).round(4)
    sold = (a + 0.3 * b > 0) ^ (shop < 3)
    days = [f"2025-{m:02}-{d:02}" for m, d in zip(month, row + 1, strict=True)]
    frame = pd.DataFrame({"shop": shop, "day": days, "a": a, "b": b, "sold": np.where(sold, "yes", "no")})
    return frame.loc[(frame["shop"] < SHOPS) | (month == 1)].reset_index(drop=True)


def held_out(frame: pd.DataFrame, month: int) -> pd.DataFrame:
    """The last quarter of each shop's rows in a month, see ``split``."""
    day = pd.to_datetime(frame["day"]).dt
    return frame.loc[(day.month == month) & (day.day > 0.75 * ROWS)]


def accuracy(found: pd.DataFrame, rows: pd.DataFrame) -> float:
    return float((found["prediction"].to_numpy() == rows["sold"].to_numpy()).mean())


@pytest.fixture
def rows(folder: Path) -> pd.DataFrame:
    frame = table()
    frame.to_csv("rows.csv", index=False)
    return frame


def trained(algorithm: Any, name: str = "one", **others: Any) -> dict[str, Any]:
    """The summary of a run."""
    package.run(Params({**SETTINGS, "algorithm": algorithm, **others}), name=name)
    found: dict[str, Any] = json.loads(Path("runs", name, "summary.json").read_text())
    return found


@pytest.mark.slow
def test_every_way_predicts_what_the_run_has_scored(fedtide, folder, rows) -> None:
    """On all held-out rows of all months, by the command, in Python and by the logged model."""
    import mlflow.pyfunc

    summary = trained({"name": "ditto", "lambda_": 0.1})
    assert (
        accuracy(package.load_model("runs/one").predict(held_out(rows, MONTHS)), held_out(rows, MONTHS))
        == (summary["final_served_accuracy"])
    )
    assert summary["final_served_accuracy"] > summary["final_accuracy"]
    with Path("runs/one/session_scores.csv").open() as stream:
        scored = {int(row["tested"]): row for row in csv.DictReader(stream) if int(row["session"]) == MONTHS}
    every = pd.concat([held_out(rows, month) for month in scored])
    every.to_csv("every.csv", index=False)
    called = fedtide("predict", "one", "every.csv")
    assert called.status == 0
    found = pd.read_csv(io.StringIO("\n".join(called.out)), float_precision="round_trip")
    for month in scored:
        part = found[(pd.to_datetime(every["day"]).dt.month == month).to_numpy()]
        assert accuracy(part, held_out(rows, month)) == float(scored[month]["test_served_accuracy"])

    model = package.load_model("runs/one")
    for shop, own in every.groupby("shop"):
        alone = package.load_model("runs/one", client=str(shop)).predict(own.drop(columns="shop"))
        pd.testing.assert_frame_equal(alone, model.predict(own), check_exact=True)
    save(Path("runs/one"), load_data(Params(SETTINGS).run()), Path("model"))
    logged = mlflow.pyfunc.load_model("model").predict(pd.read_csv("every.csv"))
    pd.testing.assert_frame_equal(logged, found, check_exact=True)


@pytest.mark.slow
def test_models_that_clients_share_are_stored_once(folder, rows) -> None:
    trained({"name": "ifca", "clusters": 2})
    kept = ClientModels.read(Path("runs/one/served.pt"))
    assert kept is not None
    assert set(kept.kinds) == {"cluster"}
    assert {len(value) for value in kept.weights.values()} == {3}, "two clusters, and the model for newcomers"
    contrary, others = (set(kept.models_of(names).tolist()) for names in (["1", "2"], ["3", "4", "5"]))
    assert len(contrary) == len(others) == 1
    assert not contrary & others
    whole = torch.load("runs/one/model.pt", weights_only=True)
    assert all(torch.equal(kept.weights[name][kept.newcomer], whole[name]) for name in kept.weights)


@pytest.mark.slow
def test_the_command_says_which_models_rows_got(fedtide, folder, rows) -> None:
    """A shop that ended has no model of its own any more, and others were never seen: newcomers, who get the global model."""
    trained("ditto", client_state={"on_session_start": "reset"})
    new = pd.concat([rows[:2].assign(shop=f"new {number}") for number in range(6)])
    pd.concat([rows[:5], rows[rows["shop"] == SHOPS][:3], new]).to_csv("some.csv", index=False)
    called = fedtide("predict", "one", "some.csv")
    assert (called.status, called.err) == (0, [
        "one: 20 rows: 5 by a model of their client's own, 15 by the model for newcomers (6, new 0, new 1, new 2, new 3 "
        "and 2 more)"
    ])  # fmt: skip
    Path("runs/one/served.pt").rename("elsewhere.pt")
    assert fedtide("predict", "one", "some.csv").err[0].startswith("fedtide: runs/one: served.pt is missing")
    Path("elsewhere.pt").rename("runs/one/served.pt")
    assert fedtide("check").out == ["1 run: 1 intact"]


def test_a_run_that_keeps_the_global_model_alone_says_so(fedtide, folder, rows) -> None:
    kept = trained("ditto")
    whole = Path("runs/one/model.pt").read_bytes()
    Path("runs/one").rename("runs/two")
    summary = trained("ditto", keep="global")
    assert not Path("runs/one/served.pt").exists()
    assert Path("runs/one/model.pt").read_bytes() == whole
    different = {"seconds", "served", "files", "hash"}
    assert {key: summary[key] for key in summary if key not in different} == {
        key: kept[key] for key in kept if key not in different
    }
    rows[["a", "b"]].to_csv("bare.csv", index=False)
    called = fedtide("predict", "one", "bare.csv")
    line = f"one: {len(rows)} rows: all by the global model, since the run has kept no models of its clients (keep: global)"
    assert (called.status, called.err, len(called.out)) == (0, [line], len(rows) + 1)
    with pytest.raises(
        SettingsError, match=r"client = '1': the run has kept no models of its clients \(keep: global\)"
    ):
        package.load_model("runs/one", client="1")


def test_rows_without_a_model_are_one_line(fedtide, folder, rows) -> None:
    trained("local")
    rows[["a", "b"]].to_csv("bare.csv", index=False)
    rows.rename(columns={"shop": "shops"}).to_csv("other.csv", index=False)
    rows.assign(shop=[*rows["shop"][:-1], None]).to_csv("empty.csv", index=False)
    pd.concat([rows[:3], rows[:3].assign(shop=99), rows[:1].assign(shop=77)]).to_csv("new.csv", index=False)
    for file, message in (
        ("bare.csv", "bare.csv: no column 'shop', which says whose model a row gets (data.client) (known: a, b)"),
        ("other.csv", "other.csv: no column 'shop', which says whose model a row gets (data.client); did you mean"),
        ("empty.csv", f"empty.csv, line {len(rows) + 1}: shop is empty, expected a client"),
        ("new.csv", "new.csv: no model for 77, 99: the run trains no global model, and none of its clients' models is"),
    ):
        assert fedtide("predict", "one", file).refusal.startswith(message)
    with pytest.raises(SettingsError, match=r"client = '7' is not a client of the run \(known: 1, 2, 3, 4, 5, 6\)$"):
        package.load_model("runs/one", client="7")


@pytest.mark.slow
def test_a_run_without_any_model_is_refused(fedtide, folder, rows) -> None:
    static = {"partition": "iid", "scenario": {"name": "static", "num_clients": 3, "rounds": 2}}
    for name, settings, why in (
        ("one", {"keep": "global"}, "(keep: global)"),
        ("two", static, "(its clients do not own the data's samples)"),
    ):
        trained("local", name, **settings)
        message = f"nothing to predict with: the run has kept no models of its clients {why}"
        line = f"runs/{name}: {message}, and algorithm local has no global one"
        assert fedtide("predict", name, "rows.csv").refusal == line


def test_equal_numbers_are_one_owner_unless_two_have_it() -> None:
    def of(*owners: str) -> ClientModels:
        kinds: list[Kind] = ["own" for _ in owners]
        return ClientModels({}, owners, tuple(kinds), torch.arange(len(owners)), -1, "shop")

    assert of("7", "10").models_of(["7", "7.0", "010", "10"]).tolist() == [0, 0, 1, 1]
    both = of("007", "7")
    assert both.models_of(["007", "7"]).tolist() == [0, 1]
    with pytest.raises(SettingsError, match="no model for 07: "):
        both.models_of(["07", "7"])
    assert both.described(["7", "007", "07"]) == (
        "3 rows: 2 by a model of their client's own, 1 by the model for newcomers (07)"
    )
