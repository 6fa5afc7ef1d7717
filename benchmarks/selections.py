"""How close a group's labels come to the population's, and how long a selection takes, by size of the group.

The setting of DynamicFL's figures 5 to 19: 50,000 samples dealt to 100 clients by label shares or in shards, a tenth or three
tenths of them active, groups of a given size. Brute force is left out where it would have to look at more groups than
``--limit``.
"""

import argparse
import math
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from fedtide.core import plugins
from fedtide.core.randomness import Randomness
from fedtide.methods.selection.base import Candidates, divergence
from fedtide.report.charts.style import WIDTH, line_style, paper, png

SELECTIONS = ("dynacomm", "brute_force", "genetic", "random")
CLIENTS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--active", type=int, nargs="+", default=[10, 30], help="clients of a round")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument(
        "--partition", nargs="+", default=["dirichlet:0.1"], metavar="RULE", help="dirichlet:ALPHA, shards:CLASSES"
    )
    parser.add_argument("--rounds", type=int, default=5, help="cohorts per figure; medians are shown")
    parser.add_argument("--limit", type=int, default=200_000, help="most groups brute force looks at")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write a PNG")
    options = parser.parse_args()
    found = {
        f"{active} of {CLIENTS} clients, {rule}": _measure(options, active, _counts(rule, options.classes))
        for rule in options.partition
        for active in options.active
    }
    for title, points in found.items():
        _print(title, points)
    if options.figure:
        part = options.figure.with_suffix(".part")
        part.write_bytes(_figure(found))
        part.replace(options.figure)


Points = dict[str, list[tuple[int, float, float]]]
"""By selection: sizes of the group, divergences in nats, seconds."""


def _counts(rule: str, classes: int) -> torch.Tensor:
    """Samples per class of every client."""
    name, _, number = rule.partition(":")
    known = {"dirichlet": ("dirichlet_balanced", "alpha", float), "shards": ("shards", "classes_per_client", int)}
    plugin, key, kind = known[name]
    cls: Any = plugins.load("partitions", plugin)
    labels = np.repeat(np.arange(classes), 50_000 // classes)
    shards = cls(cls.Settings(**{"name": plugin, key: kind(number)})).deal(labels, CLIENTS, classes, 0)
    return torch.from_numpy(np.array([np.bincount(labels[own], minlength=classes) for own in shards], dtype=np.float64))


def _measure(options: argparse.Namespace, active: int, table: torch.Tensor) -> Points:
    points: Points = {name: [] for name in SELECTIONS}
    for size in range(1, active + 1, max(1, active // 10)):
        for name in SELECTIONS:
            if name == "brute_force" and math.comb(active, size) > options.limit:
                points[name].append((size, math.nan, math.nan))
                continue
            runs = [_select(name, active, size, t, table) for t in range(options.rounds)]
            points[name].append((size, *(statistics.median(values) for values in zip(*runs, strict=True))))
    return points


def _select(name: str, active: int, size: int, t: int, table: torch.Tensor) -> tuple[float, float]:
    rows = np.random.default_rng(t).permutation(CLIENTS)[:active]
    r: Any = SimpleNamespace(
        t=t,
        problem=SimpleNamespace(randomness=Randomness(0)),
        label_counts=table[rows],
        services=SimpleNamespace(population_counts=lambda: table),
    )
    candidates = Candidates(r, np.arange(active), active, size)
    cls: Any = plugins.load("selection", name)
    selection = cls(cls.Settings(name=name))
    began = time.perf_counter()
    group = selection.choose(candidates)
    seconds = time.perf_counter() - began
    return float(divergence(candidates.counts[group].sum(0), candidates.population)), seconds


def _print(title: str, points: Points) -> None:
    table = Table(title=f"{title}: divergence (nats), milliseconds")
    table.add_column("size", justify="right")
    for name in points:
        table.add_column(name, justify="right")
    cells = {
        name: {size: "" if math.isnan(gap) else f"{gap:.4f}, {1000 * seconds:.1f}" for size, gap, seconds in own}
        for name, own in points.items()
    }
    for size in cells["random"]:
        table.add_row(str(size), *(own[size] for own in cells.values()))
    Console().print(table)


def _readable(title: str) -> str:
    """A title with the name of the partition instead of its argument."""
    head, _, rule = title.rpartition(", ")
    name, _, number = rule.partition(":")
    return f"{head}, {f'Dirichlet {number}' if name == 'dirichlet' else f'{number} classes per client'}"


def _figure(found: dict[str, Points]) -> bytes:
    with paper():
        figure = Figure(figsize=(WIDTH, 2.6 * len(found)), layout="constrained")
        grid = figure.subplots(len(found), 2, squeeze=False)
        for (title, points), (left, right) in zip(found.items(), grid, strict=True):
            for number, (name, own) in enumerate(points.items()):
                sizes, gaps, seconds = zip(*(point for point in own if not math.isnan(point[1])), strict=True)
                look = {"marker": "o", "markersize": 6 - number, "zorder": 3 + number / 10, **line_style(number)}
                look |= {"linestyle": "none"} if len(sizes) < len(own) else {}  # points are missing between those
                left.plot(sizes, gaps, label=name, **look)
                right.plot(sizes, [1000 * value for value in seconds], **look)
            left.set_title(_readable(title))
            left.set_ylabel("Divergence (nats)")
            left.set_yscale("symlog", linthresh=0.01)
            left.set_ylim(bottom=-0.002)
            right.set_ylabel("Milliseconds")
            right.set_yscale("log")
            for axes in (left, right):
                axes.set_xlabel("Clients in the group")
        handles, names = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
        return png(figure)


if __name__ == "__main__":
    main()
