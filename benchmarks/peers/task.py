"""What every contender gets and gives back; imported in their environments, so it needs NumPy only, and uses psutil."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WARM = 2  # rounds before the timed ones: compilation, caches, first use of every client's data
AFTER = 1  # and after them: fedtide tests the model in the last round

Arrays = list[NDArray[np.float32]]


@dataclass(frozen=True)
class Task:
    """A workload in files: the same data, partition and initial model for everybody.

    Attributes:
        folder: of the files. name, model: of the workload and its network.
        clients, samples: number of clients, and samples of each. cohort: participants of a round.
        epochs, batch, lr: of a client's plain SGD; ``batch`` divides ``samples``.
        timed: rounds that are timed.
    """

    folder: Path
    name: str
    model: str
    clients: int
    samples: int
    cohort: int
    epochs: int
    batch: int
    lr: float
    timed: int

    @property
    def rounds(self) -> int:
        """All rounds of a run."""
        return WARM + self.timed + AFTER

    def write(self, inputs: NDArray[np.float32], labels: NDArray[np.int64], initial: Arrays) -> None:
        """Write all files; see :meth:`data` and :meth:`initial`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        np.save(self.folder / "inputs.npy", inputs)
        np.save(self.folder / "labels.npy", labels)
        save(self.folder / "initial.npz", initial)
        values = {key: value for key, value in vars(self).items() if key != "folder"}
        (self.folder / "task.json").write_text(json.dumps(values, indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> Task:
        """The task in ``folder``."""
        return Task(folder=folder, **json.loads((folder / "task.json").read_text()))

    def data(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Inputs [clients, samples, channels, height, width], mapped from the file, and labels [clients, samples]."""
        return np.load(self.folder / "inputs.npy", mmap_mode="r"), np.load(self.folder / "labels.npy")

    def initial(self) -> Arrays:
        """Parameters of the initial model, in PyTorch's order and layout."""
        return load(self.folder / "initial.npz")


def save(path: Path, arrays: Sequence[NDArray[np.float32]]) -> None:
    """Write arrays in their order."""
    np.savez(path, **{f"{place:03d}": array for place, array in enumerate(arrays)})  # type: ignore[arg-type]


def load(path: Path) -> Arrays:
    """Read what :func:`save` wrote."""
    with np.load(path) as archive:
        return [archive[name] for name in sorted(archive.files)]


class Clock:
    """Wall and processor time of the timed rounds; the processor time is that of all processes below this one too.

    ``before`` is called when the rounds before the timed ones are over.
    """

    def __init__(self, timed: int, before: Callable[[], None] = lambda: None) -> None:
        self.timed, self.done, self.before = timed, 0, before
        self.wall: list[float] = []
        self.processor: list[float] = []

    def tick(self) -> None:
        """A round is over."""
        self.done += 1
        if self.done == WARM:
            self.before()
            self.processor.append(_processor_seconds())
            self.wall.append(time.perf_counter())
        elif self.done == WARM + self.timed:
            self.wall.append(time.perf_counter())
            self.processor.append(_processor_seconds())

    def figures(self) -> dict[str, Any]:
        """Seconds per timed round."""
        (first, last), (before, after) = self.wall, self.processor
        return {"wall": (last - first) / self.timed, "processor": (after - before) / self.timed}


def _processor_seconds() -> float:
    """User and system time of this process and its descendants, running or waited for; without psutil of this one alone."""
    try:
        import psutil
    except ImportError:
        return time.process_time()
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total
