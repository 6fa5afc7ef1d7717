"""The executor of a run."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedtide.core.errors import SettingsError
from fedtide.settings.run import EngineSettings
from fedtide.training.engine.executors.executor import Executor
from fedtide.training.engine.executors.resident import Resident
from fedtide.training.engine.executors.stacked import Stacked
from fedtide.training.engine.executors.threads import Threads
from fedtide.training.engine.flat import statistics
from fedtide.training.engine.task import TINY, Task
from fedtide.training.resources.workers import Workers


def executor_name(network: nn.Module, device: torch.device, engine: EngineSettings, family: str) -> str:
    """Name of the executor for a network: a fixed rule on (model family, size, device), never a timing.

    ``stacked`` on an accelerator and for tiny linear models and MLPs, ``threads`` otherwise; ``resident`` for
    networks with floating buffers that training changes (BatchNorm), whose batches cannot be padded.

    Raises:
        SettingsError: ``stacked`` is set for a network with such buffers, or BatchNorm keeps no running statistics.
    """
    norms = [part for part in network.modules() if isinstance(part, _BatchNorm)]
    if any(norm.running_mean is None for norm in norms):
        raise SettingsError(
            "the model has BatchNorm without running statistics, which single samples require; set "
            "track_running_stats=True"
        )
    floating = bool(statistics(network))
    if engine.executor == "stacked" and floating:
        raise SettingsError(
            "engine.executor = 'stacked': the model has BatchNorm statistics; use 'threads' or norm: group"
        )
    if floating:
        return "resident"
    if engine.executor != "auto":
        return engine.executor
    size = sum(value.numel() for value in network.parameters())
    tiny = family in ("linear", "mlp") and size <= TINY
    return "stacked" if tiny or device.type != "cpu" else "threads"


def image_layout(engine: EngineSettings, channels_last: bool, device: torch.device) -> torch.memory_format:
    """Memory layout of image batches: as set, else what the model prefers on a CPU (except under ``vmap``)."""
    if engine.layout == "auto":
        preferred = channels_last and device.type == "cpu" and engine.executor != "stacked"
        return torch.channels_last if preferred else torch.contiguous_format
    return torch.channels_last if engine.layout == "channels_last" else torch.contiguous_format


def make(task: Task, workers: Workers, engine: EngineSettings, family: str) -> Executor:
    """The executor of a run."""
    name = executor_name(task.network, task.device, engine, family)
    if name == "stacked":
        return Stacked(task, workers, engine.chunk)
    return Resident(task, workers) if name == "resident" else Threads(task, workers)
