"""The run directory: the primary record of a run, from which MLflow, tables and figures are derived.

``settings.json`` · ``manifest.json`` · ``history.csv`` (a row per round) · ``per_class.csv`` · ``clients.csv`` (a row per
round and participant, if the algorithm records any) · ``neurons.csv`` (a row per round and layer, if enabled) ·
``events.jsonl`` · ``state/`` · ``timeline.npz`` · ``model.pt`` and ``summary.json`` at the end.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedtide.core.errors import SettingsError
from fedtide.core.files import replacing, write_json, write_text
from fedtide.core.locks import held

HISTORY_COLUMNS = (
    "round", "session", "test_accuracy", "test_loss", "train_loss", "present", "selected", "completed", "drift",
    "bytes_up", "bytes_down", "gradient_rounds", "lr", "seconds",
)  # fmt: skip

TABLES = ("history.csv", "per_class.csv", "clients.csv", "neurons.csv")
"""Tables with rows per round."""

SESSION = "session"
"""Kind of events that belong to a round: the start of a session."""


def read_json(path: Path) -> dict[str, Any] | None:
    """Content of a JSON file, ``None`` if it does not exist or is torn."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    return values if isinstance(values, dict) else None


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Fields in which two nested mappings differ, as ``a.b: old -> new``."""
    if isinstance(old, dict) and isinstance(new, dict):
        lines = []
        for key in sorted({*old, *new}):
            lines += differences(old.get(key), new.get(key), f"{prefix}{key}.")
        return lines
    return [] if old == new else [f"{prefix.rstrip('.')}: {old!r} -> {new!r}"]


class RunDirectory:
    """One run's folder. Hold its lock (:meth:`locked`) while writing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def state(self) -> Path:
        """Folder of the saved states."""
        return self.path / "state"

    @contextmanager
    def locked(self, settings: dict[str, Any], manifest: dict[str, Any], wait: bool = False) -> Iterator[RunDirectory]:
        """Lock the run for this process (``wait`` for the lock or refuse) and record its settings.

        A new run with bad settings (a SettingsError before its first round) leaves nothing behind.

        Raises:
            SettingsError: another process holds it, the folder cannot be written, or it belongs to a run with other settings
                (the message lists every field that differs), code or data.
        """
        new = not self.path.exists()
        with ExitStack() as holding:
            try:
                self.state.mkdir(parents=True, exist_ok=True)
                refusal = f"{self.path}: another process is working on this run"
                holding.enter_context(held(self.path / ".lock", refusal, -1 if wait else 0.5))
            except OSError as error:
                raise SettingsError(f"{error.filename}: cannot write the run's records ({error.strerror})") from None
            try:
                self._claim(settings, manifest)
                yield self
            except SettingsError:
                if new and not (self.path / "history.csv").is_file():
                    shutil.rmtree(self.path)
                raise

    def _claim(self, settings: dict[str, Any], manifest: dict[str, Any]) -> None:
        """Record what the run is, unless the folder belongs to another."""
        before = read_json(self.path / "settings.json")
        if before is not None and (changed := differences(before, settings)):
            raise SettingsError(f"{self.path}: the run was started with other settings: {'; '.join(changed)}")
        key, begun = manifest.get("run_key"), (read_json(self.path / "manifest.json") or manifest).get("run_key")
        if begun != key:
            raise SettingsError(f"{self.path}: the run was started with other code or data: {begun} is now {key}")
        write_json(self.path / "settings.json", settings)
        write_json(self.path / "manifest.json", manifest)

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run."""
        return read_json(self.path / "summary.json")

    def finished(self, key: str) -> dict[str, Any] | None:
        """The summary if the run of this key has ended, else ``None``."""
        summary = self.summary()
        ended = summary is not None and summary.get("run_key") == key and summary.get("state") != "interrupted"
        return summary if ended else None

    def finish(self, summary: dict[str, Any]) -> None:
        """Write the summary."""
        write_json(self.path / "summary.json", summary)

    def event(self, kind: str, **facts: Any) -> None:
        """Append a line to ``events.jsonl``."""
        with (self.path / "events.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"event": kind, **facts}) + "\n")

    def sessions(self) -> list[dict[str, Any]]:
        """Recorded starts of sessions, as arguments of :meth:`event`."""
        path = self.path / "events.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        found = [facts for facts in map(_event, lines) if facts is not None and facts["event"] == SESSION]
        return [{"kind": facts.pop("event"), **facts} for facts in found]

    def history(self) -> list[dict[str, str]]:
        """Intact rows of ``history.csv``, as text."""
        return _rows(self.path / "history.csv")

    def append(
        self,
        row: dict[str, Any],
        per_class: dict[str, Sequence[float | None]],
        clients: dict[str, Sequence[float]] | None = None,
        neurons: dict[str, dict[str, float]] | None = None,
    ) -> None:
        """Append a round to ``history.csv`` and its details to the other tables.

        Args:
            row: of the history.
            per_class: accuracies by split, and samples held.
            clients: columns (``client``, ...) with a value per participant.
            neurons: by layer, measures of how concentrated its activity is.
        """
        columns = [*HISTORY_COLUMNS, *sorted(row.keys() - set(HISTORY_COLUMNS))]
        _append(self.path / "history.csv", columns, row)
        for split, values in per_class.items():
            named = {f"class_{index}": value for index, value in enumerate(values)}
            _append(
                self.path / "per_class.csv",
                ["round", "split", *named],
                {"round": row["round"], "split": split, **named},
            )
        if clients:
            each = [dict(zip(clients, values, strict=True)) for values in zip(*clients.values(), strict=True)]
            _append(self.path / "clients.csv", ["round", *clients], *({"round": row["round"], **one} for one in each))
        if neurons:
            layers = [{"round": row["round"], "layer": layer, **values} for layer, values in neurons.items()]
            _append(self.path / "neurons.csv", list(layers[0]), *layers)

    def rewind(self, rounds: int) -> None:
        """Drop the records of later rounds than ``rounds``, and torn lines, so that records and saved state agree."""
        self._rewind_events(rounds)
        for name in TABLES:
            path = self.path / name
            if not path.exists():
                continue
            rows = _rows(path)
            kept = [row for row in rows if int(row["round"]) <= rounds]
            if not kept:
                path.unlink()
                continue
            with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as stream:
                writer = csv.DictWriter(stream, list(kept[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(kept)

    def _rewind_events(self, rounds: int) -> None:
        path = self.path / "events.jsonl"
        if not path.exists():
            return
        lines = [(line, _event(line)) for line in path.read_text(encoding="utf-8").splitlines(keepends=True)]
        kept = [
            line
            for line, facts in lines
            if facts is not None and not (facts["event"] == SESSION and facts["round"] > rounds)
        ]
        write_text(path, "".join(kept))


def _event(line: str) -> dict[str, Any] | None:
    """The event of a line, ``None`` if it is torn."""
    try:
        facts = json.loads(line)
    except json.JSONDecodeError:
        return None
    return facts if isinstance(facts, dict) and "event" in facts and line.endswith("\n") else None


def _rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file without a torn last line (no newline, or missing fields)."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    rows = csv.DictReader(lines)
    return [row for row in rows if None not in row and None not in row.values() and (row.get("round") or "").isdigit()]


def _append(path: Path, columns: list[str], *rows: dict[str, Any]) -> None:
    """Append rows in one write, after a header in a new file. An existing file keeps its columns."""
    new = not path.exists() or path.stat().st_size == 0
    if not new:
        with path.open(encoding="utf-8") as stream:
            columns = stream.readline().strip().split(",")
    lines = [["" if row.get(column) is None else str(row[column]) for column in columns] for row in rows]
    text = "".join(",".join(cells) + "\n" for cells in ([columns] if new else []) + lines)
    with path.open("a", newline="", encoding="utf-8") as stream:
        stream.write(text)
