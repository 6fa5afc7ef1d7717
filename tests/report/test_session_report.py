"""The page of a comparison of initializers: tables of session changes, weights, losses, costs."""

import re

import pandas as pd
import pytest
from synthetic_runs import write_run
from synthetic_sessions import ENERGY, LATENCY, START, write_sessions

from fedtide.report.build import build
from fedtide.report.parts import Contents
from fedtide.report.tables.transitions import Rules


def report(dirs, out, **options):
    return build(dirs, out, Contents("Sessions", 5, "fedtide report", **options))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    root = tmp_path_factory.mktemp("sessions")
    dirs = [write_sessions(root / "runs", a, i, s) for a in ("fedavg", "moon") for i in START for s in (0, 1)]
    report(dirs, root / "out")
    return root / "out"


def test_the_page_has_tables_and_figures_of_the_changes(out):
    page = (out / "report.html").read_text()
    assert [int(number) for number in re.findall(r"<b>Table (\d+)", page)] == [1, 2, 3, 4, 5]
    assert "Accuracy in the first 10 rounds after a session change, %" in page
    assert "Sessions 4 to 7. Mean" in page
    assert "Recovery after a session change, compared with dynamic" in page
    assert ">1 (2)<" in page, "a round until recovery, two with the gradient round"
    assert {"weights.png", "session_start_losses.png", "transitions.csv"} <= {path.name for path in out.iterdir()}
    frame = pd.read_csv(out / "transitions.csv")
    assert len(frame) == 2 * 5 * 4
    assert frame["rounds_median"].notna().all()


def test_costs_of_a_run_are_those_of_all_its_rounds(out):
    table = pd.read_csv(out / "table.csv").set_index(["label", "initializer"])
    assert table.loc[("moon", "previous"), "latency_mean"] == pytest.approx(84 * LATENCY)
    assert table.loc[("moon", "dynamic"), "energy_mean"] == pytest.approx((84 + 6) * ENERGY)


def test_window_counting_and_reference_are_settings(out, tmp_path):
    rules = Rules(window=3, counting="all", reference="average", rho=0.5)
    page = report(
        [write_sessions(tmp_path, "fedavg", i, 0) for i in ("average", "previous")], tmp_path / "out", rules=rules
    )
    text = page.page.read_text()
    assert "Sessions 2 to 7. Mean" in text
    assert "first 3 rounds" in text
    assert "compared with average" in text
    assert not (tmp_path / "out" / "weights.png").exists()
    assert not (tmp_path / "out" / "session_start_losses.png").exists()


def test_without_the_reference_there_is_no_recovery(tmp_path):
    text = report([write_run(tmp_path / "runs", initializer="average")], tmp_path / "out").page.read_text()
    assert "Recovery" not in text
    assert "Session 2. Mean" in text
