import base64
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from synthetic_runs import changed, small_grid, write_run

from fedtide.records.frames import load
from fedtide.report import findings, parts
from fedtide.report.build import build
from fedtide.report.charts.printed import drawn
from fedtide.report.parts import Contents
from fedtide.report.sections.per_class import per_class
from fedtide.settings.experiment import ReportSettings

FIGURES = {"accuracy_over_rounds", "accuracy_over_bytes", "per_class", "transition_accuracy"}


def report(dirs, out, metric="accuracy", **options):
    settings = ReportSettings(title="A <title>", last=5, metric=metric)
    return build(dirs, out, Contents(settings, "fedtide report & more", **options))


def without_scripts(page):
    return re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The report of one run."""
    root = tmp_path_factory.mktemp("single")
    (root / "world.png").write_bytes(b"not really a picture")
    return report([write_run(root, "fedavg[bold]")], root / "out", world=root / "world.png")


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Runs, and their report."""
    root = tmp_path_factory.mktemp("grid")
    dirs = small_grid(root / "runs")
    return dirs, report(dirs, root / "one")


@pytest.mark.slow
def test_everything_is_written_twice_the_same(grid, tmp_path):
    dirs, summary = grid
    one = summary.page.parent
    report(dirs, tmp_path)
    first = contents(one)
    assert first == contents(tmp_path)
    tables = {"report.html", "table.csv", "comparison.csv", "transitions.csv", "metrics.json"}
    assert set(first) == tables | {f"{name}.png" for name in FIGURES}
    assert (summary.complete, summary.total, summary.warnings) == (12, 12, ())
    assert summary.page.name == "report.html"

    page = first["report.html"].decode()
    assert set(re.findall(r'<noscript><img src="(\w+).png"', page)) == FIGURES
    assert "A &lt;title&gt;" in page
    assert "fedtide report &amp; more" in page
    assert str(one.parent) not in page
    assert not re.search(r"https?:|href=|@import|<script[^>]+src", without_scripts(page))
    for name in FIGURES:
        assert b"matplotlib" not in first[f"{name}.png"].lower()

    table = pd.read_csv(one / "table.csv").set_index(["label", "initializer"])
    numbers = json.loads(first["metrics.json"])
    assert numbers["scaffold/average/last_mean"] == pytest.approx(table.loc[("scaffold", "average"), "last_mean"])
    assert numbers["fedavg/previous/seeds"] == 3

    compared = pd.read_csv(one / "comparison.csv")
    assert compared.groupby("metric").size().to_dict() == {"last": 3, "transition": 3}
    assert (compared["reference"] == "scaffold · average").all()
    assert (compared["difference"] < 0).all()
    assert compared["wilcoxon"].isna().all()
    assert "3 seeds: the intervals" in page


@pytest.mark.slow
def test_a_loss_is_lowest_where_its_complement_is_highest(grid, tmp_path):
    """The loss of the runs is one minus their accuracy."""
    dirs, reported = grid
    summary = report(dirs, tmp_path, metric="loss")
    one, other = (pd.read_csv(out / "table.csv") for out in (reported.page.parent, tmp_path))
    for key in ("final", "best", "last", "transition"):
        np.testing.assert_allclose(other[f"{key}_mean"], 1 - one[f"{key}_mean"], atol=1e-9)
        np.testing.assert_allclose(other[f"{key}_std"], one[f"{key}_std"], atol=1e-9)
    np.testing.assert_allclose(other["drop_mean"], one["drop_mean"], atol=1e-9)
    mine, theirs = (pd.read_csv(out / "comparison.csv") for out in (reported.page.parent, tmp_path))
    assert mine["reference"].tolist() == theirs["reference"].tolist()
    np.testing.assert_allclose(theirs["difference"], -mine["difference"], atol=1e-9)
    np.testing.assert_allclose(theirs["p_holm"], mine["p_holm"], rtol=1e-6)
    opposite = {"higher": "lower", "lower": "higher"}
    assert theirs["reading"].tolist() == [opposite.get(words, words) for words in mine["reading"]]
    number = r"0\.\d{4} ± 0\.\d{4}"
    lowest = rf"Lowest mean loss in the last 5 rounds: (.+), {number} \(3 seeds\)"
    wanted = rf"{lowest}; higher: (?:.+ {number}, ){{2}}.+ {number}\."
    sentence = re.fullmatch(wanted, summary.results[0])
    assert sentence is not None
    page = summary.page.read_text()
    assert sentence[1] == mine["reference"][0]
    assert '<th scope="col" class="number">Final loss</th>' in page
    assert '<th scope="col" class="number">Rise at a change</th>' in page
    assert "chosen for its lowest mean" in page


