"""What tracking costs: training time of one run with MLflow's store, with a server, and with servers that fail.

    python benchmarks/tracking.py [--rounds 100] [--turns 5]

Training is from the first round to the last: its time, and the time of the processor, as ratios to a run without a tracker.
The rest of a run are seconds: what is before its first round and after its last. The runs take turns; printed are the median
and the range over the turns.
"""

import argparse
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lightning as L

from fedtide.runs.display.progress import Watch
from fedtide.runs.execution import execute
from fedtide.runs.mlflow.server import Server
from fedtide.runs.mlflow.store import Store
from fedtide.runs.workspace import Workspace
from fedtide.settings.params import Params
from fedtide.settings.run import RunSettings

Place = Path | Server | None


class Rounds(L.Callback):
    """Seconds from the first round to the last, and those of the processor; ``middle`` is called half-way."""

    def __init__(self, middle: Callable[[], object] = lambda: None) -> None:
        self.seconds = self.processor = 0.0
        self._middle, self._began = middle, (0.0, 0.0)

    def on_train_start(self, trainer: L.Trainer, *_: Any) -> None:
        """Begin."""
        self._began = time.perf_counter(), time.process_time()

    def on_train_epoch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Count."""
        self.seconds, self.processor = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        if trainer.current_epoch == (trainer.max_epochs or 0) // 2:
            self._middle()


@contextmanager
def server(folder: Path) -> Iterator[tuple[Server, Callable[[], None]]]:
    """A real server and a function that kills it."""
    folder.mkdir()
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(folder), "--port", str(port), "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )

    def kill() -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    try:
        where = Server.at(f"http://127.0.0.1:{port}")
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{where.address}/health"):
                break
            time.sleep(0.5)
        yield where, kill
    finally:
        kill()


def measured(settings: RunSettings, where: Place, scratch: Path, middle: Callable[[], object]) -> tuple[float, ...]:
    """Seconds of training, of the processor meanwhile, and of the rest of the run."""
    runs, rounds = Path(tempfile.mkdtemp(dir=scratch)), Rounds(middle)
    began = time.perf_counter()
    workspace = Workspace(runs, None, where, "bench", "", True)
    summary = execute(settings, workspace, watch=Watch(callbacks=[rounds]))
    seconds = time.perf_counter() - began
    assert summary["state"] == "complete"
    shutil.rmtree(runs)
    return rounds.seconds, rounds.processor, seconds - rounds.seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="of a run")
    parser.add_argument("--turns", type=int, default=5, help="how often each is measured")
    chosen = parser.parse_args()
    scratch = Path(tempfile.mkdtemp())
    raw = {
        "data": {"name": "digits", "root": str(scratch / "data")},
        "scenario": {"name": "static", "rounds": chosen.rounds, "num_clients": 40},
        "model": {"name": "mlp"},
        "local": {"steps": 10, "batch_size": 16},
        "engine": {"workers": 1},
    }
    settings = Params(raw).run()
    names = ("none", "SQLite", "server", "server killed half-way", "nothing there", "accepts, never answers")
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    Store(scratch / "mlruns", "bench")
    with server(scratch / "lasting") as (lasting, _), socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        places: dict[str, Place] = {
            "none": None,
            "SQLite": scratch / "mlruns",
            "server": lasting,
            "nothing there": Server.at("http://127.0.0.1:9"),
            "accepts, never answers": Server.at(f"http://127.0.0.1:{silent.getsockname()[1]}"),
        }
        measured(settings, lasting, scratch, lambda: None)  # imports
        for turn in range(chosen.turns):
            for name in names:
                if name in places:
                    times[name].append(measured(settings, places[name], scratch, lambda: None))
                else:
                    with server(scratch / f"dying-{turn}") as (dying, kill):
                        times[name].append(measured(settings, dying, scratch, kill))
    shutil.rmtree(scratch)
    base = times["none"]
    print(f"{'tracker':<26}{'training':>22}{'processor':>22}{'rest [s]':>20}")
    for name in names:
        ratios = [[mine[part] / other[part] for mine, other in zip(times[name], base, strict=True)] for part in (0, 1)]
        cells = [f"{statistics.median(found):.3f} ({min(found):.3f}-{max(found):.3f})" for found in ratios]
        rest = [each[2] for each in times[name]]
        print(
            f"{name:<26}{cells[0]:>22}{cells[1]:>22}{statistics.median(rest):>8.2f} ({min(rest):.2f}-{max(rest):.2f})"
        )


if __name__ == "__main__":
    main()
