"""A disk that is full, at fifty sizes, and folders that cannot be written.

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
_PLACES = (
    ".",
    "runs",
    "runs/{run}",
    "runs/{run}/state",
    "mlruns",
    "tuning",
    "results",
    "data",
    "worlds",
)
_REASONS = ("Read-only file system", "cannot be written")
_SUBJECTS = ("run", "run-mlflow", "compare", "tune-mlflow", "reproduce", "prepare", "timeline")


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
        print("full and readonly are skipped: this user may not mount file systems (unshare --mount)", flush=True)
    return _MARK in os.environ


class Full:
    """The command's folder has too little room; once it has enough, the same command continues."""

    @staticmethod
    def cases(kills: int) -> Iterator[tuple[str, int]]:
        """Fifty sizes."""
        if available():
            yield from ((name, number) for name, count in _FULL for number in range(count))

    @staticmethod
    def execute(bench: Bench, number: int, seed: int, folder: Path) -> Verdict:
        """Room for a share of what the command writes."""
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


class ReadOnly:
    """A folder that cannot be written; once it can, the same command finishes."""

    @staticmethod
    def cases(kills: int) -> Iterator[tuple[str, int]]:
        """Every folder that a command writes."""
        if available():
            yield from ((name, number) for name in _SUBJECTS for number in range(len(_PLACES)))

    @staticmethod
    def execute(bench: Bench, number: int, seed: int, folder: Path) -> Verdict:
        """The command says why it fails; searches and comparisons do so for each of their runs."""
        verdict = Verdict()
        run = next((path.name for path in sorted(bench.reference.glob("runs/*-*"))), "none")
        place = folder / _PLACES[number].format(run=run)
        if not (bench.reference / place.relative_to(folder)).is_dir():
            return verdict  # not a folder of this command
        with _memory_disk(bench.root / "template", folder, 1 << 30):
            place.mkdir(parents=True, exist_ok=True)
            _mount("--bind", str(place), str(place))
            _mount("-o", "remount,ro,bind", str(place))
            process = bench.start(folder, "readonly")
            status = bench.listen(process, folder, verdict)
            verdict.kills += 1
            verdict.plan = [str(place.relative_to(folder)), status, process.lines[-1:]]
            if status == 0 and place.name != "mlruns":
                verdict.false.append(f"exit status 0, though {_PLACES[number]} cannot be written")
            if status != 0 and not any(reason in "".join(process.lines) for reason in _REASONS):
                verdict.false.append(f"no reason is given: {process.lines[-3:]}")
            _mount("-o", "remount,rw,bind", str(place))
            bench.finish(folder, verdict)
            _unmount(place)
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
