import atexit
import functools
import gc
import importlib.metadata
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.main
from filelock import FileLock
from hypothesis import settings
from torch import Tensor

from fedtide.world.dataset import Dataset
from support import dataset

# Tiny tensors: a second intra-op thread costs more than it brings. (The folder of this file is also what makes
# ``support`` importable from every test.)
torch.set_num_threads(1)
# Workers and commands start in half the time where compiled sources are kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and those of their commands and notebooks
# Thousands of small files are written and synchronized: in memory where there is room.
MEMORY, ROOM = "/dev/shm", 4 << 30
if "TMPDIR" not in os.environ and Path(MEMORY).is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY
# What does not change while the tests run is built once: Lightning reads the entry points of all installed packages for every
# trainer, Typer the signatures of all commands for every call.
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)  # type: ignore[assignment]
typer.main.get_command = functools.cache(typer.main.get_command)
settings.register_profile("tests", deadline=None, max_examples=30)  # a loaded machine must not fail a test
settings.load_profile("tests")
gc.disable()  # until everything is imported: what a module defines stays


_gc = {name: getattr(gc, name) for name in ("freeze", "unfreeze")}
_finished = itertools.count(1)


atexit.register(_gc["unfreeze"])  # libraries that look for leaks find none


def _freeze() -> None:
    """What is there by now is not searched for garbage after every run."""
    gc.collect()
    _gc["freeze"]()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores where tests wait for processes that they start, as slow ones do."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + (config.option.markexpr != "not slow")


def pytest_collection_finish() -> None:
    _freeze()
    gc.set_threshold(20_000, 20, 50)  # hypothesis listens to every collection
    gc.enable()
    if (style := sys.modules.get("fedtide.report.charts.style")) is not None:
        style.DPI = 60  # type: ignore[attr-defined]  # figures are drawn in a third of the time
    gc.freeze = gc.unfreeze = lambda: None  # of commands that do their runs in this process, which would undo it


def pytest_runtest_logfinish() -> None:
    if next(_finished) % 20 == 1:  # the first imports the most
        _freeze()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Callable[[str, Callable[[Path], object]], Path]:
    """``shared(name, make)``: a folder that ``make(path)`` makes once for the tests of all worker processes."""
    base = tmp_path_factory.getbasetemp()
    root = base if worker_id == "master" else base.parent

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        path = root / name
        with FileLock(root / f"{name}.lock"):
            if not path.exists():
                try:
                    make(path)
                except BaseException:
                    shutil.rmtree(path, ignore_errors=True)
                    raise
        return path

    return folder


Quadratics = Callable[[list[int], list[float], list[list[float]]], tuple[Dataset, dict[str, Any]]]
DROP_IN = Path(__file__).parent / "drop_in"


@pytest.fixture
def drop_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-ins of ``tests/drop_in``, found the way a user's are."""
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(DROP_IN))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of plug-ins."""
    root = tmp_path / "own"
    monkeypatch.setenv("FEDTIDE_PLUGINS", str(root))
    return root


@pytest.fixture
def quadratics(drop_in: None) -> Quadratics:
    """Clients with losses a_k/2 |theta - z_k|^2: ``make(sizes, curvatures a, minima z)`` gives data and settings.

    Every sample of a client is the same, so each batch has the full gradient a_k (theta - z_k).
    """

    def make(sizes: list[int], curvatures: list[float], minima: list[list[float]]) -> tuple[Dataset, dict[str, Any]]:
        rows: list[Tensor] = []
        for size, a, z in zip(sizes, curvatures, minima, strict=True):
            rows += [torch.tensor(z, dtype=torch.float64) * a] * size
        labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        objective = {"name": "quadratic", "curvatures": curvatures}
        classes = max(len(sizes), rows[0].numel())  # logits are theta
        return dataset(torch.stack(rows), labels, classes), {"model": "point", "objective": objective}

    return make
