"""A copy of the project with a small params.yaml, where ``dvc repro`` really runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
CARRIED = ("dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore", "pipeline", "src")
SMALL = """
algorithms: {fedavg: {}, fedprox: {mu: 0.1}}
initializer: {name: previous}
initializers: {previous: {}}
compare: {algorithms: [fedavg, fedprox], initializers: [previous], seeds: [0], workers: 1}
scenario: {name: trace, file: visits.csv}
partition: {name: dirichlet_equal, alpha: 1.0}
model: {name: softmax_regression}
tune: {trials: 2, workers: 1, seed: 1000, space: {}}
tracking: {mlflow: false, experiment: fedtide}
"""
VISITS = "client,join,leave\n0,0,6\n1,0,6\n2,1,4\n"


class Project:
    """A working copy; its ``src`` is what ``import fedtide`` finds in the stages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("FEDTIDE_", "DVC_"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(root / "src"),
            "DVC_NO_ANALYTICS": "1",
            **{
                f"DVC_{name}_DIR": str(root.parent / "dvc") for name in ("SITE_CACHE", "GLOBAL_CONFIG", "SYSTEM_CONFIG")
            },
        }

    @staticmethod
    def new(root: Path) -> Project:
        """Copy the project and shrink its settings; a group is replaced as a whole."""
        for name in CARRIED:
            source, target = PROJECT / name, root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(source, target)
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        project = Project(root)
        (root / "params.yaml").write_text((PROJECT / "params.yaml").read_text())
        (root / "visits.csv").write_text(VISITS)
        project.change(**yaml.safe_load(SMALL))
        return project

    def copy(self, root: Path) -> Project:
        """An independent copy with everything made so far."""
        shutil.copytree(self.root, root, symlinks=True)
        return Project(root)

    def change(self, **groups: object) -> None:
        """Replace groups of params.yaml."""
        path = self.root / "params.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **groups}))

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """``dvc repro`` as a process whose output goes to a file."""
        with log.open("wb") as stream:
            return subprocess.Popen(
                [sys.executable, "-m", "dvc", "repro", *arguments],
                cwd=self.root, env=self.environment, stdout=stream, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def commit(self) -> None:
        """Commit everything that is not ignored."""
        own = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
        subprocess.run(["git", "add", "-A"], cwd=self.root, check=True)
        subprocess.run(["git", *own, "commit", "-q", "-m", "state"], cwd=self.root, check=True)

    def dvc(self, *arguments: str) -> str:
        """The output of a DVC command that succeeds."""
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=self.root, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def repro(self, *arguments: str) -> tuple[set[str], set[str]]:
        """Run the pipeline; the stages that ran and those that were skipped."""
        log = self.root.parent / f"{self.root.name}.log"
        status = self.start(*arguments, log=log).wait()
        text = log.read_text(encoding="utf-8")
        assert status == 0, text
        ran = set(re.findall(r"^Running stage '(.*)'", text, re.MULTILINE))
        skipped = set(re.findall(r"^Stage '(.*)' didn't change, skipping", text, re.MULTILINE))
        assert ran or "up to date" in text
        return ran, skipped

    def runs(self, label: str) -> dict[Path, bytes]:
        """Content of the run directories of an algorithm, but for saved states and locks."""
        files = [path for folder in (self.root / "runs").glob(f"{label}-*") for path in folder.iterdir()]
        return {path.relative_to(self.root): path.read_bytes() for path in files if path.suffix and path.is_file()}

    def outcome(self, label: str) -> dict[str, Any]:
        """What DVC keeps of the only run of an algorithm."""
        (run,) = json.loads((self.root / f"outcomes/{label}.json").read_text())["runs"]
        return dict(run)


@pytest.fixture(scope="package")
def built(shared: Callable[[str, Callable[[Path], object]], Path]) -> tuple[Project, set[str]]:
    """The project after its first ``dvc repro``, and the stages that ran; to be copied, not changed."""

    def make(folder: Path) -> None:
        ran, _ = Project.new(folder / "project").repro()
        (folder / "ran.json").write_text(json.dumps(sorted(ran)))

    folder = shared("pipeline", make)
    return Project(folder / "project"), set(json.loads((folder / "ran.json").read_text()))


@pytest.fixture
def project(built: tuple[Project, set[str]], tmp_path: Path) -> Project:
    """A copy of it, for changing."""
    return built[0].copy(tmp_path / "project")
