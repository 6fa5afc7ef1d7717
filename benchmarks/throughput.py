"""Speed of the library as ratios to a plain loop: same machine, same process, same batches, turn by turn.

Every figure is a whole round: cohort, batches, local training, aggregation, Lightning, records. ``speed`` is a ratio of
times on the wall, ``CPU`` the processor time as a multiple of the other side's. Nothing here passes or fails; timings depend
on the machine and its load.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from fedtide.core.errors import SettingsError
from fedtide.training.resources.workers import available_cores
from parts import (
    COHORTS,
    Bench,
    Row,
    measure_algorithms,
    measure_clock,
    measure_cohorts,
    measure_links,
    measure_workload,
)
from workloads import WORKLOADS, crowd

PARTS = (*WORKLOADS, "cohorts", "algorithms", "links", "clock")


def main() -> None:
    options = _options()
    os.environ["FEDTIDE_PLUGINS"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parent / "plugins"), os.environ.get("FEDTIDE_PLUGINS", "")])
    )
    console = Console()
    engine = {"executor": options.executor, "accelerator": options.device, "precision": options.precision}
    machine = _machine(options)
    console.print("  ".join(f"{key} {value}" for key, value in machine.items()), style="dim")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        turns = options.turns or (2 if options.quick else 5)
        bench = Bench(Path(scratch), engine, turns, options.quick, options.small, console.print)
        for part in options.only:
            with console.status(part):
                rows += _measure(bench, part)
            console.print(_table(part, [row for row in rows if row.part == part]))
    if options.json:
        half = options.json.with_suffix(".part")
        half.write_text(json.dumps({"machine": machine, "rows": [row.figures() for row in rows]}, indent=1) + "\n")
        half.replace(options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and two turns")
    parser.add_argument("--small", action="store_true", help="smallest sizes: does everything work? no figures to keep")
    parser.add_argument("--only", type=_parts, default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--turns", type=int, default=0, help="how often competitors take turns; default 5, quick 2")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--executor", choices=("auto", "threads", "stacked"), default="auto")
    parser.add_argument("--precision", choices=("32-true", "64-true", "bf16-mixed", "16-mixed"), default="32-true")
    return parser.parse_args()


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := [part for part in chosen if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return chosen


def _machine(options: argparse.Namespace) -> dict[str, Any]:
    chip = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    facts = {"device": options.device, "chip": chip, "cores": available_cores(), "load": round(os.getloadavg()[0], 1)}
    facts |= {"torch": version("torch"), "executor": options.executor, "precision": options.precision}
    return facts | ({"sizes": "smallest"} if options.small else {})


def _measure(bench: Bench, part: str) -> list[Row]:
    if part in WORKLOADS:
        return measure_workload(bench, bench.sized(WORKLOADS[part]))
    measure = {
        "cohorts": measure_cohorts,
        "algorithms": measure_algorithms,
        "links": measure_links,
        "clock": measure_clock,
    }
    return measure[part](bench)


def _table(part: str, rows: list[Row]) -> Table:
    text = {**{name: workload.text for name, workload in WORKLOADS.items()}, "cohorts": crowd("mlp", COHORTS[0]).text}
    text["clock"] = "asynchronous training, per ten results"
    table = Table(title=f"{part}: {text.get(part, WORKLOADS['W1'].text)}", caption=_caption(rows))
    kinds = sorted({kind for row in rows for kind in row.peaks})
    headers = ("", "ms/round", "against", "ms/round", "speed", "range", "CPU", *(f"peak MB, {kind}" for kind in kinds))
    for header in headers:
        table.add_column(header, justify="left" if header in ("", "against") else "right")
    for row in rows:
        own, other = (
            f"{1000 * statistics.median(times.wall for times in values):,.1f}"
            for values in (row.seconds, row.reference)
        )
        speed = row.speed
        width = f"{speed.low:.2f}-{speed.high:.2f}"
        cells = [row.name, own, row.against, other, f"{speed.median:.2f}", width, f"{row.work.median:.2f}"]
        peaks = (" / ".join(f"{size / 1e6:,.0f}" for size in row.peaks[kind]) for kind in kinds)
        table.add_row(*cells, *peaks)
    return table


def _caption(rows: list[Row]) -> str:
    found = sorted({row.executor for row in rows} - {""})
    differences = {row.difference for row in rows} - {None}
    return "; ".join([*found, *(f"models differ by {value:.0e} of what was learned" for value in differences)])


if __name__ == "__main__":
    try:
        main()
    except SettingsError as error:
        raise SystemExit(f"error: {error}") from None
