"""Process-wide settings: of speed, and of what would make results depend on the machine or on chance."""

from __future__ import annotations

import ctypes

import torch

from fedtide.settings.run import EngineSettings
from fedtide.training.programs import onednn

_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1  # numbers of glibc's mallopt


def prepare_process(engine: EngineSettings, device: torch.device) -> str:
    """Set up this process for training on ``device``; returns a few words for the log.

    On a CPU, operations use one thread each: the workers use the cores, and sums must not depend on how many there are. On a
    card, convolutions are computed in the run's precision, not in TensorFloat-32, and add in the same order every time.
    """
    facts = [f"one torch thread per operation; {torch.backends.cpu.get_cpu_capability()}"]
    if onednn.preferred():
        facts.append("matrix products by oneDNN")
    if device.type == "cpu":
        torch.set_num_threads(1)
    else:
        facts = [device.type]
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    if engine.allocator == "keep":
        facts.append("freed memory is kept" if _keep_freed_memory() else "default allocator")
    return ", ".join(facts)


def _keep_freed_memory() -> bool:
    """Make glibc keep freed memory: otherwise each large temporary is mapped, zeroed and unmapped at every step."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all([mallopt(_ARENA_MAX, 1), mallopt(_MMAP_THRESHOLD, 1 << 30), mallopt(_TRIM_THRESHOLD, 2**31 - 1)])
