"""The last part of a run: its summary, its final model, and what becomes of its checkpoints; see :func:`conclude`."""

from collections.abc import Iterator
from typing import cast

import torch

from fedtide.core import plugins
from fedtide.core.storage.files import replacing
from fedtide.federation.module import FederatedModule
from fedtide.federation.scoring.client_samples import owners
from fedtide.federation.scoring.final_models import client_models, serves_others
from fedtide.records.files.states import remove_states
from fedtide.records.measures import detections, drifts, erasure
from fedtide.records.measures.one_class import described, only_class
from fedtide.records.measures.periods import alarms_in, means_next, undefined_in
from fedtide.records.run_directory import MODEL, SERVED, RunDirectory
from fedtide.records.summary import State, Summary
from fedtide.runs.display.progress import title
from fedtide.runs.open_run import OpenRun
from fedtide.runs.train import Trained
from fedtide.settings.scores import TaskName, main_score
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.dataset import names_of_classes


def conclude(run: OpenRun, trained: Trained) -> Summary:
    """The summary of a run that is trained no further, written to its records unless a later process resumes it.

    A complete run also gets its final model and loses its checkpoints; the run directory is locked by the caller.
    """
    directory, module = run.directory, trained.module
    rounds, state = module.state.round, _state(trained)
    summary = run.manifest | scores(directory, run.settings.task, state) | {"state": state, "rounds": rounds}
    summary |= totals(module)
    if module.diverged:
        summary["message"] = module.diverged
    if trained.stopped and state == "complete" and rounds < module.timeline.rounds:
        summary["stopped"] = trained.stopped
        run.watch.log(
            f"{title(run.settings)}: stopped after round {rounds} of {module.timeline.rounds}: {trained.stopped}"
        )
    if state == "complete":
        summary |= keep_served(run, module)
        # Given a path, torch hides disk errors.
        with replacing(directory.path / MODEL, durable=True) as part, part.open("wb") as stream:
            torch.save(module.parts.named(module.state.w, module.state.b), stream)
    if state == "interrupted" and trained.signal is not None:
        summary["signal"] = trained.signal
    directory.event(state, round=rounds)
    if state != "interrupted":
        directory.finish(summary)
    if state == "complete" and not run.settings.checkpoint.keep_finished:
        remove_states(directory.state)
    return summary


def keep_served(run: OpenRun, module: FederatedModule) -> Summary:
    """Write what the clients of a complete run are served, and say in its summary what is kept of it."""
    parts, path = module.parts, run.directory.path / SERVED
    path.unlink(missing_ok=True)  # of a run that was concluded before
    if not serves_others(parts):
        return {}
    found: Summary = {} if "global" in parts.algorithm.models else {"trains_global": False}
    if owners(parts.evaluator, "train") is None:
        return found | {"served": "unowned"}
    if run.settings.keep == "global":
        return found | {"served": "discarded"}
    column = None
    if run.data.encoding is not None:
        column = plugins.create(DatasetPlugin, run.settings.data).client_column
    client_models(parts, module.state, column).write(path)
    parts.workers.close()
    return found | {"served": "kept"}


def interrupted(run: OpenRun, rounds: int, signal: int) -> Summary:
    """The summary of a run that a signal has stopped before its first round in this process."""
    run.directory.event("interrupted", round=rounds)
    return run.manifest | {"state": "interrupted", "rounds": rounds, "signal": signal}


def alarms(run: OpenRun) -> Iterator[str]:
    """A line for the alarms of a detector where no drift was planted, and for each period whose score needs attention.

    That is, whose score is not defined or fell (:func:`fedtide.records.measures.periods.alarms`).
    """
    names, history = [str(name) for name in run.timeline.notes.get("periods", ())], run.directory.history()

    def name(period: int) -> str:
        return names[period] if period < len(names) else str(period + 1)

    if detections.COLUMN in history[0] and not run.timeline.concepts:
        found = [row for row in history if float(row[detections.COLUMN] or 0) > 0]
        rounds = [(int(row["round"]), name(int(row["session"]) - 1) if names else "") for row in found]
        yield f"{title(run.settings)}: {detections.listed(rounds)}"
    for period, scores in undefined_in(history).items():
        words = ", ".join(score.of_global.present.words for score in scores)
        yield f"{title(run.settings)}: the rows of {name(period)} do not define {words}; means over the periods are without it"
    for each in alarms_in(history):
        yield (
            f"{title(run.settings)}: WARNING possible concept drift: next-period accuracy for {name(each.period)} dropped "
            f"to {each.value:.1%} (mean of the periods before: {each.before:.1%}, z = {-each.errors:.1f})"
        )


def one_class(run: OpenRun) -> Iterator[str]:
    """A line if the final model tells no class from another."""
    rows = [row for row in run.directory.per_class() if row["split"] == "test"]
    if not rows:
        return
    values = [float(value or "nan") for name, value in rows[-1].items() if name.startswith("class_")]
    accuracy = run.directory.history()[int(rows[-1]["round"]) - 1].get("test_accuracy")
    if accuracy and (found := only_class(values)) is not None:
        names = names_of_classes(run.data, run.settings.data)
        yield described(names[found] if names else str(found), float(accuracy))


def _state(trained: Trained) -> State:
    module = trained.module
    if module.diverged:
        return "diverged"
    if trained.stopped or module.state.round == module.timeline.rounds:
        return "complete"
    return "pruned" if trained.pruned else "interrupted"


def scores(directory: RunDirectory, task: TaskName, state: State) -> Summary:
    """Final, best and mean-of-the-last-ten accuracies, or values of another task's main score, from the history.

    Where periods are evaluated ahead, means over the periods of a complete run instead of the best value; under drift, means
    over the drifts; with a detector the alarms; and with requests to erase clients what these have left, of a complete run.
    """
    rows, main = directory.history(), main_score(task)
    served = main.of_served.name
    split = "test" if any(row.get(f"test_{name}") for row in rows for name in (main.name, served)) else "validation"
    values = [float(row[f"{split}_{main.name}"]) for row in rows if row.get(f"{split}_{main.name}")]
    last = values[-10:]
    found = (values[-1], max(values), sum(last) / len(last)) if values else (None, None, None)
    named = dict(zip((f"final_{main.name}", f"best_{main.name}", f"mean_last10_{main.name}"), found, strict=True))
    if own := [float(row[f"{split}_{served}"]) for row in rows if row.get(f"{split}_{served}")]:
        named[f"final_{served}"] = own[-1]
    if means := means_next(rows, split):
        del named[f"best_{main.name}"]
        named |= means if state == "complete" else dict.fromkeys(means)
    around = drifts.summary(rows, f"{split}_{main.name}") | detections.summary(rows) | erasure.summary(rows)
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
