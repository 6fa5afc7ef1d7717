"""Settings of the whole process that decide how fast a round is. No result depends on them."""

from __future__ import annotations

import ctypes

import torch

from fedtide.settings.run import EngineSettings

_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1  # numbers of glibc's mallopt


def prepare_process(engine: EngineSettings, device: torch.device) -> str:
    """Set this process up for training on ``device`` and say how, in a few words for the log.

    On a CPU, operations use one thread each: the workers use the cores, and sums must not depend on how many there are.
    """
    said = [f"torch uses one thread an operation; {torch.backends.cpu.get_cpu_capability()}"]
    if device.type == "cpu":
        torch.set_num_threads(1)
    else:
        said = [device.type]
    if engine.allocator == "keep":
        said.append("freed memory is kept" if _keep_freed_memory() else "the system's allocator stays as it is")
    return ", ".join(said)


def _keep_freed_memory() -> bool:
    """Have glibc keep what is freed: otherwise each large temporary is mapped, zeroed and unmapped at every step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all([mallopt(_ARENA_MAX, 1), mallopt(_MMAP_THRESHOLD, 1 << 30), mallopt(_TRIM_THRESHOLD, 2**31 - 1)])
