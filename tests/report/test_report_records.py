import json
import math

import pytest
from synthetic_runs import changed, finish_again, write_run

from fedtide.core.errors import SettingsError
from fedtide.records.frames import load
from fedtide.report import findings


def test_frames_hold_what_the_files_hold(tmp_path):
    records = load([write_run(tmp_path, seed=4), write_run(tmp_path, "scaffold", "average", seed=4, every=5)])
    assert records.methods == [("fedavg", "previous"), ("scaffold", "average")]
    assert records.runs["state"].tolist() == ["complete", "complete"]
    assert records.runs["rounds"].tolist() == [24, 24]
    scaffold = records.history[records.history["label"] == "scaffold"]
    assert scaffold["bytes"].iloc[-1] == 24 * 2 * 10 * 4 * 4810 * 2
    assert scaffold.dropna(subset=["test_accuracy"])["round"].tolist() == [5, 10, 15, 20, 24]
    assert records.per_class.filter(like="class_").shape == (2, 10)
    assert records.settings["fedavg-previous-s4"]["local.clip"] is None


def test_a_script_shows_a_short_table_of_methods(tmp_path):
    records = load([write_run(tmp_path, label, seed=seed) for label in ("fedavg", "scaffold") for seed in (0, 1)])
    title, heads, *lines = repr(records).splitlines()
    assert title == "4 runs: 4 complete"
    assert heads.split() == ["label", "initializer", "runs", "final", "test", "accuracy", "std"]
    last = records.history[records.history["round"] == 24].groupby("label")["test_accuracy"].agg(["mean", "std"])
    assert [line.split()[:3] for line in lines] == [["fedavg", "previous", "2"], ["scaffold", "previous", "2"]]
    for label, *_, mean, std in map(str.split, lines):
        assert (float(mean), float(std)) == pytest.approx(last.loc[label].tolist(), abs=5e-5)


def test_failed_runs_are_kept_and_marked(tmp_path):
    dirs = [
        write_run(tmp_path, seed=0),
        write_run(tmp_path, seed=1, state="diverged", until=7),
        write_run(tmp_path, seed=2, state="running", until=9),
        write_run(tmp_path, seed=3, state="running", until=0),
        write_run(tmp_path, seed=5, state="running"),
        tmp_path / "fedavg-previous-s4-gone",
    ]
    for name in ("history.csv", "per_class.csv"):  # which leaves the settings alone
        (dirs[4] / name).unlink()
    records = load(dirs)
    assert records.runs["state"].tolist() == ["complete", "diverged", *["unfinished"] * 3]
    assert records.runs["rounds"].tolist() == [24, 7, 9, 0, 0]
    assert records.missing == ("fedavg-previous-s4-gone",)


def test_differing_settings_tell_methods_of_one_label_apart(tmp_path):
    dirs = [write_run(tmp_path, seed=seed, lr=lr, tag=f"-{lr}") for lr in (0.1, 0.5) for seed in (0, 1)]
    assert load(dirs).methods == [("fedavg (local.lr=0.1)", "previous"), ("fedavg (local.lr=0.5)", "previous")]


def test_seeds_and_speed_do_not_make_a_method_and_other_settings_do(tmp_path):
    records = load([write_run(tmp_path, seed=seed) for seed in (0, 1)])
    assert {values["engine.chunk"] for values in records.settings.values()} == {0, 1}
    assert records.methods == [("fedavg", "previous")]
    assert records.differing() == {}
    records = load([tmp_path / "fedavg-previous-s0", write_run(tmp_path, "fedprox")])
    assert records.differing()["algorithm.mu"] == {"fedprox-previous-s0": 0.01}
    assert records.methods == [("fedavg", "previous"), ("fedprox", "previous")]


def test_one_run_twice_is_refused(tmp_path):
    dirs = [write_run(tmp_path, tag=tag) for tag in ("-aaa", "-bbb")]
    with pytest.raises(SettingsError, match=r"fedavg / previous / seed 0 occurs 2 times .*aaa.*bbb"):
        load(dirs)


