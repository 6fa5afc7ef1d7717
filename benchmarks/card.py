"""One card in three minutes: how fast rounds are, how fast they could be, and whether plug-ins compute what they should.

    python benchmarks/card.py --json card.json
    python benchmarks/card.py --device cpu --quick          # does everything work? no figures to keep

``rounds``: bare rounds of the three workloads, their kernels, and the CUDA graphs that they record and replay.
``convolutions``: a local step of ten networks. ``equal``: plug-ins, twice on the card and once on the CPU.
``reference``: the same rounds as one JAX program, where JAX is installed; it is compiled while ``equal`` runs.
Nothing passes or fails. What was not reached in time is named.
"""

import argparse
import cProfile
import importlib.util
import json
import os
import platform
import pstats
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch

import equality
from competitors import assembled, bare_rounds
from fedtide.core.errors import SettingsError
from fedtide.federation.types import Parts
from fedtide.settings.params import Params
from fedtide.training.engine.executors import replay, stacked
from fedtide.training.resources.workers import Workers, WorkerState
from peers.fedtide import task_of, write
from peers.task import load
from timing import counted_graphs, kernel_milliseconds
from workloads import WORKLOADS, Workload

HERE = Path(__file__).parent.resolve()
PARTS = ("rounds", "convolutions", "equal", "reference")
GOALS = {"W1": 10, "W2": 30, "W3": 5}
"""Milliseconds of a round that are aimed at on an H200."""
PRECISIONS = ("32-true", "tf32")


class TimeUp(BaseException):
    """The time of the whole command is over."""


@dataclass
class Bench:
    """How to measure, and what has been measured.

    Attributes:
        device: ``cpu`` or ``cuda``. quick: smallest sizes. profile: whether to list the host's functions. equal: seconds for
            the plug-ins. scratch: folder of data.
        tasks: workloads and precisions that were measured, with the numbers of parameters. found: all figures, for the JSON
            file. left_out: parts that have not begun.
    """

    device: str
    quick: bool
    profile: bool
    equal: float
    scratch: Path
    tasks: dict[tuple[str, str], int] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def rounds(self) -> tuple[int, int]:
        """Rounds that record graphs and fill caches, and rounds that are timed."""
        return (1, 2) if self.quick else (3, 10)

    def world(self, workload: Workload, **engine: Any) -> Parts:
        """The parts of a run of many rounds."""
        raw = workload.raw(self.scratch / "data", 1000, engine={"accelerator": self.device, **engine})
        return assembled(Params(raw).run())

    def workload(self, name: str) -> Workload:
        """One of the three workloads."""
        return WORKLOADS[name].small if self.quick else WORKLOADS[name]


