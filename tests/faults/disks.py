"""A disk that is full, at fifty sizes.

Real file systems in memory, mounted in a mount namespace of the campaign's own (see :func:`in_own_namespace`).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import Bench, Verdict

_MARK = "FAULTS_NAMESPACE"
_PAGE = 4096
_FULL = (("run", 12), ("run-mlflow", 10), ("compare", 10), ("tune-mlflow", 8), ("reproduce", 10))


def in_own_namespace() -> None:
    """Start this script again where it may mount, unless that is so already; without the right to, disks are skipped."""
    if _MARK in os.environ:
        return
    command = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
        os.environ[_MARK] = "1"
        os.execvp(command[0], [*command, sys.executable, *sys.argv])


def available() -> bool:
    """Whether file systems can be mounted."""
    if _MARK not in os.environ:
        print("full is skipped: this user may not mount file systems (unshare --mount)", flush=True)
    return _MARK in os.environ


def cases(kills: int) -> Iterator[tuple[str, int]]:
    """Fifty sizes of the command's folder."""
    if available():
        yield from ((name, number) for name, count in _FULL for number in range(count))


def execute(bench: Bench, number: int, seed: int, folder: Path) -> Verdict:
    """The folder has room for a share of what the command writes; once it has enough, the same command continues."""
    verdict = Verdict()
    before, after = _used(bench.root / "template"), _used(bench.reference)
    room = before + (after - before) * (number + 0.5) / dict(_FULL)[bench.subject.name]
    with _memory_disk(bench.root / "template", folder, int(room) // _PAGE * _PAGE):
        process = bench.start(folder, "full")
        status = bench.listen(process, folder, verdict)
        verdict.kills += status != 0
        verdict.plan = [status, process.lines[-1:]]
        if status != 0 and "No space left on device" not in "".join(process.lines):
            verdict.false.append(f"exit status {status}, not for the disk: {process.lines[-1:]}")
        _mount("-o", "remount,size=1g", str(folder))
        bench.finish(folder, verdict)
    return verdict


@contextmanager
def _memory_disk(template: Path, folder: Path, size: int) -> Iterator[None]:
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        shutil.copytree(template, folder, symlinks=True, dirs_exist_ok=True)
        yield
    finally:
        shutil.copytree(folder, f"{folder}-left", symlinks=True)  # for who looks into a finding
        _unmount(folder)


def _used(folder: Path) -> int:
    """Bytes of a folder in memory: whole pages of each file; folders take none."""
    return sum(-(-path.stat().st_size // _PAGE) * _PAGE for path in folder.rglob("*") if path.is_file())


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "--lazy", place], check=True, capture_output=True)
