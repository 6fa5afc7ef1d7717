"""Control groups of Linux, versions 1 and 2, by which containers and batch systems limit memory and processors."""

import math
from collections.abc import Iterator
from pathlib import Path

GROUPS, PROCESS = Path("/sys/fs/cgroup"), Path("/proc/self")


def control_groups(controller: str, root: Path, process: Path) -> Iterator[tuple[int, Path]]:
    """Version and folder of this process's groups with a controller, such as ``cpu``, and of those around them."""
    for line in read(process / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        version, base = (1, root / controller) if controllers else (2, root)
        own = base / path.strip("/")
        for group in [own, *own.parents[: len(own.parts) - len(base.parts)]]:
            yield version, group


def processors(root: Path = GROUPS, process: Path = PROCESS) -> list[int]:
    """Under each quota of processor time, the processors that it keeps busy, rounded up."""
    found = []
    for version, group in control_groups("cpu", root, process):
        both = "cpu.max" if version == 2 else "cpu.cfs_quota_us"
        values = f"{read(group / both)} {read(group / 'cpu.cfs_period_us')}".split()
        if len(values) == 2 and all(value.isdigit() for value in values):  # not max or -1: no quota
            found.append(math.ceil(int(values[0]) / int(values[1])))
    return found


def read(file: Path) -> str:
    """The content of a file, nothing if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
