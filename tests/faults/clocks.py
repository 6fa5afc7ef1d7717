"""Clocks set back and forward between a kill and the resumption, or while the command runs.

The clock of one command is set with libfaketime (Debian: ``apt-get install libfaketime``), found where Debian puts it or by
``$LIBFAKETIME``. Without it, only the times of files are moved.
"""

from __future__ import annotations

import glob
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import Bench, Verdict
from cold import Cold
from injection import Injection
from kills import aim

_YEAR = 365 * 86400.0
_SHIFTS = (-_YEAR, _YEAR, -3600.0, 3600.0)
_FOUND = os.environ.get("LIBFAKETIME") or next(iter(glob.glob("/usr/lib/*/faketime/libfaketime.so.1")), None)  # noqa: PTH207
_FILES, _CLOCK = ("run", "compare", "tune", "prepare", "partition"), ("run-mlflow", "tune", "compare")


def cases(kills: int) -> Iterator[tuple[str, int]]:
    """Numbers below four move the times of files; the others set the clock, first for all of the command."""
    yield from ((name, number) for name in _FILES for number in range(len(_SHIFTS)))
    if _FOUND:
        yield from ((name, len(_SHIFTS) + number) for name in _CLOCK for number in range(len(_SHIFTS)))
    else:
        print("clock: no libfaketime, only times of files are moved", flush=True)


def execute(bench: Bench, number: int, seed: int, folder: Path) -> Verdict:
    """After a kill, the command continues at another time; from number six on, the clock jumps while it runs."""
    draw, verdict = random.Random(f"{seed} clock {bench.subject.name} {number}"), Verdict()
    shift = _SHIFTS[number % len(_SHIFTS)]
    trace = bench.root / f"{folder.name}-trace"
    trace.mkdir(exist_ok=True)
    process = bench.start(folder, "killed", Injection(folder, (aim(bench, draw, seed, None),), trace))
    bench.listen(process, folder, verdict)
    verdict.kills += 1
    if number < len(_SHIFTS):
        for path in folder.rglob("*"):
            if not path.is_symlink() and "pipeline" not in path.parts:
                moved = path.stat().st_mtime + shift
                os.utime(path, (moved, moved))
        bench.finish(folder, verdict)
        return verdict
    clock = bench.root / f"{folder.name}-clock"
    jumps = number >= len(_SHIFTS) + 2
    clock.write_text("+0" if jumps else f"{shift:+.0f}")
    cold = _start(bench, folder, clock)
    if jumps:
        time.sleep(draw.uniform(3.0, 10.0))  # its imports take some of that
        clock.write_text(f"{shift:+.0f}")
    status = bench.listen(cold, folder, verdict)
    verdict.plan = [shift, jumps, status]
    if status != 0:
        verdict.false.append(f"exit status {status} with another clock: {cold.lines[-1:]}")
    bench.finish(folder, verdict)
    return verdict


def _start(bench: Bench, folder: Path, clock: Path) -> Cold:
    """Monotonic time stays as it is; the file with the shift is read again every second."""
    environment = {
        "LD_PRELOAD": str(_FOUND), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "fedtide.cli.main", *bench.subject.arguments]
    return Cold(folder, command, bench.root / f"{folder.name}-clock.output", environment)
