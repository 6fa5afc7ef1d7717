"""What a machine offers to runs, and what stands in their way; only temporary files are written."""

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from fedtide.core import plugins
from fedtide.core.errors import shortened
from fedtide.core.extras import EXTRAS, installation, missing
from fedtide.runs.lightning.trainer import device_of
from fedtide.runs.mlflow.server import Server
from fedtide.runs.mlflow.store import database_of, open_store, reason
from fedtide.runs.workspace import mlflow_place
from fedtide.settings.params import Params
from fedtide.training.resources.control_groups import processors
from fedtide.training.resources.memory import available_bytes
from fedtide.training.resources.workers import available_cores

_LONGEST = 60  # characters of a temporary folder: the path of a socket below it may have about 100
_LEAST = 1e9  # free bytes


def findings(params: Params, runs: Path, mlruns: str) -> Iterator[tuple[str, str, str]]:
    """Topic, fact, and if this is a problem for runs of these settings, folder and place in MLflow, its cure, else nothing."""
    yield "python", f"{platform.python_version()}, {platform.platform()}", ""
    for name in filter(find_spec, ("torch", "lightning", "mlflow", "dvc", "optuna")):
        yield name, version(name), ""
    for extra in filter(missing, EXTRAS):
        yield "not installed", f"{', '.join(missing(extra))}; {installation(extra)}", ""
    run, tracking = params.run(), params.experiment.tracking
    yield (
        "device",
        *_tried(lambda: f"{device_of(run)}, {run.engine.precision}", "change engine.accelerator or precision"),
    )
    yield "cores", f"{available_cores()} of {os.cpu_count()}, container quota {min(processors(), default='none')}", ""
    there, temporary = next(path for path in (runs, *runs.absolute().parents) if path.is_dir()), tempfile.gettempdir()
    for topic, free, cure in (
        ("memory", available_bytes(torch.device("cpu")), "end other processes, or raise the container's limit"),
        (f"disk of {there}", shutil.disk_usage(there).free, "delete files, or choose another folder with --runs"),
        (f"disk of {temporary}", shutil.disk_usage(temporary).free, "set TMPDIR to a folder on a larger disk"),
    ):
        yield topic, f"{free / 1e9:.1f} GB free", cure if free < _LEAST else ""
    cure = "set TMPDIR=/tmp: sockets need short paths" if len(temporary) > _LONGEST else ""
    yield "TMPDIR", f"{temporary}, {len(temporary)} characters", cure
    yield "locks", *_tried(lambda: _locks(there), "execute one run at a time, or choose another folder with --runs")
    for root in plugins.user_roots():
        yield "plug-in folder", str(root), "" if root.is_dir() else "there is no such folder; correct FEDTIDE_PLUGINS"
    for why in (plugins.broken(kind, name) for kind in plugins.KINDS for name in plugins.names(kind)):
        if why:
            yield "plug-in", why, "correct or remove the file"
    if tracking.mlflow and not missing("mlflow"):
        cure = "start the server, correct the address, or set tracking.mlflow=false"
        yield (
            f"MLflow in {shortened(tracking.uri or mlruns)}",
            *_tried(lambda: _reached(mlflow_place(tracking, mlruns)), cure),
        )


def _tried(check: Callable[[], str], cure: str) -> tuple[str, str]:
    """What a check says; if it fails, why, and the cure."""
    try:
        return check(), ""
    except Exception as error:  # whatever Lightning, MLflow or a file system may raise
        return reason(error), cure


def _locks(folder: Path) -> str:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        first, second = (FileLock(f"{made}/lock", timeout=0, fallback_to_soft=False) for _ in range(2))
        with first, suppress(Timeout), second:
            raise OSError(f"{folder}: two processes can hold one lock")
    return f"{folder} has them"


def _reached(where: Path | Server) -> str:
    if isinstance(where, Server):
        where.reach()
    elif database_of(where).exists():
        open_store(database_of(where))
    return str(where)
