"""What two executions with equal settings must agree on to the bit, however often one of them was interrupted."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedtide.core.storage.sealed import peek_header
from fedtide.federation.saving.checkpoint import StoredRows
from fedtide.runs.check import check_run
from small_runs import history

_UNCOMPARED = frozenset({"mlruns", ".dvc", ".git", ".gitignore", "params.yaml", "experiments", "pipeline", "src"})
_UNCOMPARED_KINDS = frozenset({".lock", ".owner", ".journal"})
_UNCOMPARED_KEYS = frozenset({"seconds", "files", "hash", "records"})
_ARCHIVE = b"PK\x03\x04"


def same_records(run: Path, whole: Path) -> None:
    """All records of two runs are identical, but for saved states, events and manifests, which name the run."""
    tables = ("history.csv", "per_class.csv", "clients.csv", "session_scores.csv", "privacy.csv")
    for name in (*tables, "model.pt", "summary.json"):
        assert (run / name).exists() == (whole / name).exists(), name
        if (run / name).exists():
            assert comparable(run / name) == comparable(whole / name), name
    assert check_run(run).problems == check_run(whole).problems == ()


def differences(folder: Path, reference: Path) -> list[str]:
    """Files of two working directories that differ, are missing, or are left over."""
    ours, theirs = (dict(_files(root)) for root in (folder, reference))
    lines = [f"missing: {name}" for name in sorted(theirs.keys() - ours.keys())]
    lines += [f"left over: {name}" for name in sorted(ours.keys() - theirs.keys())]
    for name in sorted(ours.keys() & theirs.keys()):
        try:
            if comparable(ours[name]) != comparable(theirs[name]):
                lines.append(f"changed: {name}")
        except (OSError, ValueError, KeyError, RuntimeError, EOFError, zipfile.BadZipFile) as error:
            lines.append(f"unreadable: {name} ({error})")
    return lines


def complete_runs(folder: Path) -> set[str]:
    """Names of the run directories whose records are all there."""
    runs = (path.parent for path in folder.glob("runs/*/summary.json"))
    return {run.name for run in runs if (run / "model.pt").is_file() and _rounds_agree(run)}


def comparable(path: Path) -> Any:
    """The content of a file without what may differ: seconds, and how often the run was interrupted."""
    if path.name == "history.csv":
        return history(path.parent)
    if path.name == "summary.json":
        return {key: value for key, value in json.loads(path.read_text()).items() if key not in _UNCOMPARED_KEYS}
    if path.name == "events.jsonl":
        events = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [event for event in events if event["event"] == "session"]
        return sorted(map(repr, kept)) + [repr(event) for event in events[-1:]]
    if path.name == "trials.csv":
        return sorted(path.read_text().splitlines())  # in the order in which they ended
    if path.suffix == ".pt":
        content = path.read_bytes()
        archive = content[content.index(_ARCHIVE) :]  # what is before it is a hash
        values = torch.load(io.BytesIO(archive), weights_only=True)
        for name, mark in _logs(path).items():
            clients = len(values["counts"])
            memory = {key: form.new_zeros(clients, form.shape[1]) for key, form in values["memory"].items()}
            StoredRows(path.parent / name, mark["bytes"], memory).write_into(memory)
            values["memory"] = memory
        return _plain(values)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: (arrays[name].dtype.str, arrays[name].shape, arrays[name].tobytes()) for name in arrays.files}
    if path.suffix == ".png":
        return path.stat().st_size > 0
    return path.read_bytes()


def _rounds_agree(run: Path) -> bool:
    try:
        return json.loads((run / "summary.json").read_text())["rounds"] == len(history(run))
    except (ValueError, OSError, KeyError):
        return False


def _files(root: Path, below: str = "") -> Iterator[tuple[str, Path]]:
    paths = sorted((root / below).iterdir())
    states = [path for path in paths if path.match("state-*.pt")]
    older = states[:-1]  # an interruption may have saved another round
    named = {name for path in states for name in _logs(path)}  # what is in them is compared with the states
    for path in paths:
        name = f"{below}{path.name}"
        if path.name in _UNCOMPARED or path.suffix in _UNCOMPARED_KINDS or path in older or path.name == "__pycache__":
            continue
        if path.name in named:
            continue
        if path.is_dir():
            yield from _files(root, f"{name}/")
        else:
            yield name, path


def _logs(state: Path) -> dict[str, Any]:
    """Marks of the logs that a state names."""
    if not state.match("state-*.pt"):
        return {}
    header = peek_header(state)
    return {} if header is None else header["rows"]


def _plain(values: Any) -> Any:
    """Tensors as bytes; totals without seconds."""
    if isinstance(values, torch.Tensor):
        return str(values.dtype), tuple(values.shape), values.detach().reshape(-1).view(torch.uint8).numpy().tobytes()
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items() if key not in _UNCOMPARED_KEYS}
    if isinstance(values, list | tuple):
        return [_plain(value) for value in values]
    return values
