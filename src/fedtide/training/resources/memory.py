"""Memory: how much is free, and how many clients `stacked` advances together."""

from __future__ import annotations

import math
import os
import re
import resource
from pathlib import Path

import torch

from fedtide.training.engine.task import Task

_CACHE = 1 << 20
"""Floats (parameters and inputs of a chunk) that fit a core's caches; larger chunks are slower on a CPU (measured)."""

_shared: dict[str, int] = {}
"""Of processes that work side by side: their number, and the bytes of the host's memory that are for this one."""


def share_memory(runs: int, host: int) -> None:
    """Plan the runs of this process with ``host`` bytes, and with the ``runs``-th part of a GPU: others use the rest."""
    _shared.update(runs=runs, host=host)


def available_bytes(device: torch.device) -> int:
    """Bytes that this process may still take of a device's memory.

    On the host what the system has free (the reclaimable file cache included), less where a control group or a limit of the
    address space leaves less, and at most this process's share.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return min(int(free), int(total) // _shared.get("runs", 1))
    return min(_free_on_host(), *free_under_limits(), _shared.get("host", 1 << 62))


def _free_on_host() -> int:
    figures = Path("/proc/meminfo")
    if figures.is_file() and (found := re.search(r"^MemAvailable:\s*(\d+) kB", figures.read_text(), re.MULTILINE)):
        return 1024 * int(found[1])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def plan_chunk(size: int, clients: int, batch: int, task: Task, lanes: int) -> int:
    """Clients advanced together: as many as fit the caches of a CPU, or a quarter of the free memory of another device.

    ``size``: parameters d of a client. ``batch``: samples. On a CPU the cohort is divided evenly among the ``lanes``, which
    advance in parallel.
    """
    sample = math.prod(task.data.input_shape)
    if task.device.type == "cpu":
        most = max(1, _CACHE // (size + batch * sample))
        chunks_per_lane = max(1, math.ceil(clients / (lanes * most)))
        return max(1, math.ceil(clients / (lanes * chunks_per_lane)))
    activations = batch * sample * 64  # a multiple of the input
    return max(1, available_bytes(task.device) // 4 // (task.dtype.itemsize * (4 * size + activations)))


_CGROUPS, _PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self")
_UNLIMITED = 1 << 60  # version 1 of control groups writes a huge number for no limit


def free_under_limits(groups: Path = _CGROUPS, process: Path = _PROCESS) -> list[int]:
    """Free bytes under each limit that holds for this process: of its control groups, of its address space; may be empty."""
    return [max(0, free) for free in (*_control_groups(groups, process), *_address_space(process))]


def _control_groups(root: Path, process: Path) -> list[int]:
    """Under the limit of every group that the process is in, and of those around it; reclaimable file cache counts as free."""
    found = []
    for line in _read(process / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        base, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        if controllers == "":
            base, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" not in controllers.split(","):
            continue
        own = base / path.strip("/")
        for group in [own, *own.parents[: len(own.parts) - len(base.parts)]]:
            limit, used = _read(group / names[0]).strip(), _read(group / names[1]).strip()
            if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED:
                cache = re.search(rf"^{names[2]} (\d+)$", _read(group / "memory.stat"), re.MULTILINE)
                found.append(int(limit) - int(used) + (int(cache[1]) if cache else 0))
    return found


def _address_space(process: Path) -> list[int]:
    limit, pages = resource.getrlimit(resource.RLIMIT_AS)[0], _read(process / "statm").split()
    return [limit - int(pages[0]) * os.sysconf("SC_PAGE_SIZE")] if limit != resource.RLIM_INFINITY and pages else []


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
