"""Run one task by one contender, in its own environment: ``python -m peers.contender NAME TASK-FOLDER RESULT.json [--wait]``.

With ``--wait`` it prints ``ready`` before the timed rounds, and begins them when it has read a line.
"""

import importlib
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from peers.task import Clock, Task, save


def main() -> None:
    name, folder, result = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    task = Task.read(folder)
    clock = Clock(task.timed, _wait) if sys.argv[4:] == ["--wait"] else Clock(task.timed)
    module = importlib.import_module(f"peers.{name.partition('-')[0]}")
    # A contender is a function run(task, clock, variant) that calls clock.tick() after every round and returns the model.
    save(result.with_suffix(".npz"), module.run(task, clock, name.partition("-")[2]))
    if clock.done != task.rounds:
        raise SystemExit(f"{clock.done} rounds instead of {task.rounds}")
    versions = {"Python": platform.python_version(), **{package: version(package) for package in module.PACKAGES}}
    result.write_text(json.dumps({**clock.figures(), "versions": versions}))


def _wait() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