def milliseconds(go: Callable[[int], None], rounds: int) -> float:
    """Median time of a round."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        go(1)
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


def measure_rounds(bench: Bench) -> None:
    """Bare rounds of the workloads in every precision that the settings know."""
    rows, (warm, timed) = bench.found.setdefault("rounds", []), bench.rounds
    for precision in PRECISIONS:
        for name in WORKLOADS:
            workload = bench.workload(name)
            try:
                world = bench.world(workload, precision=precision)
            except SettingsError as error:
                print(f"precision {precision} left out: {error}", flush=True)
                break
            go = bare_rounds(world)
            go(warm)
            with counted_graphs() as graphs:
                row = {"workload": name, "precision": precision, "ms": milliseconds(go, timed)}
            rows.append(row)
            row |= {key: count / timed for key, count in graphs.items()}
            if bench.device == "cuda":
                row["kernels_ms"] = kernel_milliseconds(go)
            shown = ", ".join(f"{key} {value:,.1f}" for key, value in row.items() if isinstance(value, float))
            print(f"{name} {precision}: {shown}; goal {GOALS[name]}", flush=True)
            if bench.profile:
                print("\n".join(f"    {line}" for line in expensive(go, world)), flush=True)
            if precision == PRECISIONS[0] and jax_installed():
                write(task_of(workload, bench.scratch / name, timed), world)
            bench.tasks[name, precision] = world.layout.size
            world.workers.close()


def expensive(go: Callable[[int], None], world: Parts, rounds: int = 3) -> Iterator[str]:
    """The ten functions of the host in which most time is spent, local steps included."""
    worker = WorkerState(world.task)

    def in_this_thread(_: Workers, function: Callable[..., Any], items: Any) -> list[Any]:
        return [function(worker, item) for item in items]

    profile = cProfile.Profile()
    with patch.object(Workers, "map", in_this_thread):
        profile.runcall(go, rounds)
    figures: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, line, name), (_, calls, own, total, _) in sorted(figures.items(), key=lambda item: -item[1][2])[:10]:
        where = f"{'/'.join(Path(file).parts[-2:])}:{line} {name}" if line else name
        yield f"{1000 * own / rounds:8.2f} ms, {1000 * total / rounds:8.2f} with callees, {calls / rounds:,.0f} calls: {where}"


def measure_convolutions(bench: Bench) -> None:
    """A local step of ten networks as part of a round; on a card in a stream each, as grouped convolutions, launched singly."""
    rows = bench.found.setdefault("convolutions", [])
    nets = {"lenet": (1, 28, 28), "cnn_5x5": (3, 32, 32), "cnn_leaky": (3, 32, 32)}
    networks, steps = (2, 2) if bench.quick else (10, 40)
    ways: dict[str, tuple[Any, str, Any] | None] = {"by default": None}
    if bench.device == "cuda":
        ways |= {"grouped": (stacked, "STREAMS", 0), "launched singly": (replay, "record", lambda work, device: None)}
    for (model, shape), (way, changed) in product(nets.items(), ways.items()):
        local = {"steps": steps, "batch_size": 50}
        workload = Workload("", "", model, shape, networks, 50, networks, local, 1, surroundings=False)
        with patch.object(*changed) if changed else nullcontext():
            world = bench.world(workload)
            go = bare_rounds(world)
            go(bench.rounds[0])
            row = {"model": model, "way": way, "ms": milliseconds(go, bench.rounds[0]) / steps}
            world.workers.close()
        rows.append(row)
        print(f"{networks} x {model}, {way}: {row['ms']:,.2f} ms a step", flush=True)


def measure_equality(bench: Bench) -> None:
    """See ``equality.py``."""
    compared = bench.found["equal"] = equality.Found()
    try:
        equality.compare(torch.device(bench.device), bench.equal, compared, lambda line: print(line, flush=True))
    finally:
        print(compared.summary(), flush=True)


class References:
    """The workloads as JAX programs, each in a process of its own, which is ready once it is compiled.

    Two are compiled at a time. Their timed rounds begin one after the other, in :meth:`figures`.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.running: list[subprocess.Popen[str]] = []
        self.closed = False
        self._pool = ThreadPoolExecutor(2)
        self._ready: dict[tuple[str, str], Future[subprocess.Popen[str]]] = {
            key: self._pool.submit(self._begin, *key) for key in bench.tasks
        }

    def _files(self, name: str, precision: str) -> tuple[Path, Path]:
        """Where a process writes its result, and its errors."""
        result = self.bench.scratch / f"{name}-{precision}.json"
        return result, result.with_suffix(".err")

    def _begin(self, name: str, precision: str) -> subprocess.Popen[str]:
        result, errors = self._files(name, precision)
        variant = "jax" if precision == PRECISIONS[0] else f"jax-{precision}"
        command = [
            sys.executable,
            "-m",
            "peers.contender",
            variant,
            str(self.bench.scratch / name),
            str(result),
            "--wait",
        ]
        paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        # Of a card all take what they need: the library's own memory is still on it.
        own = {"PYTHONPATH": paths, "JAX_PLATFORMS": self.bench.device, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with errors.open("w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **own}
            )
        self.running.append(process)
        if self.closed:
            process.kill()
        assert process.stdout is not None
        while (line := process.stdout.readline()) and line != "ready\n":
            pass
        return process

    def figures(self) -> None:
        """Time the rounds of all, and print them as shares of the library's."""
        rows = self.bench.found.setdefault("reference", [])
        ours = {(row["workload"], row["precision"]): row["ms"] for row in self.bench.found["rounds"]}
        for (name, precision), ready in self._ready.items():
            process = ready.result()
            process.communicate("go\n")
            result, errors = self._files(name, precision)
            if process.returncode:
                last = (errors.read_text().strip().splitlines() or ["no message"])[-1]
                print(f"{name} {precision}: the JAX program failed: {last}", flush=True)
                continue
            size, expected = (
                sum(value.size for value in load(result.with_suffix(".npz"))),
                self.bench.tasks[name, precision],
            )
            if size != expected:
                raise RuntimeError(f"{name} has {size} parameters in JAX, {expected} here")
            theirs, own = 1000 * json.loads(result.read_text())["wall"], ours[name, precision]
            rows.append({"workload": name, "precision": precision, "ms": theirs, "ratio": own / theirs})
            print(f"{name} {precision}: JAX {theirs:,.1f} ms, fedtide {own:,.1f}, ratio {own / theirs:.2f}", flush=True)

    def close(self) -> None:
        """End the processes that have not ended."""
        self.closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self.running:
            process.kill()
        self._pool.shutdown()
        for process in self.running:
            process.wait()


def measure(bench: Bench, chosen: tuple[str, ...], save: Callable[[], None]) -> None:
    """All chosen parts in their order; a part that fails is reported, and the others follow."""

    def part(name: str, function: Callable[[Bench], None]) -> None:
        if name not in chosen:
            return
        bench.left_out.remove(name)
        try:
            function(bench)
        except Exception as error:
            traceback.print_exc()
            bench.found.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
        save()

    bench.left_out = list(chosen)
    part("rounds", measure_rounds)
    part("convolutions", measure_convolutions)
    if "reference" not in chosen or not jax_installed():
        part("equal", measure_equality)
        part("reference", lambda _: print("reference: JAX is not installed", flush=True))
        return
    with closing(References(bench)) as references:
        part("equal", measure_equality)
        part("reference", lambda _: references.figures())


def jax_installed() -> bool:
    """Whether there is a reference."""
    return importlib.util.find_spec("jax") is not None


def main() -> None:
    options = _options()
    plugins = [str(HERE / "plugins"), os.environ.get("FEDTIDE_PLUGINS", "")]
    os.environ["FEDTIDE_PLUGINS"] = os.pathsep.join(filter(None, plugins))
    chip = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    machine = {"device": options.device, "chip": chip, "torch": version("torch"), "load": round(os.getloadavg()[0], 1)}
    print("  ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        equal = min(options.equal_seconds, options.seconds)
        bench = Bench(options.device, options.quick, options.profile, equal, Path(scratch))

        def save() -> None:
            if options.json:
                compared = bench.found.get("equal")
                found = bench.found | ({"equal": asdict(compared)} if compared else {})
                figures = {"machine": machine, "seconds": time.monotonic() - began, "left_out": bench.left_out, **found}
                half = options.json.with_suffix(".part")
                half.write_text(json.dumps(figures, indent=1) + "\n")
                half.replace(options.json)

        signal.signal(signal.SIGALRM, _time_is_up)
        signal.setitimer(signal.ITIMER_REAL, options.seconds)
        try:
            measure(bench, options.only, save)
        except TimeUp:
            print(
                f"stopped after {options.seconds:g} s; parts that were not begun: {', '.join(bench.left_out) or 'none'}"
            )
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        save()
    print(f"{time.monotonic() - began:.0f} s")


def _time_is_up(_: int, __: FrameType | None) -> None:
    raise TimeUp


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="smallest sizes: does everything work?")
    parser.add_argument("--only", type=_parts, default=PARTS, help=f"some of {','.join(PARTS)}")
    parser.add_argument("--seconds", type=_positive, default=180.0, help="end after so many seconds (default: 180)")
    parser.add_argument(
        "--equal-seconds", type=_positive, default=60.0, help="begin no plug-in after so many (default: 60)"
    )
    parser.add_argument("--profile", action="store_true", help="list the ten most expensive functions of the host")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures, after every part")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no GPU; --device cpu tests the command")
    return options


def _parts(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := [part for part in chosen if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return (
        *chosen,
        *(["rounds"] if "reference" in chosen and "rounds" not in chosen else []),
    )  # which it is compared with


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} should be above 0")
    return value


if __name__ == "__main__":
    main()
