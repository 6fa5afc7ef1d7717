"""Records as a script or a notebook shows them."""

import pytest

import fedtide

FILE = {
    "model": "softmax_regression",
    "scenario": {"name": "static", "num_clients": 3, "rounds": 2},
    "engine": {"accelerator": "cpu", "workers": 1},
    "compare": {"algorithms": ["fedavg", "fedprox"], "seeds": [0, 1]},
}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("brief")
    params = fedtide.Params.read(FILE, [f"data.root={folder / 'data'}"])
    return fedtide.compare(params, folder / "runs", workers=1)


def test_they_are_a_short_table_of_methods(records):
    title, heads, *lines = repr(records).splitlines()
    assert title == "4 runs: 4 complete"
    assert heads.split() == ["label", "initializer", "runs", "final", "test", "accuracy", "std"]
    last = records.history[records.history["round"] == 2].groupby("label").test_accuracy.agg(["mean", "std"])
    assert [line.split()[:3] for line in lines] == [["fedavg", "previous", "2"], ["fedprox", "previous", "2"]]
    for line in lines:
        label, _, _, mean, std = line.split()
        assert (float(mean), float(std)) == pytest.approx(last.loc[label].tolist(), abs=5e-5)


def test_a_notebook_has_them_as_a_table(records):
    page = records._repr_html_()
    assert page.startswith("<p>4 runs: 4 complete</p><table")
    assert page.count("<tr") == 3


def test_a_regression_has_its_own_score(tmp_path):
    rows = "x,y\n" + "".join(f"{n},{2 * n}\n" for n in range(40))
    (tmp_path / "t.csv").write_text(rows)
    data = {
        "name": "table",
        "file": str(tmp_path / "t.csv"),
        "label": "y",
        "task": "regression",
        "root": str(tmp_path / "d"),
    }
    params = fedtide.Params(
        {**FILE, "data": data, "model": "softmax_regression", "objective": "mean_squared_error", "partition": "iid"}
    )
    assert "final test R²" in repr(fedtide.run(params, tmp_path / "runs"))
