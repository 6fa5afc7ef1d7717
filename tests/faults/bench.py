"""Where a command is tried: its working directory before and after one undisturbed execution, and the operations of that."""

import csv
import json
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attempt import Process
from injection import FSYNC, Injection, Moment
from sessions import kill_all, outlive
from subjects import BY_NAME, Subject
from words import false_words, mlflow_lies, one_line

from records import complete_runs, differences

PATIENCE = 180.0
"""Seconds until a command, or what it leaves running, is stuck; many times what it needs."""


@dataclass
class Verdict:
    """What came of a case; ``changed``, ``stuck`` and ``false`` must be empty.

    Attributes:
        kills: processes that died of the fault, or commands that it hit. resumed: whether the same command then finished.
        refused: whether it declined with one line, where that is allowed.
    """

    kills: int = 0
    resumed: bool = False
    refused: bool = False
    changed: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    plan: list[Any] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.changed or self.stuck or self.false)


class Bench:
    """One command with its reference.

    Args:
        subject: the command.
        root: folder for this command's working directories.
        data: folder of prepared data, shared by all commands.

    Attributes:
        operations: role, number, event and path of each operation of one undisturbed execution. seconds: that it took.
    """

    def __init__(self, subject: Subject, root: Path, data: Path) -> None:
        self.subject, self.root = subject, root
        self._template, self.reference = root / "template", root / "reference"
        shutil.rmtree(root, ignore_errors=True)
        subject.prepare(self._template, data)
        if subject.mlflow:
            self._make_store()
        self._execute(self.reference, None)
        again, trace = root / "again", root / "trace"
        trace.mkdir()
        self.seconds = self._execute(again, Injection(again, trace=trace))
        lines = (trace / "operations.jsonl").read_text().splitlines()
        self.operations: list[tuple[str, int, str, str]] = [tuple(json.loads(line)) for line in lines]
        verdict = Verdict()
        self.compare(again, verdict)
        verdict.false += mlflow_lies(again)
        if not verdict.clean:
            raise AssertionError(f"{subject.name}: two undisturbed executions differ: {verdict}")

    def remove(self, folder: Path) -> None:
        """Remove the working directory of a case, and what lies beside it."""
        shutil.rmtree(folder)
        for path in folder.parent.glob(f"{folder.name}-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def folder(self, name: str) -> Path:
        """A new working directory for a case."""
        target = self.root / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self._template, target, symlinks=True)
        return target

    def start(self, folder: Path, output: str, injection: Injection | None = None, **options: Any) -> Process:
        """Start the command, or another one (``arguments``), with ``further`` arguments; ``options`` of :class:`Process`.

        Its output is kept beside the folder.
        """
        arguments = (*options.pop("arguments", self.subject.arguments), *options.pop("further", ()))
        return Process(folder, arguments, self.root / f"{folder.name}-{output}.output", injection, **options)

    def targets(self) -> list[Moment]:
        """Every moment of the undisturbed execution at which something can be cut."""
        return [
            Moment(operation=number, place=place, process=role)
            for role, number, event, _ in self.operations
            for place in ("before", *(("after", "torn") if event == "open" else ("after",) if event != FSYNC else ()))
        ]

    def listen(self, process: Process, folder: Path, verdict: Verdict) -> int | None:
        """Wait for a command and for all that it started; its status, None if it is stuck. Its words are checked."""
        status = listen(process, verdict)
        verdict.false += false_words(process.lines, complete_runs(folder))
        return status

    def finish(self, folder: Path, verdict: Verdict, may_refuse: bool = False) -> None:
        """Call the command again, undisturbed, and then ``fedtide mlflow sync``, which MLflow may need; and compare."""
        process = self.start(folder, "finish")
        status = self.listen(process, folder, verdict)
        if status == 2 and may_refuse and one_line(process.lines):
            verdict.refused = True
            return
        if status != 0:
            verdict.false.append(f"exit status {status} of the same command: {process.lines[-1:]}")
            return
        verdict.resumed = True
        if self.subject.mlflow:
            process = self.start(folder, "sync", arguments=("mlflow", "sync"))
            if self.listen(process, folder, verdict) != 0:
                verdict.false.append(f"fedtide mlflow sync: {process.lines[-1:]}")
        self.compare(folder, verdict)
        verdict.false += mlflow_lies(folder)
        self.check(folder, verdict)

    def compare(self, folder: Path, verdict: Verdict) -> None:
        """Compare a finished working directory with the reference."""
        changed = differences(folder, self.reference) if self.subject.repeats else unsound_search(folder)
        verdict.changed += [line for line in changed if line not in verdict.changed]

    def check(self, folder: Path, verdict: Verdict) -> None:
        """Kills alone damage nothing: ``fedtide check`` must find every run intact so far."""
        if (folder / "runs").is_dir():
            process = self.start(folder, "check", arguments=("check",))
            if self.listen(process, folder, verdict) == 1:
                verdict.false.append(f"fedtide check: {process.lines[-2:]}")

    def _make_store(self) -> None:
        """An empty database of MLflow, whose many tables take seconds to make."""
        maker = self._template / "make_store.py"
        maker.write_text(
            "from pathlib import Path\nfrom fedtide.runs.mlflow import store\n"
            "Path('mlruns').mkdir()\nstore.create(Path('mlruns/mlflow.db').absolute())\n"
        )
        process = Process(self._template, ["make_store.py"], self.root / "store.output")
        if process.wait() != 0:
            raise AssertionError("\n".join(process.lines))
        maker.unlink()

    def _execute(self, folder: Path, injection: Injection | None) -> float:
        self.folder(folder.name)
        began = time.monotonic()
        process = self.start(folder, "finish", injection)
        if process.wait() != 0:
            raise AssertionError(f"{self.subject.name} fails undisturbed:\n" + "\n".join(process.lines[-20:]))
        return time.monotonic() - began


