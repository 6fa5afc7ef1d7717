"""``benchmarks/campaign.py``: packages for a machine that is lent, the runs there, and what comes back."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fedtide.studies.reproduce.recipe import Recipe, read_order
from fedtide.studies.reproduce.reproduce import experiments
from raw_files import batch, noise, write_tar

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/campaign.py"
TINY = """
experiment:
  title: A tiny table
  source: {paper: Nobody, table: Table 1}
  profiles: {plain: {}}
  transitions: {second: 2}
  measure: {name: transition_accuracy}
data: {name: cifar10}
scenario: {name: sessions, num_devices: 3, num_sessions: 2, rounds_per_session: 2}
partition: {name: dirichlet_session}
model: {name: softmax_regression}
local: {steps: 1, lr: 0.1}
compare: {algorithms: [fedavg, scaffold], initializers: [previous], seeds: [1], workers: 1}
tracking: {mlflow: false}
"""
WITHOUT = """
import sys
from importlib.machinery import PathFinder

ABSENT = {"mlflow", "dvc", "optuna", "plotly", "torchvision", "pyarrow", "sklearn"}


class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context):
        return [] if context.name in ABSENT else super().find_distributions(context)


sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]
"""


def call(script, *words, cwd, path=()):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, script, *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


@pytest.fixture
def checkout(tmp_path):
    """A repository with this code, an experiment on a CIFAR-10 of noise, and an order file for a part of it."""
    root = tmp_path / "checkout"
    shutil.copytree(
        ROOT / "src", root / "src", symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    (root / "benchmarks").mkdir()
    shutil.copy(ROOT / ".gitignore", root)
    shutil.copy(SCRIPT, root / "benchmarks")
    for name in ("profiles", "published"):
        (root / "experiments/small" / name).mkdir(parents=True)
    (root / "experiments/small/tiny.yaml").write_text(TINY)
    (root / "experiments/small/profiles/plain.yaml").write_text("")
    for name in ("params.yaml", "dvc.yaml", "pipeline/stage.py"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "params.yaml", root / name)
    (root / "order.yaml").write_text("- {name: tiny, only: [algorithm=scaffold], minutes: 1}\n")
    raw = root / "data/cifar10/raw"
    raw.mkdir(parents=True)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    batches = {
        name: batch("labels", noise(seed, 100, 3072), [label % 10 for label in range(100)])
        for seed, name in enumerate(names)
    }
    write_tar(
        raw / "cifar-10-batches-py.tar.xz",
        "w:xz",
        {f"cifar-10-batches-py/{name}": text for name, text in batches.items()},
    )
    git = ["git", "-C", root, "-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (
        ["init", "-q"],
        ["add", "src", "experiments", "benchmarks", "params.yaml", "dvc.yaml", "pipeline"],
        ["commit", "-qm", "x"],
    ):
        subprocess.run([*git, *words], check=True)
    return root


@pytest.mark.slow
def test_a_campaign_goes_there_and_its_runs_come_back_and_continue(checkout, tmp_path):
    script, here = checkout / "benchmarks/campaign.py", {"cwd": checkout, "path": [checkout / "src"]}
    there = {"cwd": tmp_path, "path": [tmp_path / "site"]}
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(WITHOUT)
    go = ("--seconds", "600", "--reserve", "300", "--store", tmp_path / "store")
    status, out, err = call(
        script, "prepare", "packages", "--order", "order.yaml", "--limit", "1.5MB", "--no-wheels", **here
    )
    assert (status, err) == (0, [])
    packages = sorted((checkout / "packages").iterdir())
    assert out[-1] == f"{len(packages)} packages of at most 1.4 MB in packages"
    assert len(packages) > 1
    assert all(sum(file.stat().st_size for file in package.iterdir()) <= 1.5e6 for package in packages)

    part = packages[0] / "part-1"
    content = part.read_bytes()
    part.write_bytes(content[:-1] + b"?")
    status, _, err = call(script, "go", packages[0], "--out", "out", *go, **there)
    assert (status, len(err), (tmp_path / "out").exists()) == (2, 1, False)
    assert "part-1 is damaged" in err[0]
    part.write_bytes(content)
    for number, package in enumerate(packages, start=1):
        status, out, err = call(script, "go", package, "--out", "out", *go, **there)
        assert status == 0, err
        if package != packages[-1]:
            assert out[0].startswith(f"{number} of {len(packages)} packages are here; missing: {number + 1}")
    assert [name.partition("-s1-")[0] for name in zipfile.ZipFile(tmp_path / "out/runs.zip").namelist()] == [
        "scaffold-previous"
    ]
    status, out, _ = call(script, "merge", tmp_path / "out/runs.zip", **here)
    assert (status, out) == (0, ["1 runs merged into runs/campaign; 0 already there"])

    (checkout / "order.yaml").write_text("- {name: tiny}\n")
    assert call(script, "prepare", "more", "--order", "order.yaml", "--no-wheels", **here)[0] == 0
    assert [path.name for path in (checkout / "more").iterdir()] == ["1"]
    status, _, err = call(script, "go", checkout / "more/1", "--out", "more", *go, **there)
    assert status == 0, err
    assert [name.partition("-s1-")[0] for name in zipfile.ZipFile(tmp_path / "more/runs.zip").namelist()] == [
        "fedavg-previous"
    ]
    assert call(script, "merge", tmp_path / "more/runs.zip", **here)[0] == 0
    words = ["-m", "fedtide", "reproduce", "tiny", "--runs", "runs/campaign", "--json", "-q"]
    before = {path: path.stat().st_mtime_ns for path in checkout.glob("runs/campaign/*/history.csv")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
    )
    assert json.loads(done.stdout.splitlines()[-1])["missing"] == []
    assert {path: path.stat().st_mtime_ns for path in checkout.glob("runs/campaign/*/history.csv")} == before
    assert len(before) == 2


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("prepare", "full"), "full is not empty; choose another folder"),
        (("go", "full", "--seconds", "100", "--out", "out"), "full: not a package; `campaign.py prepare` writes them"),
        (("go", "full", "--seconds", "60", "--out", "out"), "--seconds 60: use more than the 60 of --reserve"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(tmp_path, words, line):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("")
    status, out, err = call(SCRIPT, *words, cwd=tmp_path, path=[ROOT / "src"])
    assert (status, out, err) == (2, [], [f"campaign: {line}"])
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


@pytest.mark.slow
def test_the_order_of_the_campaign_names_cells_that_exist():
    known = experiments(ROOT / "experiments")
    for entry in read_order(ROOT / "benchmarks/campaign.yaml"):
        recipe = Recipe(known[entry.name], entry.profile)
        assert recipe.select(entry.only)
        assert "cifar10" in {recipe.runs(cell, recipe.seeds[0])[0].data.name for cell in recipe.cells}
        assert entry.minutes
