"""Commands take clients by the names that the data have for them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import Fedtide, sets
from small_runs import events

TABLE = "data={name: table, file: rows.csv, client: hospital, label: y}"
RUN = (TABLE, "partition=natural", "scenario={name: static, num_clients: null, rounds: 2}", "model=softmax_regression")


@pytest.mark.slow
def test_a_hospital_is_erased_by_its_name_and_no_other(fedtide: Fedtide, folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {"hospital": np.repeat([f"{3 * number:04d}" for number in range(1, 13)], 12), "x": rng.normal(size=144)}
    pd.DataFrame({**rows, "y": np.where(rows["x"] > 0, "yes", "no")}).to_csv("rows.csv", index=False)
    for given in ("0012", "'0012'"):
        erase = f"erase=[{{name: retrain, clients: [{given}], at: 1}}]"
        assert fedtide("run", "--name", given.strip("'"), *sets(*RUN, erase, "algorithm=fedavg")).status == 0
        assert [event["clients"] for event in events(folder / "runs" / "0012", "request")] == [["0012"]]
    called = fedtide("run", *sets(*RUN, "erase=[{name: retrain, clients: [12], at: 1}]", "algorithm=fedavg"))
    assert (called.status, "erase.clients: unknown client 12;" in called.err[-1]) == (2, True)
    assert called.err[-1].endswith("did you mean '0012'?")
    called = fedtide("contribution", *sets(*RUN), "--clients", "0012,0036")
    assert {line.split()[0] for line in called.out[1:3]} == {"0012", "0036"}
