"""Federated learning for moving populations: published systems and their baselines, run side by side.

The names below are the public interface. They are imported when they are first used, so that ``import fedtide`` costs
nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtide.core.errors import SettingsError
    from fedtide.interface import compare, figure, load, write_report
    from fedtide.methods.algorithms.base import (
        Algorithm,
        AlgorithmSettings,
        GradientAt,
        Local,
        NoStep,
        Phase,
        Round,
        Served,
        ServedTo,
        ServerVector,
        Term,
        Tunable,
    )
    from fedtide.records.final_model import load_model
    from fedtide.records.frames import Records
    from fedtide.runs.execution import run
    from fedtide.settings.experiment import Experiment
    from fedtide.settings.params import Params
    from fedtide.settings.run import RunSettings
    from fedtide.world.adapters.encoding import Encoding
    from fedtide.world.adapters.huggingface import from_huggingface
    from fedtide.world.adapters.tensors import from_tensors, from_torch
    from fedtide.world.dataset import Dataset, Origins
    from fedtide.world.splits.split import SplitSettings
    from fedtide.world.timeline import Timeline

__version__ = "0.2.0"

__all__ = [
    "Algorithm",
    "AlgorithmSettings",
    "Dataset",
    "Encoding",
    "Experiment",
    "GradientAt",
    "Local",
    "NoStep",
    "Origins",
    "Params",
    "Phase",
    "Records",
    "Round",
    "RunSettings",
    "Served",
    "ServedTo",
    "ServerVector",
    "SettingsError",
    "SplitSettings",
    "Term",
    "Timeline",
    "Tunable",
    "compare",
    "figure",
    "from_huggingface",
    "from_tensors",
    "from_torch",
    "load",
    "load_model",
    "run",
    "write_report",
]

_SOURCES = {
    "fedtide.world.adapters.encoding": ("Encoding",),
    "fedtide.world.adapters.huggingface": ("from_huggingface",),
    "fedtide.world.adapters.tensors": ("from_tensors", "from_torch"),
    "fedtide.methods.algorithms.base": (
        *(
            "Algorithm",
            "AlgorithmSettings",
            "GradientAt",
            "Local",
            "NoStep",
            "Phase",
            "Round",
            "Served",
            "ServedTo",
            "ServerVector",
        ),
        *("Term", "Tunable"),
    ),
    "fedtide.core.errors": ("SettingsError",),
    "fedtide.records.final_model": ("load_model",),
    "fedtide.records.frames": ("Records",),
    "fedtide.runs.execution": ("run",),
    "fedtide.interface": ("compare", "figure", "load", "write_report"),
    "fedtide.settings.experiment": ("Experiment",),
    "fedtide.settings.params": ("Params",),
    "fedtide.settings.run": ("RunSettings",),
    "fedtide.world.dataset": ("Dataset", "Origins"),
    "fedtide.world.splits.split": ("SplitSettings",),
    "fedtide.world.timeline": ("Timeline",),
}
_MODULES = {name: module for module, names in _SOURCES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fedtide' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
