"""What a large population costs: runs of 100 participants a round among ever more clients, each run in a process of its own.

A client holds two samples of 64 features; participants train logistic regression for ten steps. Memories are on disk, wireless
costs are counted, and every tenth round is evaluated and saved. Times are of the processor, on one core; the populations take
turns, and a ratio is the median over the turns.

With ``--largest`` all clients take part, for an epoch in batches of 32, one of them with so many samples.
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

PARTICIPANTS, EVERY = 100, 10


class Costs(NamedTuple):
    """What one run costs.

    Attributes:
        world: seconds to build the world once the data are loaded. world_peak: bytes of the process until then. rounds:
            seconds of each but the first round. peak: bytes of the process. state: bytes of both saved states.
    """

    world: float
    world_peak: int
    rounds: list[float]
    peak: int
    state: int

    @property
    def median(self) -> float:
        """Seconds of a round without evaluation and saved state."""
        return statistics.median(self.rounds)

    @property
    def mean(self) -> float:
        """Seconds of a round with its share of these."""
        return statistics.fmean(self.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--algorithms", nargs="+", default=["fedavg", "scaffold"])
    parser.add_argument("--participation", default="sampled", help="rule that draws the participants: sampled, fixed")
    parser.add_argument("--largest", type=int, help="samples of one client, among others with two")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    plugins = [str(Path(__file__).parent / "plugins"), os.environ.get("FEDTIDE_PLUGINS", "")]
    os.environ["FEDTIDE_PLUGINS"] = os.pathsep.join(filter(None, plugins))
    console = Console(width=110)
    for algorithm in options.algorithms:
        found: dict[int, list[Costs]] = {clients: [] for clients in options.clients}
        with console.status(algorithm):
            for _ in range(options.turns):
                for clients, costs in found.items():
                    costs.append(_alone(clients, algorithm, options.participation, options.rounds, options.largest))
        who = f"{PARTICIPANTS} participants per round, {options.participation}"
        console.print(
            _table(f"{algorithm}: {f'one of {options.largest:,} samples' if options.largest else who}", found)
        )


def _alone(*choices: Any) -> Costs:
    """The costs of a run in a process of its own, forked off a small server."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as pool:
        return pool.submit(_measured, *choices).result()


def _measured(clients: int, algorithm: str, participation: str, rounds: int, largest: int | None) -> Costs:
    from fedtide.runs.display.progress import Watch
    from fedtide.runs.execution import execute
    from fedtide.runs.workspace import Workspace
    from fedtide.settings.params import Params
    from fedtide.world.building.build import timeline_for
    from fedtide.world.storage.prepared import load_data
    from timing import RoundClock

    with tempfile.TemporaryDirectory() as folder:
        raw: dict[str, Any] = {
            "validation": 0.0,
            "data": {"name": "crowd", "clients": clients, "root": folder},
            "scenario": {"name": "static", "rounds": rounds, "num_clients": None},
            "partition": "natural",
            "participation": {"name": participation, "count": PARTICIPANTS},
            "model": "softmax_regression",
            "local": {"lr": 0.01, "steps": 10, "batch_size": 2},
            "algorithm": algorithm,
            "client_state": {"storage": "disk"},
            "costs": {"wireless": True},
            "evaluation": {"every": EVERY},
            "checkpoint": {"every": EVERY},
            "engine": {"accelerator": "cpu", "workers": 1},
        }
        if largest:
            raw["data"] |= {"largest": largest}
            raw |= {"participation": "all", "local": {"lr": 0.01, "epochs": 1, "batch_size": 32}}
        settings, clock = Params(raw).run(), RoundClock()
        data = load_data(settings)
        began = time.process_time()
        timeline_for(settings, data)
        world, world_peak = time.process_time() - began, _peak()
        del data
        execute(settings, Workspace(Path(folder) / "runs"), watch=Watch(callbacks=[clock]))
        ends = [times.processor for times in clock.ends]
        state = sum(path.stat().st_size for path in (Path(folder) / "runs").glob("*/state/*"))
    seconds = [end - start for start, end in pairwise(ends)]
    return Costs(world, world_peak, seconds, _peak(), state)


def _peak() -> int:
    """Most bytes of memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _table(name: str, found: dict[int, list[Costs]]) -> Table:
    table = Table(title=name)
    headers = ("clients", "world, s", "peak MB", "ms/round", "ratio", "with saves", "ratio", "peak MB", "state, MB")
    for header in headers:
        table.add_column(header, justify="right")
    first = next(iter(found.values()))
    for clients, costs in found.items():
        ratios = [statistics.median(a.median / b.median for a, b in zip(costs, first, strict=True))]
        ratios += [statistics.median(a.mean / b.mean for a, b in zip(costs, first, strict=True))]
        typical = [statistics.median(values) for values in zip(*((c.median, c.mean) for c in costs), strict=True)]
        table.add_row(
            f"{clients:,}",
            f"{statistics.median(c.world for c in costs):.1f}",
            f"{max(c.world_peak for c in costs) / 1e6:,.0f}",
            f"{1000 * typical[0]:.1f}",
            f"{ratios[0]:.2f}",
            f"{1000 * typical[1]:.1f}",
            f"{ratios[1]:.2f}",
            f"{max(c.peak for c in costs) / 1e6:,.0f}",
            f"{costs[-1].state / 1e6:.2f}",
        )
    return table


if __name__ == "__main__":
    main()
