"""``fedtide runs pack`` and ``merge``: records of runs in an archive, and what is refused."""

import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from commands import sets
from fedtide.core.storage.locks import held
from fedtide.records.run_directory import hashed, read_hashed
from raw_files import write_tar
from small_runs import history

OWN = (".lock", ".lock.owner", "model.pt")


def contents(path):
    return {
        file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name not in OWN
    }


@pytest.fixture
def runs(fedtide, folder, shared):
    """Two complete runs: one of a label, and one whose checkpoints are kept, after two and four rounds; the folder."""
    weak = "algorithms={weak: {name: fedprox, mu: 0.01, with: {local: {lr: 0.2}}}}"
    chosen = "compare={algorithms: [weak], initializers: [previous], seeds: [0], workers: 1}"

    def make(path):
        assert fedtide("compare", "-q", *sets(weak, chosen)).status == 0
        assert fedtide("run", "-q", *sets("checkpoint={every: 2, keep_finished: true}", "seed=3")).status == 0
        (folder / "runs").rename(path)

    return Path(shutil.copytree(shared("archived", make), folder / "runs"))


def merging(shared_data, *words):
    return ("runs", "merge", *words, "--set", f"data.root={shared_data}")


def half(path):
    """Make an unfinished run of a complete one: its last checkpoint is that of round 2."""
    for name in ("summary.json", "model.pt", "state/state-00000004.pt"):
        (path / name).unlink()


def rewritten(archive, change):
    """The archive, with the files of its runs, by name, as ``change`` leaves them."""
    with zipfile.ZipFile(archive) as opened:
        packed = {name: opened.read(name) for name in opened.namelist()}
    with zipfile.ZipFile(archive, "w") as whole:
        for name, content in packed.items():
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                files = {member.name: tar.extractfile(member).read() for member in tar}
            change(files)
            write_tar("again.tar.xz", "w:xz", files)
            whole.writestr(name, Path("again.tar.xz").read_bytes())


def with_hash(files, name, **changed):
    values = json.loads(files[name])
    del values["hash"]
    files[name] = json.dumps(hashed({**values, **changed})).encode()


@pytest.mark.slow
def test_complete_runs_arrive_as_they_were_without_their_models(fedtide, folder, runs, shared_data):
    before = {path.name: contents(path) for path in runs.iterdir()}
    assert fedtide("runs", "pack", "moved.zip").out[0].startswith("moved.zip: 2 runs, ")
    assert {path.name: contents(path) for path in runs.iterdir()} == before
    assert fedtide(*merging(shared_data, "moved.zip", "--runs", "there")).out == [
        "2 runs merged into there; 0 already there"
    ]
    there = folder / "there"
    for name, files in before.items():
        found = contents(there / name)
        expected = {path for path in files if path.parts[0] != "state"}
        assert found.keys() == expected
        assert all(found[path] == files[path] for path in found if path.name != "summary.json")
        old, new = (read_hashed(path / name / "summary.json") for path in (runs, there))
        assert old["files"].pop("model.pt")
        assert new == old
    assert [line.split(":")[0] for line in fedtide("check", "there").out] == ["2 runs"]
    merged = {path.name: contents(path) for path in there.iterdir()}
    assert fedtide(*merging(shared_data, "moved.zip", "--runs", "there")).out == [
        "0 runs merged into there; 2 already there"
    ]
    assert "already complete, nothing to do" in fedtide("run", "--set", "seed=3", "--runs", "there").err[-1]
    assert {path.name: contents(path) for path in there.iterdir()} == merged


@pytest.mark.slow
def test_an_unfinished_run_continues_elsewhere_and_comes_back(fedtide, folder, runs, shared_data):
    (path,) = runs.glob("fedavg-*")
    whole = history(path)
    half(path)
    (runs / "begun/state").mkdir(parents=True)
    packed = fedtide("runs", "pack", "moved.zip")
    assert packed.err == ["left out begun: it has not ended, and has no checkpoint"]
    assert [name.split("-")[0] for name in zipfile.ZipFile("moved.zip").namelist()] == ["weak", "fedavg"]
    assert fedtide(*merging(shared_data, "moved.zip", "--runs", "there")).status == 0
    there = folder / "there" / path.name
    assert sorted(file.name for file in there.glob("state/*")) == ["state-00000002.pt"]
    assert fedtide("run", "-q", "--set", "seed=3", "--runs", "there").status == 0
    assert history(there) == whole
    assert '"resumed", "round": 2' in (there / "events.jsonl").read_text()
    assert fedtide("runs", "pack", "back.zip", "--runs", "there").status == 0
    assert fedtide(*merging(shared_data, "back.zip")).out == ["1 runs merged into runs; 1 already there"]
    assert contents(path).keys() == {file for file in contents(there) if file.parts[0] != "state"}
    assert fedtide(*merging(shared_data, "moved.zip")).out == ["0 runs merged into runs; 2 already there"]
    assert history(path) == whole
    assert not list(runs.glob(".merge-*"))


