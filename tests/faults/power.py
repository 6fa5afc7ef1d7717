"""Power loss: everything dies at a file operation, and what was not synchronized may be gone.

What an fsync makes durable: of a file its content, of a folder the names in it. Of a folder's later operations any number of
the last ones may be undone; a file may have its content of the last fsync, or any beginning of what was written since.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from injection import FSYNC

_LEFT_ALONE = (".lock", ".owner")
_FOLDERS_STAY = 0.8  # share of cases
_WORST = 0.6  # share of cases in which all is lost that may be lost


@dataclass(frozen=True)
class Journal:
    """Observes operations in a folder and keeps what a power loss may bring back; an observer of ``injection``.

    Attributes:
        store: folder for ``journal.jsonl``, hard links to removed and replaced files, and contents at the last fsync; on the
            file system of the folder.
    """

    store: Path

    def begin(self, folder: Path) -> None:
        """What is there now is durable."""
        shutil.rmtree(self.store, ignore_errors=True)
        self.store.mkdir()
        for path in _files(folder):
            self._keep_content(path)

    def __call__(self, event: str, path: str, arguments: tuple[Any, ...]) -> None:
        target = Path(os.path.abspath(os.fsdecode(arguments[1]))) if event == "os.rename" else Path(path)  # noqa: PTH100
        entry = {"event": event, "path": path, "target": str(target), "old": None, "new": not target.exists()}
        if event in ("os.rename", "os.remove") and target.is_file():
            entry["old"] = self._link(target)
        if event == FSYNC and target.is_file():
            self._keep_content(target)
        descriptor = os.open(self.store / "journal.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{json.dumps(entry)}\n".encode())
        os.close(descriptor)

    def entries(self) -> list[dict[str, Any]]:
        """Operations in order."""
        path = self.store / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def durable(self, path: Path) -> bytes:
        """The content of a file at its last fsync."""
        kept = self.store / f"content-{path.stat().st_ino}"
        return kept.read_bytes() if kept.exists() else b""

    def _keep_content(self, path: Path) -> None:
        if path.suffix not in _LEFT_ALONE:
            shutil.copyfile(path, self.store / f"content-{path.stat().st_ino}")

    def _link(self, path: Path) -> str:
        kept = self.store / f"old-{os.getpid()}-{len(list(self.store.glob(f'old-{os.getpid()}-*')))}"
        os.link(path, kept)  # also keeps its inode number from being used again
        return str(kept)


def lose(folder: Path, journal: Journal, draw: random.Random) -> list[str]:
    """Take back what was not synchronized; returns what was lost."""
    worst, entries = draw.random() < _WORST, journal.entries()
    if draw.random() < _FOLDERS_STAY:  # otherwise little is left to be wrong
        entries = [entry for entry in entries if entry["event"] != "os.mkdir"]
    undone = [(place, _undo(entries[place])) for place in reversed(_undone(entries, draw, worst))]
    lost = [f"{what} {Path(entries[place]['target']).relative_to(folder)}" for place, what in undone if what]
    for path in _files(folder):
        durable, written = journal.durable(path), path.read_bytes()
        if durable == written or (not worst and draw.random() < 0.3):
            continue
        kept = durable
        if not worst and written.startswith(durable):
            kept = written[: draw.randint(len(durable), len(written))]
        path.write_bytes(kept)
        lost.append(f"{path.relative_to(folder)}: {len(written)} bytes, {len(kept)} left")
    return lost


def _undone(entries: list[dict[str, Any]], draw: random.Random, worst: bool) -> list[int]:
    """Places of the operations to undo: of each folder, some of the last ones since its fsync."""
    open_: dict[Path, list[int]] = {}
    for place, entry in enumerate(entries):
        target = Path(entry["target"])
        if entry["event"] == FSYNC:
            open_.pop(target, None)
        else:
            open_.setdefault(target.parent, []).append(place)
    chosen = [places if worst else places[draw.randint(0, len(places)) :] for places in open_.values()]
    return sorted(place for places in chosen for place in places)


def _undo(entry: dict[str, Any]) -> str | None:
    """Undo an operation if it was carried out; the last one of a process may not have been."""
    event, path, target = entry["event"], Path(entry["path"]), Path(entry["target"])
    if target.suffix in _LEFT_ALONE:
        return None
    with suppress(FileNotFoundError):
        if event == "open" and entry["new"]:
            target.unlink()
            return "no new file"
        if event == "os.mkdir" and entry["new"]:
            shutil.rmtree(target)
            return "no new folder"
        if event == "os.rename" and not path.exists():
            target.rename(path)
            if entry["old"]:
                os.link(entry["old"], target)
            return "old name of"
        if event == "os.remove" and entry["old"] and not target.exists():
            os.link(entry["old"], target)
            return "back again:"
    return None


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.suffix not in _LEFT_ALONE:
            yield path
