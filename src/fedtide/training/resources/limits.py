"""How much more memory this process may take under the limits of containers and shells."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

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