@pytest.mark.slow
def test_one_run_has_its_label_as_it_is_and_the_picture_of_its_world_and_is_compared_with_nothing(single):
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(single.table)
    assert "fedavg[bold]" in console.export_text()
    assert single.results[0].startswith("Mean accuracy in the last 5 rounds: fedavg[bold], ")
    page = single.page.read_text()
    assert "Paired comparison" not in page
    assert pd.read_csv(single.page.with_name("comparison.csv")).empty
    assert base64.b64encode(b"not really a picture").decode() in page


@pytest.mark.slow
def test_all_diverged(tmp_path):
    dirs = [write_run(tmp_path / "runs", seed=seed, state="diverged", until=8) for seed in (0, 1)]
    summary = report(dirs, tmp_path / "out")
    assert (summary.complete, summary.total, summary.results) == (0, 2, ())
    assert summary.warnings == (
        "fedavg · previous diverged: seed 0 in round 8, seed 1 in round 8. Not in means or tests; dotted in figures.",
    )
    assert summary.warnings[0] in summary.page.read_text()
    assert "0 of 2" in summary.page.read_text()
    assert not (tmp_path / "out" / "per_class.png").exists()
    assert not [key for key in json.loads((tmp_path / "out" / "metrics.json").read_text()) if key.endswith("_mean")]


def test_no_runs_yet(tmp_path):
    dirs = [write_run(tmp_path / "runs", state="running", until=0), tmp_path / "runs" / "gone"]
    summary = report(dirs, tmp_path / "out")
    missing, unfinished = summary.warnings
    assert missing.startswith("1 of 2 runs of `compare` are missing: run `fedtide compare`, or list in compare.")
    assert unfinished.startswith("fedavg · previous did not finish: ")
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".html", ".csv", ".json"}


def test_differences_are_listed_with_their_runs(tmp_path):
    starts, dirs = ("previous", "average"), []
    for start in starts:
        dirs += [write_run(tmp_path / "runs", label, start) for label in ("fedavg", "fedprox")]
    dirs.append(write_run(tmp_path / "runs", "scaffold", "previous", classes=5, rounds=6, lr=0.2))
    read = load(dirs)
    rows = findings.differences(read)
    assert ("algorithm.mu", "0.01", "fedprox") in rows
    assert ("local.lr", "0.1", "fedavg, fedprox") in rows
    assert ("local.lr", "0.2", "scaffold") in rows
    assert "algorithm.name" not in {name for name, _, _ in rows}
    assert findings.warnings(read) == [
        "Runs differ in scenario.rounds_per_session: differences between rows are not due to the methods alone."
    ]


@pytest.mark.parametrize("label", ["pooled", "mine"])
def test_what_defines_a_built_in_reference_is_no_difference_of_worlds(tmp_path, label):
    dirs = [write_run(tmp_path / "runs", name) for name in ("fedavg", label)]
    changed(dirs[1], {"scenario": json.loads((dirs[0] / "settings.json").read_text())["scenario"] | {"memory": 10**6}})
    wanted = "Runs differ in scenario.memory: differences between rows are not due to the methods alone."
    assert findings.warnings(load(dirs)) == ([] if label == "pooled" else [wanted])


def test_accuracy_per_class_of_one_method_is_drawn(tmp_path):
    """A row of cells, each of height 1: around a single center Matplotlib draws none."""
    contents = Contents(ReportSettings(title="title", last=5), "", classes=tuple("abcdefghij"))
    chart = per_class(parts.Source.read([write_run(tmp_path / "runs")], contents).records)
    assert chart.x.names == contents.classes
    axes = drawn(chart).axes[0]
    (mesh,) = axes.collections
    corners = mesh.get_coordinates()
    assert corners.shape == (2, 11, 2)
    assert (corners[0, 0].tolist(), corners[1, 10].tolist()) == ([-0.5, -0.5], [9.5, 0.5])
