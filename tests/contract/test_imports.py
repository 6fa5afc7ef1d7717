"""Training runs on a machine that has torch and Lightning and no tracking, plotting or search library."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from importlib.machinery import PathFinder

absent = {"mlflow", "dvc", "optuna", "sklearn", "scikit-learn", "pandas", "matplotlib", "scipy", "torchvision"}

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context):
        return [] if context.name in absent else super().find_distributions(context)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]

import fedtide.federation.module, fedtide.runs.execution, fedtide.runs.jobs.preload
"""


def test_the_training_path_needs_none_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
