"""Kills: one to three in a row, each at a chosen file operation or at a random time, of one process or of all."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from attempt import Process
from bench import Bench, Verdict
from injection import LEADER, Injection, Moment
from sessions import kill_all
from subjects import ALL

_DEADLY = (signal.SIGKILL, signal.SIGXFSZ)
_PER_CASE = 1.4  # kills, on average


def execute(bench: Bench, number: int, seed: int, folder: Path) -> Verdict:
    """Case ``number`` of a command: its first kill is at the target of that number, in a shuffled order, or at random."""
    draw = random.Random(f"{seed} {bench.subject.name} {number}")
    verdict = Verdict()
    for place in range(1 + sum(draw.random() < 0.5 for _ in range(2))):
        if number % 4 == 3:
            _at_a_time(bench, draw, folder, verdict)
        else:
            target = aim(bench, draw, seed, number if place == 0 else None)
            _at_an_operation(bench, target, folder, verdict)
        if verdict.stuck:
            return verdict
    bench.check(folder, verdict)
    bench.finish(folder, verdict)
    return verdict


def aim(bench: Bench, draw: random.Random, seed: int, number: int | None) -> Moment:
    """A target: of all of the command in a shuffled order, or any."""
    targets = bench.targets()
    if number is None:
        target = draw.choice(targets)
    else:
        random.Random(f"{seed} {bench.subject.name}").shuffle(targets)
        target = targets[(number - number // 4) % len(targets)]  # every fourth case is at a random time
    everyone = draw.random() < (0.7 if target.process == LEADER else 0.4)
    return replace(target, everyone=everyone, size=draw.choice((0, 1, 7, 64, 700)))


def strike(process: Process, seconds: float, everyone: bool) -> bool:
    """SIGKILL after some seconds to a command, or to its whole session; whether it still lived."""
    time.sleep(seconds)
    if process.wait(0) is not None:
        return False
    if everyone:
        kill_all(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    return True


def _at_an_operation(bench: Bench, target: Moment, folder: Path, verdict: Verdict) -> None:
    trace = bench.root / f"{folder.name}-trace"
    trace.mkdir(exist_ok=True)
    for path in trace.iterdir():
        path.unlink()
    process = bench.start(folder, "killed", Injection(folder, (target,), trace))
    status = bench.listen(process, folder, verdict)
    verdict.plan.append([asdict(target), status])
    if target.process == LEADER:
        verdict.kills += status is not None and -status in _DEADLY
        return
    verdict.kills += (trace / "struck").exists() and (status != 0 or target.place != "torn")
    if status == 0:
        bench.compare(folder, verdict)  # nothing was hit, or the loss was made good


def _at_a_time(bench: Bench, draw: random.Random, folder: Path, verdict: Verdict) -> None:
    seconds, everyone = draw.uniform(0.0, 1.1) * bench.seconds, draw.random() < 0.7
    process = bench.start(folder, "killed")
    verdict.kills += strike(process, seconds, everyone)
    status = bench.listen(process, folder, verdict)
    verdict.plan.append([round(seconds, 3), everyone, status])


def cases(kills: int) -> Iterator[tuple[str, int]]:
    """About as many kills as asked for, shared out among the commands."""
    whole = sum(subject.share for subject in ALL)
    for subject in ALL:
        for number in range(round(kills / _PER_CASE * subject.share / whole)):
            yield subject.name, number
