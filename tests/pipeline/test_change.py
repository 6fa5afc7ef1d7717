"""Which stages a change makes DVC run again, and which it leaves alone."""

import pytest

pytestmark = pytest.mark.slow

ALWAYS = {"download", "inputs"}


def test_a_setting_of_one_algorithm_concerns_that_algorithm(project):
    other, own = project.runs("fedavg"), project.runs("fedprox")
    project.change(algorithms={"fedavg": {}, "fedprox": {"mu": 0.3}})
    ran, skipped = project.repro("report")
    assert ran - ALWAYS == {"train@fedprox", "report"}
    assert {"timeline", "train@fedavg"} <= skipped
    assert project.runs("fedavg") == other
    assert project.runs("fedprox").keys() > own.keys()


def test_the_source_of_one_algorithm_concerns_that_algorithm(project):
    other, own = project.runs("fedprox"), project.runs("fedavg")
    source = project.root / "src/fedtide/methods/algorithms/fedavg.py"
    source.write_text(source.read_text() + "\nSOMETHING_NEW = 1\n")
    ran, skipped = project.repro()
    assert ran - ALWAYS == {"train@fedavg", "report"}
    assert {"timeline", "train@fedprox", "tune"} <= skipped
    assert project.runs("fedprox") == other
    assert project.runs("fedavg").keys() > own.keys()


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
    visits = project.root / "visits.csv"
    before = project.runs("fedavg")
    visits.write_text(visits.read_text().replace("2,1,4", "2,1,5"))
    ran, _ = project.repro()
    assert ran - ALWAYS == {"timeline", "train@fedavg", "train@fedprox", "report", "tune"}
    assert project.runs("fedavg").keys() > before.keys()