def test_no_runs_are_refused(tmp_path):
    with pytest.raises(SettingsError, match="none of 0 run directories"):
        load([])
    with pytest.raises(SettingsError, match="none of 1 run directories"):
        load([tmp_path / "nothing"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("settings.json", "{", "is not JSON"),
        ("settings.json", '{"seed": 1}', "no algorithm.name"),
        ("history.csv", "round,loss\n1,2\n", "no column 'session'"),
        (
            "history.csv",
            "round,session,bytes_up,bytes_down,present\n1,1,1,1,1\n3,1,1,1,1\n",
            "round 3 instead of 2: rows",
        ),
        ("history.csv", "round,session,bytes_up,bytes_down,present\n1,1,x,1,1\n", "column 'bytes_up' holds text"),
        ("history.csv", "round,session\n1,\xff\n", "byte 16 is not UTF-8"),
    ],
)
def test_foreign_files_are_refused_in_one_line(tmp_path, name, content, message):
    path = write_run(tmp_path, state="running")
    (path / name).write_text(content, encoding="latin-1")
    with pytest.raises(SettingsError, match=message) as caught:
        load([path])
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_the_label_defaults_to_the_algorithm(tmp_path):
    path = write_run(tmp_path)
    assert load([changed(path, {"label": ""})]).methods == [("fedavg", "previous")]


def test_runs_without_a_test_set_have_no_accuracy(tmp_path):
    path = write_run(tmp_path)
    lines = (path / "history.csv").read_text().replace("test_accuracy", "validation_accuracy")
    (path / "history.csv").write_text(lines)
    finish_again(path)
    assert all(math.isnan(value) for value in load([path]).history["test_accuracy"])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "per_class.csv").unlink(), r"per_class\.csv is missing"),
        (lambda path: exchange(path / "summary.json"), r"summary\.json is damaged"),
    ],
)
def test_a_complete_run_with_incomplete_or_changed_records_is_refused(tmp_path, damage, message):
    path = write_run(tmp_path)
    damage(path)
    with pytest.raises(SettingsError, match=message) as caught:
        load([path])
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def exchange(file):
    """Another digit in the place of the last one: as long as before, and still a table."""
    text = file.read_text()
    at = max(text.rfind(digit) for digit in "0123456789")
    file.write_text(text[:at] + str(9 - int(text[at])) + text[at + 1 :])


@pytest.mark.parametrize(
    ("scenario", "stated", "common"),
    [
        ({"drift": "visits"}, "dirichlet_equal (alpha 0.6)", {"partition.name", "partition.alpha"}),
        ({"drift": "fresh"}, "none, the scenario assigns the clients' data (alpha 0.6)", {"partition.alpha"}),
        ({"drift": "fresh", "beta": 0.3}, "none, the scenario assigns the clients' data", set()),
        ({"name": "lost", "drift": "fresh"}, "dirichlet_equal (alpha 0.6)", {"partition.name", "partition.alpha"}),
    ],
)
def test_only_settings_of_the_partition_that_have_an_effect_are_stated(tmp_path, scenario, stated, common):
    path = write_run(tmp_path)
    records = load([changed(path, {"scenario": {"name": "evolving", **scenario}})])
    assert dict(findings.facts(records))["Partition"] == stated
    assert {name for name, _ in findings.common(records) if name.startswith("partition.")} == common


def test_a_labeled_initializer_has_its_label_before_the_run_has_ended(tmp_path):
    dirs = [write_run(tmp_path, seed=0), write_run(tmp_path, seed=1, state="running", until=9)]
    for path in dirs:
        settings = json.loads((path / "settings.json").read_text())
        (path / "settings.json").write_text(json.dumps({**settings, "initializer_label": "mine"}))
    finish_again(dirs[0], initializer="mine")
    records = load(dirs)
    assert records.methods == [("fedavg", "mine")]
    assert "initializer_label" not in dict(findings.common(records))
