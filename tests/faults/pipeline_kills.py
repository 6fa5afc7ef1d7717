"""Kills of ``dvc repro`` and of its stages, in a copy of the project with small settings and interpreters of their own."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import yaml
from bench import Verdict, listen
from cold import Cold
from injection import Injection, Moment
from kills import strike
from words import false_words

from fedtide.settings.reading.overrides import deep_merge
from records import complete_runs, differences

SUBJECT = "dvc"
_PROJECT = Path(__file__).parents[2]
_CARRIED = ("dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore", "pipeline", "src", "params.yaml")
_SMALL = """
algorithms: {fedavg: {}, fedprox: {mu: 0.1}}
initializers: {previous: {}, average: {}}
initializer: {name: previous}
compare: {algorithms: [fedavg], initializers: [previous, average], seeds: [0], workers: 2}
scenario: {num_devices: 3, num_sessions: 2, rounds_per_session: 3}
tune: {trials: 2}
tracking: {mlflow: false}
"""
_GOALS = ("train@fedavg", "tune")
_ROLES = {"train@fedavg": ("dvc", "train", "worker-0", "worker-1"), "tune": ("dvc", "tune")}
_BEFORE = ("download", "timeline", "inputs")


class Pipeline:
    """The project where all stages but the goals have been executed, and each goal's reference; a bench of its own kind."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.rmtree(root, ignore_errors=True)
        template = root / "template"
        for name in _CARRIED:
            source, target = _PROJECT / name, template / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            else:
                shutil.copy(source, target)
        params = template / "params.yaml"
        shrunk = deep_merge(yaml.safe_load(params.read_text()), yaml.safe_load(_SMALL))
        shrunk |= {key: yaml.safe_load(_SMALL)[key] for key in ("algorithms", "initializers")}
        params.write_text(yaml.safe_dump(shrunk))
        subprocess.run(["git", "init", "-q"], cwd=template, check=True)
        self._must(self.start(template, "template", *_BEFORE))
        self.references: dict[str, Path] = {}
        self.operations: dict[str, list[Moment]] = {}
        self.seconds: dict[str, float] = {}
        for goal in _GOALS:
            self.references[goal] = self.folder(f"reference-{goal}")
            trace = root / f"trace-{goal}"
            trace.mkdir()
            began = time.monotonic()
            self._must(self.start(self.references[goal], goal, goal, trace=trace))
            self.seconds[goal] = time.monotonic() - began
            lines = map(json.loads, (trace / "operations.jsonl").read_text().splitlines())
            self.operations[goal] = [
                Moment(operation=number, process=role, place=place)
                for role, number, event, _ in lines
                for place in (("before", "after", "torn") if event == "open" else ("before",))
            ]

    def folder(self, name: str) -> Path:
        """A new copy of the project."""
        shutil.rmtree(self.root / name, ignore_errors=True)
        return Path(shutil.copytree(self.root / "template", self.root / name, symlinks=True))

    def start(
        self, folder: Path, output: str, *goals: str, moments: tuple[Moment, ...] = (), trace: Path | None = None
    ) -> Cold:
        """``dvc repro`` of some stages."""
        environment = Injection(folder, moments, trace).environment()
        environment["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), environment["PYTHONPATH"]])
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for place in ("SITE_CACHE", "GLOBAL_CONFIG", "SYSTEM_CONFIG"):
            environment[f"DVC_{place}_DIR"] = str(folder.parent / f"{folder.name}-dvc")
        command = [sys.executable, "-m", "dvc", "repro", *goals]
        return Cold(folder, command, self.root / f"{folder.name}-{output}.output", environment)

    def _must(self, process: Cold) -> None:
        if process.wait() != 0:
            raise AssertionError("\n".join(process.lines))


def cases(kills: int) -> Iterator[tuple[str, int]]:
    """Five of a hundred kills: each takes two starts of DVC and of a stage."""
    yield from ((SUBJECT, number) for number in range(kills // 20))


def execute(bench: Pipeline, number: int, seed: int, folder: Path) -> Verdict:
    """A kill in the training or in the tuning stage, or of DVC around it; the same command then finishes."""
    goal = _GOALS[number % 2]
    draw, verdict = random.Random(f"{seed} dvc {number}"), Verdict()
    trace = bench.root / f"{folder.name}-trace"
    shutil.rmtree(trace, ignore_errors=True)
    trace.mkdir()
    if number % 8 in (6, 7):
        seconds, everyone = draw.uniform(0, 1.05) * bench.seconds[goal], draw.random() < 0.5
        process = bench.start(folder, "killed", goal)
        verdict.kills += strike(process, seconds, everyone)
        verdict.plan = [goal, round(seconds, 2), everyone]
    else:
        role = draw.choice(_ROLES[goal])
        moment = draw.choice([moment for moment in bench.operations[goal] if moment.process == role])
        moment = replace(moment, everyone=draw.random() < 0.5, size=draw.choice((0, 1, 7, 64)))
        process = bench.start(folder, "killed", goal, moments=(moment,), trace=trace)
        verdict.plan = [goal, role, moment.operation, moment.place, moment.everyone]
    status = _listen(process, folder, verdict)
    verdict.kills += number % 8 not in (6, 7) and (trace / "struck").exists()
    verdict.plan.append(status)
    again = bench.start(folder, "finish", goal)
    status = _listen(again, folder, verdict)
    if status != 0 and (folder / "pipeline" / "unlock.py").exists():  # as `make repro` does
        subprocess.run([sys.executable, "pipeline/unlock.py"], cwd=folder, check=False, capture_output=True)
        verdict.plan.append("unlocked")
        status = _listen(bench.start(folder, "finish", goal), folder, verdict)
    if status != 0:
        verdict.false.append(f"exit status {status} of the same dvc repro: {again.lines[-2:]}")
        return verdict
    verdict.resumed = True
    verdict.changed += differences(folder, bench.references[goal])
    return verdict


def _listen(process: Cold, folder: Path, verdict: Verdict) -> int | None:
    status = listen(process, verdict)
    verdict.false += false_words(process.lines, complete_runs(folder))
    return status
