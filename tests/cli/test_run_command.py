import json

import torch

from commands import sets

SUMMARY = {
    "run_key", "state", "rounds", "final_accuracy", "best_accuracy", "mean_last10_accuracy", "bytes_up", "bytes_down",
    "seconds",
}  # fmt: skip


def test_json_is_one_object_on_the_last_line(fedtide, folder):
    called = fedtide("run", "--json")
    assert called.status == 0
    (line,) = called.out
    summary = json.loads(line)
    assert summary.keys() >= SUMMARY
    assert (summary["state"], summary["rounds"]) == ("complete", 4)
    kept = json.loads((folder / "runs" / summary["run_key"] / "summary.json").read_text())
    assert {key: kept[key] for key in summary} == summary


def test_labels_speed_and_saving_do_not_change_the_numbers(fedtide, folder):
    other = ("algorithm=mine", "algorithms={mine: {name: fedprox}}", "engine.workers=2", "checkpoint.every=1")
    for name, settings in {"plain": ("algorithm=fedprox",), "other": (*other, "engine.chunk=1")}.items():
        assert fedtide("run", "-q", "--name", name, *sets(*settings)).status == 0
    plain, other = (torch.load(folder / "runs" / name / "model.pt", weights_only=True) for name in ("plain", "other"))
    assert all(torch.equal(plain[name], other[name]) for name in plain)


def test_without_json_it_prints_folder_and_accuracy(fedtide):
    called, quiet = fedtide("run", "--name", "mine"), fedtide("run", "-q")
    (line,) = called.out
    assert line.startswith("runs/mine: final accuracy ")
    assert any("650 parameters" in remark for remark in called.err)
    assert quiet.err == []
