"""What is imported with what: in one process, since each takes seconds to start."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from importlib.machinery import PathFinder

absent = {"mlflow", "dvc", "optuna", "sklearn", "scikit-learn", "pandas", "matplotlib", "scipy", "torchvision"}
absent |= {"datasets", "PIL"}
wanted = set()

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        first = name.partition(".")[0]
        wanted.update({first} & absent)
        return None if first in absent else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context):
        return [] if context.name in absent else super().find_distributions(context)

sys.meta_path = [Without if finder is PathFinder else finder for finder in sys.meta_path]

import torch
wanted.clear()  # what PyTorch would use itself

import fedtide
from fedtide.world.data import ag_news, digits, newsgroups20, svhn, tiny_imagenet
from fedtide.world import dataset
from fedtide.world.storage import sources
import fedtide.world.storage.prepared
assert not wanted, f"readers import {wanted} before they read"

import fedtide.federation.module, fedtide.runs.execution, fedtide.runs.jobs.preload
assert not wanted & {"matplotlib", "scipy", "torchvision"}, f"starting takes twice as long with {wanted}"

absent.remove("pandas")
wanted.clear()  # what Lightning would use itself
fedtide.from_tensors([[0.0], [1.0]] * 9, [0, 1] * 9)
fedtide.from_torch, fedtide.from_huggingface
assert not wanted & {"datasets", "torchvision", "PIL"}, f"adapters import {wanted} although they are not used"
"""


@pytest.mark.slow
def test_training_readers_and_adapters_need_no_library_that_they_do_not_use() -> None:
    """Training runs on a machine that has torch and Lightning and no tracking, plotting or search library."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
