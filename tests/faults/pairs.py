"""Two processes at once on everything that is written: each finishes, or declines because of the other."""

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from bench import Bench, Verdict
from subjects import ALL
from words import one_line

_CASES = 4  # of each command


def cases(kills: int) -> Iterator[tuple[str, int]]:
    """The same for any number of kills."""
    yield from ((subject.name, number) for subject in ALL for number in range(_CASES))


def execute(bench: Bench, number: int, seed: int, folder: Path) -> Verdict:
    """The second process starts with the first, or a random part of its time later.

    With MLflow, every second case is two different runs that both create the store.
    """
    draw, verdict = random.Random(f"{seed} pair {bench.subject.name} {number}"), Verdict()
    other = bench.subject.name == "run-mlflow" and number % 2 == 1
    if other:
        shutil.rmtree(folder / "mlruns")
    seconds = 0.0 if number == 0 else draw.uniform(0, bench.seconds)
    first = bench.start(folder, "first")
    time.sleep(seconds)
    second = bench.start(folder, "second", further=("--name", "other") if other else ())
    statuses = []
    for process in (first, second):
        status = bench.listen(process, folder, verdict)
        statuses.append(status)
        refused = status == 2 and one_line(process.lines) and "another process" in process.lines[-1]
        if status != 0 and (other or not refused):
            verdict.false.append(f"exit status {status} of one of two: {process.lines[-1:]}")
    verdict.kills += 1
    verdict.plan = [round(seconds, 3), *statuses]
    if 0 not in statuses:
        verdict.false.append("neither of two processes finished")
    bench.finish(folder, verdict)
    if other:
        verdict.changed = [line for line in verdict.changed if not line.startswith("left over: runs/other/")]
    return verdict
