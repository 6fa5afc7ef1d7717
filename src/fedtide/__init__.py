"""PyTorch simulator for federated learning when clients come and go.

The names below are the public interface. They are imported when they are first used, so that ``import fedtide`` costs
nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtide.core.errors import SettingsError as SettingsError
    from fedtide.interface import compare as compare
    from fedtide.interface import figure as figure
    from fedtide.interface import load as load
    from fedtide.interface import write_report as write_report
    from fedtide.methods.algorithms.base import Algorithm as Algorithm
    from fedtide.methods.algorithms.base import AlgorithmSettings as AlgorithmSettings
    from fedtide.methods.algorithms.base import GradientAt as GradientAt
    from fedtide.methods.algorithms.base import Local as Local
    from fedtide.methods.algorithms.base import NoStep as NoStep
    from fedtide.methods.algorithms.base import Phase as Phase
    from fedtide.methods.algorithms.base import Round as Round
    from fedtide.methods.algorithms.base import Served as Served
    from fedtide.methods.algorithms.base import ServedTo as ServedTo
    from fedtide.methods.algorithms.base import ServerVector as ServerVector
    from fedtide.methods.algorithms.base import Term as Term
    from fedtide.methods.algorithms.base import Tunable as Tunable
    from fedtide.records.final_model import load_model as load_model
    from fedtide.records.frames import Records as Records
    from fedtide.runs.execution import run as run
    from fedtide.settings.experiment import Experiment as Experiment
    from fedtide.settings.params import Params as Params
    from fedtide.settings.run import RunSettings as RunSettings
    from fedtide.world.adapters.encoding import Encoding as Encoding
    from fedtide.world.adapters.huggingface import from_huggingface as from_huggingface
    from fedtide.world.adapters.tensors import from_tensors as from_tensors
    from fedtide.world.adapters.tensors import from_torch as from_torch
    from fedtide.world.dataset import Dataset as Dataset
    from fedtide.world.dataset import Origins as Origins
    from fedtide.world.splits.split import SplitSettings as SplitSettings
    from fedtide.world.timeline import Timeline as Timeline

__version__ = "0.2.0"

_ALGORITHMS = (
    "Algorithm AlgorithmSettings GradientAt Local NoStep Phase Round Served ServedTo ServerVector Term Tunable"
)
_SOURCES = {
    "fedtide.core.errors": "SettingsError",
    "fedtide.interface": "compare figure load write_report",
    "fedtide.methods.algorithms.base": _ALGORITHMS,
    "fedtide.records.final_model": "load_model",
    "fedtide.records.frames": "Records",
    "fedtide.runs.execution": "run",
    "fedtide.settings.experiment": "Experiment",
    "fedtide.settings.params": "Params",
    "fedtide.settings.run": "RunSettings",
    "fedtide.world.adapters.encoding": "Encoding",
    "fedtide.world.adapters.huggingface": "from_huggingface",
    "fedtide.world.adapters.tensors": "from_tensors from_torch",
    "fedtide.world.dataset": "Dataset Origins",
    "fedtide.world.splits.split": "SplitSettings",
    "fedtide.world.timeline": "Timeline",
}
_MODULES = {name: module for module, names in _SOURCES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedtide' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
