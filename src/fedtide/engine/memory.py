"""The memory plan: what a run will hold, and how many clients `stacked` advances together."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import torch

from fedtide.core.errors import SettingsError
from fedtide.engine.task import Task

TINY = 8192
"""Parameters up to which a model is tiny: one client's step then spends its time on calls, not on arithmetic."""

_CACHE = 1 << 20
"""Floats of parameters and inputs of a chunk that stay in a core's caches; larger chunks lose on a CPU (measured)."""

_CALLS = 1 << 23
"""The same for tiny models: their calls cost more than what leaves the caches (measured)."""


def available_bytes(device: torch.device) -> int:
    """Bytes of a device's memory that can still be had; of the host's, with what its file cache would give back."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    figures = Path("/proc/meminfo")
    if figures.is_file() and (found := re.search(r"^MemAvailable:\s*(\d+) kB", figures.read_text(), re.MULTILINE)):
        return 1024 * int(found[1])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require(wanted: int, device: torch.device, what: str) -> None:
    """Refuse work that cannot fit.

    Raises:
        SettingsError: ``wanted`` bytes are more than the device has free.
    """
    free = available_bytes(device)
    if wanted > free:
        raise SettingsError(f"{what} needs {wanted / 1e9:.1f} GB on {device}, but {free / 1e9:.1f} GB are free")


def plan_chunk(size: int, clients: int, batch: int, task: Task, lanes: int) -> int:
    """Clients advanced together: what the caches take on a CPU, what a quarter of the free memory takes elsewhere.

    Args:
        size: parameters d of one client.
        clients: of the cohort; on a CPU every lane gets as many chunks.
        batch: samples of one batch.
        task: the learning problem; its input size bounds the activations.
        lanes: chunks that can be advanced at the same time.
    """
    sample = math.prod(task.data.input_shape)
    if task.device.type == "cpu":
        most = max(1, (_CALLS if size <= TINY else _CACHE) // (size + batch * sample))
        chunks_per_lane = max(1, math.ceil(clients / (lanes * most)))
        return max(1, math.ceil(clients / (lanes * chunks_per_lane)))
    activations = batch * sample * 64  # of a network are a multiple of its input
    return max(1, available_bytes(task.device) // 4 // (task.dtype.itemsize * (4 * size + activations)))
