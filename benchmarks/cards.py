"""Several runs on one card: rounds per second of all together, and the memory that they take.

    python benchmarks/cards.py --runs 1,4

Each run is a process; they begin their timed rounds together. ``--device cpu`` shares the cores instead.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

import torch

from competitors import assembled, bare_rounds
from fedtide.settings.params import Params
from workloads import WORKLOADS

WARM = 2


class Share(NamedTuple):
    """What one of several runs measures: seconds of its timed rounds, bytes of its tensors, and of everybody on the card."""

    seconds: float
    own: int
    together: int


def run(workload: str, device: str, rounds: int, barrier: Barrier, root: str) -> Share:
    """Some rounds of a workload, beginning together with the other runs."""
    raw = WORKLOADS[workload].raw(Path(root), rounds + WARM, engine={"accelerator": device, "workers": 1})
    world = assembled(Params(raw).run())
    go, card = bare_rounds(world), device == "cuda"
    go(WARM)
    barrier.wait()
    began = time.perf_counter()
    go(rounds)
    seconds = time.perf_counter() - began
    barrier.wait()
    free, total = torch.cuda.mem_get_info() if card else (0, 0)
    own = torch.cuda.max_memory_allocated() if card else 0
    barrier.wait()
    world.workers.close()
    return Share(seconds, own, total - free)


def together(workload: str, device: str, runs: int, rounds: int) -> list[Share]:
    """That many runs at a time."""
    context = multiprocessing.get_context("spawn")
    with (
        context.Manager() as manager,
        tempfile.TemporaryDirectory() as root,
        ProcessPoolExecutor(runs, context) as pool,
    ):
        barrier = manager.Barrier(runs)
        futures = [pool.submit(run, workload, device, rounds, barrier, root) for _ in range(runs)]
        return [future.result() for future in futures]


def main() -> None:
    """Print a line for each number of runs, as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options = parser.parse_args()
    os.environ["FEDTIDE_PLUGINS"] = str(Path(__file__).parent / "plugins")
    for workload in options.only:
        first = 0.0
        for runs in options.runs:
            shares = together(workload, options.device, runs, options.rounds)
            seconds = max(share.seconds for share in shares) / options.rounds
            rate = runs / seconds
            first = first or rate
            own, card = (max(sizes) / 1e6 for sizes in zip(*(share[1:] for share in shares), strict=True))
            speed = f"{1000 * seconds:,.1f} ms per round, {rate:,.1f} rounds/s together"
            more = f"{rate / first:.2f} times the first, {own:,.0f} MB each, {card:,.0f} MB of the card"
            print(f"{workload}, runs {runs}: {speed}, {more}", flush=True)


if __name__ == "__main__":
    main()
