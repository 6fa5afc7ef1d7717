"""Memory: how much is free, how large a network is, and how many clients `stacked` advances together."""

import math
import os
import re
import resource
from pathlib import Path

import torch

from fedtide.training.engine.probe import mark_constants
from fedtide.training.engine.task import Task
from fedtide.training.models.base import Model, Network
from fedtide.training.resources.control_groups import GROUPS, PROCESS, control_groups, read
from fedtide.world.dataset import Dataset

_CACHE = 1 << 20
"""Floats (parameters and inputs of a chunk) that fit a core's caches; larger chunks are slower on a CPU (measured)."""

_shared: dict[str, int] = {}
"""The number of processes that work side by side, and the bytes of the host's memory for this one."""


def share_memory(runs: int, host: int) -> None:
    """Plan the runs of this process with ``host`` bytes, and with the ``runs``-th part of a GPU: others use the rest."""
    _shared.update(runs=runs, host=host)


def available_bytes(device: torch.device) -> int:
    """Bytes that this process may still take of a device's memory.

    On the host: what the system has free (with the reclaimable file cache), within control groups, a limit of the address
    space and this process's share.
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

    ``size``: parameters of a client. On a CPU the cohort is divided evenly among the ``lanes``, which advance in parallel.
    """
    sample = math.prod(task.data.input_shape)
    if task.device.type == "cpu":
        most = max(1, _CACHE // (size + batch * sample))
        chunks_per_lane = max(1, math.ceil(clients / (lanes * most)))
        return max(1, math.ceil(clients / (lanes * chunks_per_lane)))
    activations = batch * sample * 64  # a multiple of the input
    vectors = 6  # parameters, gradients, copies of rows that have ended; with those of the buffers of recorded steps
    return max(1, available_bytes(task.device) // 4 // (task.dtype.itemsize * (vectors * size + activations)))


def outlined(model: Model, data: Dataset) -> Network:
    """The network that a model builds for a dataset, of tensors without content."""
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            network = model.build(data.input_shape, data.outputs, data.vocabulary)
    except Exception:  # something that needs values, or bad settings: build it
        with torch.random.fork_rng(devices=[]):
            network = model.build(data.input_shape, data.outputs, data.vocabulary)
    mark_constants(network, data)
    return network


_UNLIMITED = 1 << 60  # version 1 of control groups writes a huge number for no limit


def free_under_limits(groups: Path = GROUPS, process: Path = PROCESS) -> list[int]:
    """Free bytes under each limit of this process's control groups and address space."""
    return [max(0, free) for free in (*_under_groups(groups, process), *_address_space(process))]


def _under_groups(root: Path, process: Path) -> list[int]:
    """Under the limits of the process's groups and of those around them; reclaimable file cache counts as free."""
    found = []
    for version, group in control_groups("memory", root, process):
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        if version == 2:
            names = ("memory.max", "memory.current", "inactive_file")
        limit, used = read(group / names[0]).strip(), read(group / names[1]).strip()
        if limit.isdigit() and used.isdigit() and int(limit) < _UNLIMITED:
            cache = re.search(rf"^{names[2]} (\d+)$", read(group / "memory.stat"), re.MULTILINE)
            found.append(int(limit) - int(used) + (int(cache[1]) if cache else 0))
    return found


def _address_space(process: Path) -> list[int]:
    limit, pages = resource.getrlimit(resource.RLIMIT_AS)[0], read(process / "statm").split()
    return [limit - int(pages[0]) * os.sysconf("SC_PAGE_SIZE")] if limit != resource.RLIM_INFINITY and pages else []
