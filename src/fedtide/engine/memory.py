"""Memory: how much is free, and how many clients `stacked` advances together."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import torch

from fedtide.core.errors import SettingsError
from fedtide.engine.task import TINY, Task

_CACHE = 1 << 20
"""Floats (parameters and inputs of a chunk) that fit a core's caches; larger chunks are slower on a CPU (measured)."""

_CALLS = 1 << 23
"""The same for tiny models, where call overhead costs more than cache misses (measured)."""


def available_bytes(device: torch.device) -> int:
    """Free bytes of a device's memory; on the host, the reclaimable file cache counts as free."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    figures = Path("/proc/meminfo")
    if figures.is_file() and (found := re.search(r"^MemAvailable:\s*(\d+) kB", figures.read_text(), re.MULTILINE)):
        return 1024 * int(found[1])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require(wanted: int, device: torch.device, what: str) -> None:
    """Refuse what does not fit.

    Raises:
        SettingsError: ``wanted`` bytes are more than the device has free.
    """
    free = available_bytes(device)
    if wanted > free:
        raise SettingsError(f"{what} needs {wanted / 1e9:.1f} GB on {device}, but {free / 1e9:.1f} GB are free")


def plan_chunk(size: int, clients: int, batch: int, task: Task, lanes: int) -> int:
    """Clients advanced together: as many as fit the caches of a CPU, or a quarter of the free memory of another device.

    Args:
        size: parameters d of one client.
        clients: of the cohort; on a CPU they are divided evenly among the lanes.
        batch: samples per batch.
        task: the learning problem; the size of its inputs bounds the activations.
        lanes: chunks that are advanced in parallel.
    """
    sample = math.prod(task.data.input_shape)
    if task.device.type == "cpu":
        most = max(1, (_CALLS if size <= TINY else _CACHE) // (size + batch * sample))
        chunks_per_lane = max(1, math.ceil(clients / (lanes * most)))
        return max(1, math.ceil(clients / (lanes * chunks_per_lane)))
    activations = batch * sample * 64  # a multiple of the input
    return max(1, available_bytes(task.device) // 4 // (task.dtype.itemsize * (4 * size + activations)))