@pytest.mark.slow
def test_a_limit_leaves_out_what_does_not_fit(fedtide, folder, runs):
    half(next(runs.glob("fedavg-*")))
    called = fedtide("runs", "pack", "small.zip", "--max", "9kB")
    assert (called.status, len(called.err)) == (0, 1)
    assert called.err[0].startswith("left out fedavg-previous-s3-")
    assert (folder / "small.zip").stat().st_size <= 9000
    called = fedtide("runs", "pack", "none.zip", "--max", "2000")
    assert (called.status, len(called.err), (folder / "none.zip").exists()) == (2, 1, False)
    with held(next(runs.glob("weak-*")) / ".lock", "held"):
        assert "a process is working on it" in fedtide("runs", "pack", "small.zip").err[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words", "reason"),
    [
        (lambda files: None, ("local.lr=0.3",), "settings local.lr (0.3, not 0.1)"),
        (lambda files: files.update({"history.csv": files["history.csv"] + b"5"}), (), "history.csv has "),
        (lambda files: files.pop("timeline.npz"), (), "timeline.npz is missing"),
        (lambda files: with_hash(files, "manifest.json", run_key="other", data="d"), (), "data digits ("),
        (
            lambda files: (
                with_hash(files, "manifest.json", run_key="other"),
                with_hash(files, "environment.json", sources={"fedtide.training.other": "0"}),
            ),
            (),
            "sources fedtide.",
        ),
    ],
)
def test_a_run_of_other_settings_data_or_code_or_a_damaged_one_is_refused(
    fedtide, folder, runs, shared_data, change, words, reason
):
    for path in runs.glob("weak-*"):
        path.rename(folder / path.name)

    def changed(files):
        change(files)
        summary = json.loads(files["summary.json"])
        for name in ("manifest.json", "environment.json"):  # as if the run had ended with these files
            summary["files"].pop(name, None)
        files["summary.json"] = json.dumps(summary).encode()
        with_hash(files, "summary.json")

    assert fedtide("runs", "pack", "moved.zip").status == 0
    rewritten("moved.zip", changed)
    line = fedtide(*merging(shared_data, "moved.zip", "--runs", "there"), *sets(*words)).refusal
    assert line.startswith("moved.zip: 1 runs refused, 0 merged: fedavg-previous-s3-")
    assert reason in line
    assert not (folder / "there").exists()


@pytest.mark.slow
def test_another_run_of_the_same_name_stays_and_the_others_are_merged(fedtide, folder, runs, shared_data):
    assert fedtide("runs", "pack", "moved.zip").status == 0
    (path,) = runs.glob("weak-*")
    values = read_hashed(path / "summary.json")
    (path / "summary.json").write_text(json.dumps(hashed({**values, "final_accuracy": 0.5})))
    before = contents(path)
    next(runs.glob("fedavg-*")).rename(folder / "away")
    called = fedtide(*merging(shared_data, "moved.zip"))
    assert (called.status, len(called.err)) == (2, 1)
    reason = f"{path.name}: differs from runs/{path.name} in results final_accuracy"
    assert f"1 runs refused, 1 merged: {reason}" in called.err[0]
    assert contents(path) == before
    assert len(list(runs.glob("fedavg-*/summary.json"))) == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("merge", "nothing.zip"), "nothing.zip: not an archive of runs (No such file or directory)"),
        (("merge", "empty.zip", "--runs", "new"), "empty.zip: not an archive of runs (it is empty)"),
        (("merge", "params.yaml"), "params.yaml: not an archive of runs (File is not a zip file)"),
        (("pack", "a.zip"), "runs: no run directories in this folder"),
        (("pack", "a.zip", "--max", "much"), "--max = 'much': use a size such as 16MB"),
        (("pack", "params.yaml/a.zip"), "params.yaml: cannot create this folder (params.yaml is a file)"),
        (("pack", "."), ".: this is a folder; name the file to write, such as runs.zip"),
        (("pack", "new/a.zip"), "runs: no run directories in this folder"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(fedtide, folder, words, line):
    zipfile.ZipFile(folder / "empty.zip", "w").close()
    before = sorted(folder.iterdir())
    assert fedtide("runs", *words).refusal == line
    assert sorted(folder.iterdir()) == before
