"""The first ``dvc repro`` and the one after it; .ci/run makes the whole pipeline, and finds ``dvc.lock`` unchanged."""

import pytest

pytestmark = pytest.mark.slow

ALWAYS = {"download", "inputs"}
STAGES = {*ALWAYS, "timeline", "train@fedavg", "train@fedprox", "report", "tune"}


def test_the_first_repro_makes_everything(built):
    project, ran = built
    assert ran == STAGES
    for label in ("fedavg", "fedprox"):
        run = project.outcome(label)
        assert (run["label"], run["seed"], run["state"], run["rounds"]) == (label, 0, "complete", 6)
        assert (project.root / "runs" / run["run_key"] / "model.pt").is_file()
        assert (project.root / f"inputs/algorithms/{label}.json").is_file()
    assert len(list((project.root / "worlds").glob("*.npz"))) == 1
    assert "fedprox" in (project.root / "report/report.html").read_text()
    assert (project.root / "tuning/best.yaml").is_file()
    assert not list(project.root.rglob("*.part"))


def test_a_second_repro_only_looks_at_data_and_sources(project):
    lock = (project.root / "dvc.lock").read_bytes()
    ran, skipped = project.repro()
    assert (ran, skipped) == (ALWAYS, STAGES - ALWAYS)
    assert (project.root / "dvc.lock").read_bytes() == lock
