"""What the summary of a run says of its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from fedtide.records.measures import detections, drifts
from fedtide.records.measures.periods import means_next
from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import State, Summary
from fedtide.settings.scores import TaskName, main_score

if TYPE_CHECKING:
    from fedtide.federation.module import FederatedModule


def scores(directory: RunDirectory, task: TaskName, state: State) -> Summary:
    """Final, best and mean-of-the-last-ten accuracies, or values of another task's main score, from the history.

    Where periods are evaluated ahead, means over the periods of a complete run instead of the best value; under drift, means
    over the drifts of a complete run; and with a detector what its alarms in a complete run were worth.
    """
    rows, main = directory.history(), main_score(task)
    split = "test" if any(row.get(f"test_{main.name}") for row in rows) else "validation"
    values = [float(row[f"{split}_{main.name}"]) for row in rows if row.get(f"{split}_{main.name}")]
    last = values[-10:]
    found = (values[-1], max(values), sum(last) / len(last)) if values else (None, None, None)
    named = dict(zip((f"final_{main.name}", f"best_{main.name}", f"mean_last10_{main.name}"), found, strict=True))
    if means := means_next(rows, split):
        del named[f"best_{main.name}"]
        named |= means if state == "complete" else dict.fromkeys(means)
    around = drifts.summary(rows, f"{split}_{main.name}") | detections.summary(rows)
    return cast(Summary, named | (around if state == "complete" else dict.fromkeys(around)))


def totals(module: FederatedModule) -> Summary:
    """Bytes, gradient rounds, seconds and normalized cost; latency and energy of a wireless network."""
    counted = module.state.totals
    found: Summary = {
        "bytes_up": int(counted["bytes_up"]),
        "bytes_down": int(counted["bytes_down"]),
        "gradient_rounds": int(counted["gradient_rounds"]),
        "seconds": round(counted["seconds"], 3),
        "kappa": counted["kappa"] / max(1, module.state.round),
    }
    if module.parts.wireless:
        found |= {"latency": float(f"{counted['latency']:.9g}"), "energy": float(f"{counted['energy']:.9g}")}
    return found
