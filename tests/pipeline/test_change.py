"""Which stages a change makes DVC run again, and which it leaves alone."""

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def project(built, tmp_path):
    return built[0].copy(tmp_path / "project")


def test_a_setting_of_one_algorithm_concerns_that_algorithm(project):
    other, own = project.runs("fedavg"), project.runs("fedprox")
    project.change(algorithms={"fedavg": {}, "fedprox": {"mu": 0.3}})
    ran, skipped = project.repro("report")
    assert ran - {"code"} == {"train@fedprox", "report"}
    assert {"download", "partition", "train@fedavg"} <= skipped
    assert project.runs("fedavg") == other
    assert project.runs("fedprox").keys() > own.keys()


def test_the_source_of_one_algorithm_concerns_that_algorithm(project):
    other, own = project.runs("fedprox"), project.runs("fedavg")
    source = project.root / "src/fedtide/algorithms/fedavg.py"
    source.write_text(source.read_text() + "\nSOMETHING_NEW = 1\n")
    ran, skipped = project.repro()
    assert ran == {"code", "train@fedavg", "report"}
    assert {"download", "partition", "train@fedprox", "tune"} <= skipped
    assert project.runs("fedprox") == other
    assert project.runs("fedavg").keys() > own.keys()


def test_a_comment_in_a_source_concerns_nothing(project):
    source = project.root / "src/fedtide/algorithms/fedavg.py"
    source.write_text("# a comment\n" + source.read_text())
    ran, skipped = project.repro()
    assert ran == {"code"}
    assert {"train@fedavg", "train@fedprox", "tune"} <= skipped


def test_the_world_concerns_every_algorithm_but_not_the_download(project):
    before = project.runs("fedavg")
    project.change(partition={"name": "dirichlet_equal", "alpha": 0.5})
    ran, skipped = project.repro("report")
    assert ran - {"code"} == {"partition", "train@fedavg", "train@fedprox", "report"}
    assert "download" in skipped
    assert project.runs("fedavg").keys() > before.keys()


def test_another_seed_reuses_the_runs_there_are(project):
    before = {**project.runs("fedavg"), **project.runs("fedprox")}
    compare = {"algorithms": ["fedavg", "fedprox"], "initialisers": ["previous"], "seeds": [0, 1], "workers": 1}
    project.change(compare=compare)
    ran, _ = project.repro("report")
    assert {"partition", "train@fedavg", "train@fedprox", "report"} <= ran
    after = {**project.runs("fedavg"), **project.runs("fedprox")}
    assert {path: after[path] for path in before} == before
    assert len(after) == 2 * len(before)
