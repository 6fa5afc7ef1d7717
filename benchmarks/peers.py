"""Speed of other libraries as ratios to this one: same machine, same data, each in an environment of its own, turn by turn.

Missing environments are built with venv and pip from ``benchmarks/peers/*.txt``. Every turn of a contender is a process of its
own; its figures are written at once, so an interrupted measurement goes on where it stopped. A contender that fails is
reported and does not stop the others. ``benchmarks/peers.md`` says what is compared and how.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from competitors import assembled
from peers.environments import python_of
from peers.fedtide import settings_of, task_of, write
from peers.networks import network
from peers.task import Task, load
from timing import Ratio
from workloads import WORKLOADS

HERE = Path(__file__).parent.resolve()
OURS = "fedtide"
MODES = {
    "full": "the measurement",
    "quick": "fewer rounds",
    "check": "every client takes part, so that all contenders must learn the same",
}
CONTENDERS = {
    OURS: "fedtide",
    "fedtide-naive": "plain PyTorch loop, one thread",
    "pfl": "pfl-research, two processes",
    "fedjax": "FedJAX, `jit`",
    "jax": "a JAX program for these workloads",
    "flower": "Flower, two Ray actors",
    "fluke": "fluke, two threads",
    "fluke-1": "fluke, one thread",
}
LIMIT = 600  # seconds that one turn may take
TESTED = 5000  # training samples on which the final models are compared


def main() -> None:
    options = _options()
    console = Console(highlight=False)
    plugins = [str(HERE / "plugins"), os.environ.get("FEDTIDE_PLUGINS", "")]
    os.environ["FEDTIDE_PLUGINS"] = os.pathsep.join(filter(None, plugins))
    bench = Bench(options.folder.resolve(), options.mode, console.print)
    if options.fresh:
        bench.results.unlink(missing_ok=True)
    tables = []
    for workload in options.only:
        task = bench.task(workload)
        for turn in range(options.turns):
            for contender in options.contenders:
                bench.take_turn(task, turn, contender)
        tables.append(bench.table(task, options.contenders))
        console.print(tables[-1], soft_wrap=True)
    (bench.folder / f"tables-{options.mode}.md").write_text("\n".join(tables))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_some(tuple(WORKLOADS)), default=tuple(WORKLOADS), help="workloads, as W1,W3")
    parser.add_argument(
        "--contenders", type=_some(tuple(CONTENDERS)), default=tuple(CONTENDERS), help=",".join(CONTENDERS)
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--mode", choices=MODES, default="full", help="; ".join(f"{k}: {v}" for k, v in MODES.items()))
    parser.add_argument("--folder", type=Path, default=Path(".peers"), help="for environments, data and figures")
    parser.add_argument("--fresh", action="store_true", help="forget the figures of an earlier measurement")
    return parser.parse_args()


def _some(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        if unknown := [name for name in text.split(",") if name not in known]:
            raise argparse.ArgumentTypeError(f"no {', '.join(unknown)}; there are {', '.join(known)}")
        return tuple(text.split(","))

    return parse


@dataclass(frozen=True)
class Bench:
    """Where and how to measure.

    Attributes:
        folder: of environments, data and figures. mode: of :data:`MODES`. log: gets remarks.
    """

    folder: Path
    mode: str
    log: Callable[[str], None]

    @property
    def results(self) -> Path:
        """File with all figures, by workload, contender and turn."""
        return self.folder / f"results-{self.mode}.json"

    def figures(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Content of :attr:`results`; a damaged file ends the program with a line that says so."""
        try:
            text = self.results.read_text() if self.results.exists() else "{}"
            found: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
        except ValueError as error:
            raise SystemExit(f"error: {self.results} is damaged ({error}); --fresh starts a new measurement") from None
        return found

    def task(self, name: str) -> Task:
        """A workload's task, written if it is not there."""
        workload = WORKLOADS[name]
        if self.mode == "check":
            workload = replace(workload, clients=workload.cohort)
        timed = {"full": workload.timed, "quick": max(workload.timed // 3, 1), "check": 1}[self.mode]
        task = task_of(workload, self.folder / "tasks" / f"{name}-{self.mode}", timed)
        if not (task.folder / "task.json").exists() or Task.read(task.folder) != task:
            world = assembled(settings_of(task))
            write(task, world)
            world.workers.close()
        return task

    def take_turn(self, task: Task, turn: int, contender: str) -> None:
        """Run a contender once and note its figures, unless that has been done."""
        found = self.figures()
        done = found.setdefault(task.name, {}).setdefault(contender, {})
        if "wall" in done.get(str(turn), {}):
            return
        load_before = os.getloadavg()[0]
        figures = {**self._run(task, contender), "load": round(load_before, 1)}
        done[str(turn)] = figures
        half = self.results.with_suffix(".part")
        half.write_text(json.dumps(found, indent=1) + "\n")
        half.replace(self.results)
        told = f"{1000 * figures['wall']:,.0f} ms per round" if "wall" in figures else f"failed: {figures['error']}"
        self.log(f"{task.name}, turn {turn + 1}, {contender}: {told}")

    def _run(self, task: Task, contender: str) -> dict[str, Any]:
        """Figures of one run, or an ``error``."""
        library = contender.partition("-")[0]
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            result = Path(scratch) / "result.json"
            try:
                python = sys.executable if library == OURS else python_of(library, self.folder / "environments")
                command = [python, "-m", "peers.contender", contender, str(task.folder), str(result)]
                paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH") if library == OURS else None])]
                environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
                subprocess.run(
                    command, check=True, capture_output=True, text=True, timeout=LIMIT, cwd=scratch, env=environment
                )
            except subprocess.CalledProcessError as error:
                return {"error": _reason(error)}
            except subprocess.TimeoutExpired:
                return {"error": f"not done after {LIMIT} s"}
            figures: dict[str, Any] = json.loads(result.read_text())
            return {**figures, **_learned(task, load(result.with_suffix(".npz")))}

    def table(self, task: Task, contenders: tuple[str, ...]) -> str:
        """Figures of a workload in Markdown; ratios are those of turns that both sides finished."""
        found = self.figures()[task.name]
        lines = [
            f"{WORKLOADS[task.name].text}:",
            "",
            "| contender | ms per round | time | range | CPU | change | loss |",
            "|---|---|---|---|---|---|---|",
        ]
        ours = {turn: figures for turn, figures in found.get(OURS, {}).items() if "wall" in figures}
        for contender in contenders:
            turns = {turn: figures for turn, figures in found[contender].items() if turn in ours and "wall" in figures}
            if not turns:
                errors = {figures.get("error", "") for figures in found[contender].values()}
                lines.append(f"| {CONTENDERS[contender]} | failed: {'; '.join(sorted(errors))} | | | | | |")
                continue
            pairs = [(figures, ours[turn]) for turn, figures in turns.items()]
            wall, processor, change = (
                Ratio.of((theirs[key] for theirs, _ in pairs), (own[key] for _, own in pairs))
                for key in ("wall", "processor", "change")
            )
            typical = 1000 * statistics.median(figures["wall"] for figures in turns.values())
            loss = statistics.median(figures["loss"] for figures in turns.values())
            span = f"{wall.low:.2f}-{wall.high:.2f}"
            cells = (CONTENDERS[contender], f"{typical:,.0f}", f"{wall.median:.2f}", span, f"{processor.median:.2f}")
            lines.append(f"| {' | '.join(cells)} | {change.median:.4f} | {loss:.4f} |")
        loads = [figures["load"] for turns in found.values() for figures in turns.values()]
        versions = {
            f"{name} {number}"
            for contender in contenders
            for figures in found[contender].values()
            for name, number in figures.get("versions", {}).items()
        }
        lines += ["", f"Load before a turn {min(loads)} to {max(loads)}; {', '.join(sorted(versions))}.", ""]
        return "\n".join(lines)


def _reason(error: subprocess.CalledProcessError) -> str:
    """The last line that names an exception, or the last line."""
    lines = error.stderr.strip().splitlines() or [str(error)]
    return next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)), lines[-1])


def _learned(task: Task, model: list[np.ndarray[Any, np.dtype[np.float32]]]) -> dict[str, float]:
    """How far the model has moved from the initial one, and its loss on some of the training samples."""
    inputs, labels = task.data()
    some = -(-TESTED // task.samples)
    with torch.no_grad():
        logits = network(task.model, model)(torch.from_numpy(inputs[:some].copy()).flatten(0, 1))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels[:some]).flatten())
    change = sum(float(np.square(new - old).sum()) for new, old in zip(model, task.initial(), strict=True))
    return {"change": change**0.5, "loss": float(loss)}


if __name__ == "__main__":
    main()