class Benches:
    """Prepares the bench of each command when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root, self._made, self._lock = root, dict[str, Bench](), threading.Lock()

    def of(self, name: str) -> Bench:
        """The bench of a command."""
        with self._lock:
            if name not in self._made:
                self._made[name] = Bench(BY_NAME[name], self._root / name, self._root / "data")
            return self._made[name]


def listen(process: Process, verdict: Verdict) -> int | None:
    """Wait for a command and for all that it started, and end what is stuck; its status, None if it was stuck."""
    status = process.wait(PATIENCE)
    if status is None:
        verdict.stuck.append(f"no end after {PATIENCE:.0f} s: {process.lines[-1:]}")
    elif left := outlive(process.pid, PATIENCE):
        verdict.stuck.append(f"{len(left)} processes outlive the command")
    kill_all(process.pid)
    return status


def unsound_search(folder: Path) -> list[str]:
    """What is wrong with a finished search whose trials depend on timing: their number, runs, and values."""
    with (folder / "tuning" / "trials.csv").open(newline="") as stream:
        trials = list(csv.DictReader(stream))
    names = [trial["run"] for trial in trials]
    found = [] if len(set(names)) == len(names) == 3 else [f"{len(trials)} trials in runs {sorted(set(names))}, not 3"]
    for trial in trials:
        run = folder / "runs" / trial["run"]
        if trial["outcome"] == "complete":
            found += [] if _measured(run) == float(trial["value"]) else [f"changed: the value of {run.name}"]
    return found + [f"left over: {path.name}" for path in folder.rglob("*.part")]


def _measured(run: Path) -> float:
    with (run / "history.csv").open(newline="") as stream:
        rows: Sequence[dict[str, str]] = list(csv.DictReader(stream))
    later = [float(row["validation_accuracy"]) for row in rows if int(row["session"]) > 1]
    return sum(later) / len(later)
