"""Too little memory: a limit of the address space, and a control group in which the kernel kills."""

import contextlib
import functools
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from bench import Bench, Verdict

_MIB = 1 << 20
_SIZES = (1, 4, 16, 64, 256)  # MiB more than the process has at its start
_SUBJECTS = ("run", "compare", "tune", "tune-two")
_GROUPS = Path("/sys/fs/cgroup")


def cases(kills: int) -> Iterator[tuple[str, int]]:
    """Numbers below five limit the address space, the others the memory of a control group."""
    count = len(_SIZES) * (2 if _new_group("probe", None) else 1)
    if count == len(_SIZES):
        print("memory: no control group can be made, only address spaces are limited", flush=True)
    yield from ((name, number) for name in _SUBJECTS for number in range(count))


def execute(bench: Bench, number: int, seed: int, folder: Path) -> Verdict:
    """With too little memory the command fails or is killed; with enough it continues."""
    verdict, size = Verdict(), _SIZES[number % len(_SIZES)] * _MIB
    group = None
    if number < len(_SIZES):
        before = functools.partial(_limit, size)
    else:
        group = _new_group(f"{bench.subject.name}-{number}", size)
        before = functools.partial(_join, str(group))
    process = bench.start(folder, "memory", before=before)
    status = bench.listen(process, folder, verdict)
    if group is not None:
        with contextlib.suppress(OSError):
            group.rmdir()
    verdict.kills += status != 0
    verdict.plan = [size, "group" if group else "address space", status, process.lines[-1:]]
    bench.finish(folder, verdict)
    return verdict


def _limit(size: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _join(group: str) -> None:
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))


def _new_group(name: str, size: int | None) -> Path | None:
    """A new control group with that much memory, of version 1 or 2; None if there can be none. Without a size it is a probe."""
    for parent, limit in ((_GROUPS / "memory", "memory.limit_in_bytes"), (_GROUPS, "memory.max")):
        group = parent / f"faults-{os.getpid()}-{name}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / limit).exists():
                if size is None:
                    group.rmdir()
                else:
                    (group / limit).write_text(str(size))
                return group
            group.rmdir()
    return None
