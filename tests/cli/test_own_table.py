"""Tables that are not as one would wish, through ``fedtide run`` with clients and periods of the table's own."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import sets

SETTINGS = (
    "data={name: table, file: rows.csv, client: who, time: when}",
    "scenario={name: calendar, rounds_per_period: 1}",
    "partition=natural",
)


def table(count=300):
    """Rows of six clients in four months, in no order."""
    rng = np.random.default_rng(5)
    month, day, x = rng.integers(1, 5, count), rng.integers(1, 28, count), rng.normal(size=count).round(3)
    when = [f"2013-{number:02}-{of_month:02}" for number, of_month in zip(month, day, strict=True)]
    return pd.DataFrame({"who": rng.integers(0, 6, count), "when": when, "x": x, "label": (x > 0).astype(int)})


@pytest.mark.slow
def test_a_class_that_comes_later_is_an_output_from_the_start(fedtide):
    frame = table()
    frame.loc[(frame["when"] >= "2013-03") & (frame["x"] > 0.8), "label"] = 2
    frame.to_csv("rows.csv", index=False)
    assert fedtide("run", "--name", "one", *sets(*SETTINGS)).status == 0
    with Path("runs/one/per_class.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["split"] == "test"]
    assert [bool(row["class_2"]) for row in rows] == [False, False, True, True]
    assert all(row["class_0"] and row["class_1"] for row in rows)


@pytest.mark.slow
def test_rows_to_predict_are_read_as_the_table_was(fedtide, folder):
    """With its signs of missing values, by a CSV file as a program writes it, and by Parquet."""
    frame = table().assign(color=["null", "red", "?"] * 100, x=lambda rows: rows["x"].where(rows["x"] < 1, -999))
    frame.to_csv("rows.csv", index=False)
    written = "data={name: table, file: rows.csv, client: who, time: when, missing: ['?', -999]}"
    called = fedtide("run", "--name", "one", *sets(written, *SETTINGS[1:], "model=softmax_regression"))
    assert called.status == 0
    assert any("color: read as names: 'null' (100 rows)" in line for line in called.err)
    frame.to_csv("numbered.csv")
    missing = frame.assign(color=["null", "red", None] * 100, x=frame["x"].where(frame["x"] > -999))
    missing.to_parquet("rows.parquet")
    found = [fedtide("predict", "one", file).out for file in ("rows.csv", "numbered.csv", "rows.parquet")]
    assert len(found[0]) == 301
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_rows_to_predict_are_written_as_the_table(fedtide):
    frame = table()
    frame.to_csv("rows.csv", index=False, sep=";", decimal=",")
    written = "data={name: table, file: rows.csv, client: who, time: when, delimiter: ';', decimal: ','}"
    assert fedtide("run", "--name", "one", *sets(written, *SETTINGS[1:], "model=softmax_regression")).status == 0
    called = fedtide("predict", "one", "rows.csv")
    assert (called.status, len(called.out)) == (0, 301)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "tested"), [("fedavg", "all"), ("ditto", "present")])
def test_periods_without_test_rows_have_no_score(fedtide, algorithm, tested):
    """A run, its comparison, its report and trees go on, and means over the periods are of those that have rows."""
    frame = table(120).sort_values("when")
    frame[:90].to_csv("rows.csv", index=False)
    given = [SETTINGS[0].replace("}", ", split: {period: day}}"), f"partition={{name: natural, test_on: {tested}}}"]
    given += [
        "scenario={name: calendar, rounds_per_period: 1, period: day, next_period_on: held_out}",
        "validation=0.2",
    ]
    given += [f"compare={{algorithms: [{algorithm}], seeds: [0], workers: 1}}", "evaluation.clients_every=1"]
    given += ["evaluation={splits: [test, validation], metrics: [auroc], earlier_sessions: true}", "objective=focal"]
    called = fedtide("compare", "--json", *sets(*given))
    assert called.status == 0, called.err
    (line,) = [line for line in called.err if "without a test sample" in line]
    assert " periods have no score in rounds without a test sample, first 2013-0" in line
    (summary,) = json.loads(called.out[-1])
    rows = list(csv.DictReader((Path("runs") / summary["run_key"] / "history.csv").open()))
    scores = [float(row["test_served_accuracy_next"] or "nan") for row in rows]
    assert 0 < np.isnan(scores[:-1]).sum() < len(scores) - 1
    assert summary["mean_next_served_accuracy"] == pytest.approx(np.nanmean(scores))
    assert fedtide("report", *sets(*given)).status == 0
    assert fedtide("trees", *sets(*given[:4])).status == 0
