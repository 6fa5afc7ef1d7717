"""Which stages a change makes DVC run again, and which it leaves alone."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ALWAYS = {"download", "inputs"}


@pytest.fixture
def project(built, tmp_path):
    return built[0].copy(tmp_path / "project")


def test_a_setting_of_one_algorithm_concerns_that_algorithm(project):
    other, own = project.runs("fedavg"), project.runs("fedprox")
    project.change(algorithms={"fedavg": {}, "fedprox": {"mu": 0.3}})
    ran, skipped = project.repro("report")
    assert ran - ALWAYS == {"train@fedprox", "report"}
    assert {"timeline", "train@fedavg"} <= skipped
    assert project.runs("fedavg") == other
    assert project.runs("fedprox").keys() > own.keys()


def test_dvc_status_names_the_stages_that_a_setting_concerns(project):
    for groups, stages in [
        ({"uplink": [{"name": "top_k", "fraction": 0.3}]}, {"train@fedavg", "train@fedprox", "tune"}),
        ({"downlink": {"name": "top_k", "fraction": 0.3}}, {"train@fedavg", "train@fedprox", "tune"}),
        ({"aggregation": {"name": "median"}}, {"train@fedavg", "train@fedprox", "tune"}),
        ({"attack": {"name": "sign_flip", "share": 0.4}}, {"train@fedavg", "train@fedprox", "tune"}),
        ({"detector": {"name": "ddm"}}, {"train@fedavg", "train@fedprox", "tune"}),
        ({"checkpoint": {"every": 3}, "engine": {"precision": "64-true", "workers": 1}}, set()),
        ({"algorithms": {"fedavg": {"with": {"local": {"lr": 0.3}}}, "fedprox": {"mu": 0.1}}}, {"train@fedavg"}),
    ]:
        other = project.copy(project.root.parent / f"with-{next(iter(groups))}")
        other.change(**groups)
        other.repro("inputs")
        assert set(json.loads(other.dvc("status", "--json"))) - ALWAYS == stages


def test_a_changed_link_is_in_the_report(project):
    before = project.outcomes("fedavg")
    project.change(attack={"name": "sign_flip", "share": 0.4}, aggregation={"name": "median"})
    project.repro("report")
    assert project.outcomes("fedavg") != before


def test_the_source_of_one_algorithm_concerns_that_algorithm(project):
    other, own = project.runs("fedprox"), project.runs("fedavg")
    source = project.root / "src/fedtide/methods/algorithms/fedavg.py"
    source.write_text(source.read_text() + "\nSOMETHING_NEW = 1\n")
    ran, skipped = project.repro()
    assert ran - ALWAYS == {"train@fedavg", "report"}
    assert {"timeline", "train@fedprox", "tune"} <= skipped
    assert project.runs("fedprox") == other
    assert project.runs("fedavg").keys() > own.keys()


def test_a_comment_in_a_source_concerns_nothing(project):
    source = project.root / "src/fedtide/methods/algorithms/fedavg.py"
    source.write_text("# a comment\n" + source.read_text())
    ran, skipped = project.repro()
    assert ran == ALWAYS
    assert {"train@fedavg", "train@fedprox", "tune"} <= skipped


def test_the_world_concerns_every_algorithm(project):
    before = project.runs("fedavg")
    project.change(partition={"name": "dirichlet_equal", "alpha": 0.5})
    ran, _ = project.repro("report")
    assert ran - ALWAYS == {"timeline", "train@fedavg", "train@fedprox", "report"}
    assert project.runs("fedavg").keys() > before.keys()


def test_another_seed_reuses_the_runs_there_are(project):
    before = {**project.runs("fedavg"), **project.runs("fedprox")}
    compare = {"algorithms": ["fedavg", "fedprox"], "initializers": ["previous"], "seeds": [0, 1], "workers": 1}
    project.change(compare=compare)
    ran, _ = project.repro("report")
    assert {"timeline", "train@fedavg", "train@fedprox", "report"} <= ran
    after = {**project.runs("fedavg"), **project.runs("fedprox")}
    assert {path: after[path] for path in before} == before
    assert len(after) == 2 * len(before)


def test_a_file_of_the_scenario_concerns_every_algorithm(project):
    trace = project.root / "visits.csv"
    trace.write_text("client,join,leave\n0,0,4\n1,0,4\n2,1,3\n")
    project.change(scenario={"name": "trace", "file": "visits.csv"})
    project.repro()
    before = project.runs("fedavg")
    trace.write_text(trace.read_text().replace("2,1,3", "2,1,4"))
    ran, _ = project.repro()
    assert ran - ALWAYS == {"timeline", "train@fedavg", "train@fedprox", "report", "tune"}
    assert project.runs("fedavg").keys() > before.keys()
    assert project.repro()[0] == ALWAYS


def test_a_table_of_the_user_concerns_every_algorithm(project):
    plugins, table = project.root.parent / "plugins", project.root.parent / "table.csv"
    shutil.copytree(Path(__file__).parents[1] / "drop_in" / "data", plugins / "data")
    rows = [f"{row % 3},{row % 7},{row % 5}" for row in range(60)]
    table.write_text("\n".join(rows))
    project.environment["FEDTIDE_PLUGINS"] = str(plugins)
    project.change(data={"name": "rows", "file": str(table)})
    project.repro("train@fedavg")
    before = project.runs("fedavg")
    assert project.repro("train@fedavg")[0] == ALWAYS
    table.write_text("\n".join(["1,0,0", *rows[1:]]))
    ran, _ = project.repro("train@fedavg")
    assert ran - ALWAYS == {"timeline", "train@fedavg"}
    assert project.runs("fedavg").keys() > before.keys()
