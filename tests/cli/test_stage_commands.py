"""The commands behind the stages of the pipeline, and the grid."""

import json
import os
import re
import shlex
import shutil
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import sets
from fedtide.world.timeline import Timeline

GRID = sets("compare.algorithms=[fedavg, scaffold]", "compare.seeds=[3]")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_download_writes_what_the_data_are(fedtide, folder):
    called = fedtide("download", "--out", "facts/digits.json")
    assert called.out == ["digits: 1,438 training and 359 test samples, 10 classes"]
    facts = json.loads((folder / "facts/digits.json").read_text())
    assert (facts["train"], facts["test"], facts["classes"], facts["sample"]) == (1438, 359, 10, [1, 8, 8])
    assert sum(facts["train_per_class"]) == 1438
    assert len(facts["digest"]) == 64


@pytest.mark.slow
def test_partition_writes_a_timeline_for_every_seed_and_runs_use_it(fedtide, folder):
    (folder / "worlds").mkdir()
    (folder / "worlds/seed-0-012345abcdef.npz").write_bytes(b"of settings that are no more")
    (folder / "worlds/notes.txt").write_text("mine")
    called = fedtide("timeline", "--set", "compare.seeds=[0, 1]")
    assert (folder / "worlds/notes.txt").read_text() == "mine"
    files = sorted((folder / "worlds").glob("seed-*"))
    assert [path.suffix for path in files] == [".json", ".npz", ".png"] * 2
    assert len(called.err) == 2
    worlds = [path for path in files if path.suffix == ".npz"]
    listed = json.loads(fedtide("timeline", "--set", "compare.seeds=[0, 1]", "--json").out[-1])
    facts = {"clients": 6, "rounds": 4, "sessions": 2}
    assert listed == [{"file": f"worlds/{path.name}", **facts} for path in worlds]
    first, second = map(Timeline.load, worlds)
    assert (first.num_clients, first.rounds, first.sessions) == (6, 4, 2)
    assert any(not np.array_equal(*pair) for pair in zip(first.shards, second.shards, strict=True))
    assert fedtide("run", "-q", "--name", "with").status == 0
    assert contents(folder / "runs/with")[folder / "runs/with/timeline.npz"] == files[1].read_bytes()
    shutil.rmtree(folder / "worlds")
    assert fedtide("run", "-q", "--name", "without").status == 0
    models = [torch.load(folder / "runs" / name / "model.pt", weights_only=True) for name in ("with", "without")]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.slow
def test_two_at_once_give_the_bits_of_one_and_what_is_done_is_reused(fedtide, folder):
    called = fedtide("compare", "--json", *GRID, "--set", "compare.workers=2")
    assert called.status == 0
    summaries = json.loads(called.out[-1])
    assert [(item["label"], item["seed"], item["state"]) for item in summaries] == [
        ("fedavg", 3, "complete"), ("scaffold", 3, "complete")
    ]  # fmt: skip
    for item in summaries:
        alone = fedtide("run", "-q", "--json", "--runs", "alone", *sets(f"algorithm={item['label']}", "seed=3"))
        assert json.loads(alone.out[-1])["run_key"] == item["run_key"]
        for name in ("model.pt", "per_class.csv"):
            together, single = (folder / runs / item["run_key"] / name for runs in ("runs", "alone"))
            assert together.read_bytes() == single.read_bytes()
    before = contents(folder / "runs")
    wider = fedtide("compare", "--json", *GRID, *sets("compare.initializers=[previous, restart]", "compare.workers=1"))
    assert len(json.loads(wider.out[-1])) == 4
    assert {path: path.read_bytes() for path in before} == before
    assert sum("already complete" in line for line in wider.err) == 2

    report = fedtide("report", *GRID, "--set", "report.title=Two of them", "--out", "page")
    assert report.status == 0
    text = "\n".join(report.out)
    assert all(label in text for label in ("fedavg", "scaffold"))
    page = unescape((folder / "page/report.html").read_text())
    assert "Two of them" in page
    (line,) = re.findall(r"fedtide compare .*? && fedtide report [^<]*", page)
    first, second = (shlex.split(part) for part in line.split(" && "))
    own = [*GRID, "--set", "report.title=Two of them"]
    assert first == ["fedtide", "compare", "--params", "params.yaml", *own]
    assert second == ["fedtide", "report", "--params", "params.yaml", *own, "--out", "page"]


@pytest.mark.slow
def test_a_report_on_runs_of_somebody_else_goes_to_a_folder_of_ones_own(fedtide, folder, monkeypatch):
    """Where nothing can be written beside the runs, nothing has to be; a run is refused there."""
    assert fedtide("compare", "-q", *GRID).status == 0
    access, before = os.access, contents(folder / "runs")
    monkeypatch.setattr(
        os, "access", lambda path, mode: (Path(path).name, mode) != ("runs", os.W_OK) and access(path, mode)
    )
    assert fedtide("report", *GRID, "--out", "mine").status == 0
    assert (folder / "mine/report.html").is_file()
    assert contents(folder / "runs") == before
    assert fedtide("run", "-q").refusal == "runs: this folder cannot be written"
