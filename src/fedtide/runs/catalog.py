"""The run directories of a folder: facts of each, and how two of them differ."""

import time
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError, meant, shortened
from fedtide.core.storage.locks import is_held
from fedtide.records.run_directory import ENVIRONMENT, RunDirectory, flat, read_hashed, read_json
from fedtide.records.summary import headline
from fedtide.runs.check import run_directories

STATES = ("complete", "diverged", "pruned", "failed", "running", "unfinished", "damaged")
_SHOWN = 3  # most settings, sources or runs that a line names


def listed(path: Path) -> dict[str, Any]:
    """Names, state, rounds, headline metric, bytes, and seconds since the last record of a run directory."""
    facts: dict[str, Any] = {}
    results: dict[str, Any] = {"state": "damaged"}
    with suppress(SettingsError):
        read_json(path / "settings.json")  # which may be damaged, too
        facts, results = read_json(path / "manifest.json") or {}, _results(path)
    best = headline(results)  # type: ignore[arg-type]
    files = []
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):  # which a run in progress has just replaced
            files += [file.stat()] if file.is_file() else []
    found = {key: facts.get(key) for key in ("label", "initializer", "seed")}
    found |= {"state": results["state"], "rounds": results.get("rounds"), "planned": facts.get("rounds")}
    found |= {"metric": best.name, "value": best.value} if best is not None else {"metric": None, "value": None}
    found["bytes"] = sum(file.st_size for file in files)
    found["age"] = time.time() - max((file.st_mtime for file in files), default=0)
    return {**found, "run": path.name}


def _results(path: Path) -> dict[str, Any]:
    directory = RunDirectory(path)
    if (summary := directory.summary()) is not None:
        return dict(summary)
    state = "running" if is_held(path) else "failed" if directory.error.is_file() else "unfinished"
    return {"state": state, "rounds": len(directory.history())}


def find(runs: Path, name: str) -> Path:
    """The run of this name in a folder, at this path, or the only one whose name begins so; else a SettingsError."""
    if (Path(name) / "settings.json").is_file() and not (Path(name).name == name and (runs / name).is_dir()):
        return Path(name)
    folders = {path.name: path for path in run_directories(runs)}
    found = [name] if name in folders else [known for known in folders if known.startswith(name)]
    if len(found) == 1:
        return folders[found[0]]
    several = f"{len(found)} runs begin with it: {first_few(found)}"
    why = several if found else f"no such run{meant(name, folders)}; see `fedtide runs list`"
    raise SettingsError(f"{runs}: {shortened(name)!r}: {why}")


def differences(first: Path, second: Path) -> list[tuple[str, str, Any, Any]]:
    """Part (settings, data, sources, ...), name and values of each fact that differs, None where a run lacks it.

    Sources and versions are compared where both runs have recorded theirs. A SettingsError if one is no run directory.
    """
    a, b = _facts(first), _facts(second)
    names = [(part, name) for part in a if part in b for name in dict.fromkeys([*a[part], *b[part]])]
    both = ((part, name, a[part].get(name), b[part].get(name)) for part, name in names)
    return [found for found in both if found[2] != found[3]]


def _facts(path: Path) -> dict[str, dict[str, Any]]:
    settings, manifest = recorded(path), read_json(path / "manifest.json")
    made_with = read_hashed(path / ENVIRONMENT)
    data = {settings["data"].get("file", settings["data"]["name"]): (manifest or {}).get("data")}
    results = {key: value for key, value in _results(path).items() if key == "state" or isinstance(value, int | float)}
    results = {key: value for key, value in results.items() if key not in ("seed", "seconds", "signal")}
    facts = {"settings": dict(flat(settings)), "data": data, "records": {ENVIRONMENT: made_with is not None}}
    return {**facts, **(made_with or {}), "results": results}


def recorded(path: Path) -> dict[str, Any]:
    """The recorded settings of a run; a SettingsError if there are none."""
    if (settings := read_json(path / "settings.json")) is None:
        raise SettingsError(f"{path}: no settings.json, so this is not a run directory")
    return settings


def why_repeated(path: Path, named: str) -> str | None:
    """In what a new run differs from the newest complete one in its folder whose name begins with ``named``, in a line.

    Of all others only names and times are read.
    """
    with suppress(SettingsError, OSError):  # of a run that is damaged, or being removed
        ended = [file for file in path.parent.glob(f"{escape(named)}-*/summary.json") if file.parent != path]
        for file in sorted(ended, key=lambda file: -file.stat().st_mtime)[:_SHOWN]:
            if (read_json(file) or {}).get("state") == "complete":
                found = differences(file.parent, path)
                changed = [f"{name} ({old!r} -> {new!r})" for part, name, old, new in found if part == "settings"]
                others = [f"{part} {name}" for part, name, *_ in found if part in ("sources", "data", "records")]
                told = "; ".join(first_few(each) for each in (changed, others) if each) or "its name"
                return f"{path.name} is a new run: {file.parent.name} is complete, but differs in {told}"
    return None


def first_few(names: list[Any]) -> str:
    """The first names of a list, shortened, and how many more there are."""
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(shortened(str(name)) for name in names[:_SHOWN]) + more
