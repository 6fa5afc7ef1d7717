"""The run directory: the primary record of a run, from which MLflow, tables and figures are derived.

``settings.json`` · ``manifest.json`` · ``history.csv`` (a row per round) · ``per_class.csv`` · ``clients.csv`` (a row per
round and participant, if the algorithm records any) ·
``session_scores.csv`` (a row per session and earlier session, if sessions have test samples of their own) ·
``owner_scores.csv`` (a row per period and client: its scores on the next one, if samples have owners) ·
``client_scores/`` (a Parquet file per evaluation of the clients, if enabled) ·
``events.jsonl`` · ``environment.json`` · ``loggers.json`` · ``state/`` · ``timeline.npz`` · ``encoding.json`` (if rows of a
table are encoded) · ``privacy.csv`` (a row per client, with noise) ·
``model.pt``, ``served.pt`` (if clients are served models of their own) and ``summary.json`` at the end ·
``error.txt`` after a failure.

Records are never trusted blindly: a saved state holds marks of the records that it continues, and the summary holds marks of
all files of the run and a hash of itself. Until then the manifest holds hashes of the settings and of itself.
"""

import csv
import io
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import (
    creating,
    make_folder,
    read_text,
    remove_all_parts,
    remove_dead_parts,
    short_hash,
    sync,
    write_bytes,
    write_json,
)
from fedtide.core.storage.locks import held
from fedtide.records.files import client_scores
from fedtide.records.files.guarantees import PRIVACY
from fedtide.records.files.marks import GrowingFiles, Marks, mark_file, problems
from fedtide.records.files.states import generations, remove_states, sweep
from fedtide.records.summary import Summary
from fedtide.settings.scores import RECORDED

HISTORY_COLUMNS = (
    "round", "session", "test_accuracy", "test_loss", "train_loss", "present", "selected", "completed", "drift",
    "bytes_up", "bytes_down", "gradient_rounds", "lr", "seconds",
)  # fmt: skip

ENVIRONMENT = "environment.json"
"""Versions, and a hash of each source that the run depends on, of the process that trained last."""

LOGGERS = "loggers.json"
"""The last round that each Lightning logger has."""

TABLES = ("history.csv", "per_class.csv", "clients.csv", "session_scores.csv", "owner_scores.csv")
"""Tables with rows per round."""

ENCODING, MODEL, SERVED = "encoding.json", "model.pt", "served.pt"
"""What the final model of a run on a table consists of: how rows become inputs, the weights, and those of its clients."""

SESSION, REQUEST, LEFT_OUT = "session", "request", "left_out"
"""Kinds of events that belong to a round: the start of a session, a request to erase clients, updates that are not finite."""

_EVENTS = "events.jsonl"
_SPLITS = ("test", "validation")
_DURABLE = ("settings.json", "manifest.json", ENCODING, PRIVACY, SERVED, MODEL)  # on the disk since they were written
_TIMELINE = "timeline.npz"
_AGAIN = "delete it, and the same command writes it again (a summary: if a checkpoint exists)"


def read_json(path: Path) -> dict[str, Any] | None:
    """Content of a JSON file, ``None`` if it does not exist.

    Raises:
        SettingsError: it is damaged; files are renamed when they are complete, so a process that dies leaves none.
    """
    try:
        values = json.loads(read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except json.JSONDecodeError as error:
        raise SettingsError(f"{path} is damaged: it is not JSON ({error}); {_AGAIN}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path} is damaged: it should be a mapping, got {type(values).__name__}; {_AGAIN}")
    return values


def hashed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with a hash of themselves, for a JSON file."""
    return {**values, "hash": short_hash(values)}


def read_hashed(path: Path) -> dict[str, Any] | None:
    """The values in a JSON file that :func:`hashed` has given, as :func:`read_json`; a SettingsError if they were changed."""
    values = read_json(path)
    if values is not None and values.pop("hash", None) != short_hash(values):
        raise SettingsError(f"{path} is damaged: it was changed; {_AGAIN}")
    return values


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by their dotted names."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def finite(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a round's record by column, without ``round``; cells may be text."""
    for column, cell in row.items():
        if column != "round" and cell not in (None, "") and math.isfinite(value := float(cell)):
            yield column, value


class RunDirectory:
    """One run's folder. Hold its lock (:meth:`locked`) while writing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _growing(self) -> GrowingFiles:
        return GrowingFiles(self.path)

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def error(self) -> Path:
        """Traceback of a run that has failed; absent while it goes on."""
        return self.path / "error.txt"

    @property
    def is_new(self) -> bool:
        """Whether no round, event or checkpoint was ever written; asked under the lock."""
        files = (self.path / name for name in (*TABLES, _EVENTS, "summary.json"))
        return not any(file.exists() for file in files) and not any(self.state.iterdir())

    @contextmanager
    def locked(self, settings: dict[str, Any], manifest: Summary, wait: bool = False) -> Iterator[None]:
        """Lock the run for this process (``wait`` for the lock or refuse) and record its settings.

        A new run with bad settings (a SettingsError before its first round) leaves nothing behind.

        Raises:
            SettingsError: another process holds it, the folder cannot be written, or it belongs to a run with other settings
                (the message lists every field that differs), code or data.
        """
        new = not self.path.exists()
        with ExitStack() as holding:
            holding.enter_context(creating(self.path))
            try:
                make_folder(self.path)
                refusal = f"{self.path}: another process is working on this run"
                holding.enter_context(held(self.path / ".lock", refusal, -1 if wait else 0.5))
                make_folder(self.state)  # under the lock: an owner that was refused removes all
            except OSError as error:
                raise SettingsError(f"{error.filename}: cannot write the run's records ({error.strerror})") from None
            remove_all_parts(self.path)
            try:
                self._claim(settings, manifest)
                yield
            except SettingsError:
                if new and not (self.path / "history.csv").is_file():
                    shutil.rmtree(self.path)
                raise

    def _claim(self, settings: dict[str, Any], manifest: Summary) -> None:
        """Record what the run is, unless the folder belongs to another."""
        before, begun = read_json(self.path / "settings.json"), read_hashed(self.path / "manifest.json")
        was, now = dict(flat(before or settings)), dict(flat(settings))
        if changed := [key for key in sorted({*was, *now}) if was.get(key) != now.get(key)]:
            fields = "; ".join(f"{key}: {was.get(key)!r} -> {now.get(key)!r}" for key in changed)
            raise SettingsError(f"{self.path}: the run was started with other settings: {fields}")
        old, new = (begun or manifest).get("run_key"), manifest.get("run_key")
        if old != new:
            raise SettingsError(f"{self.path}: the run was started with other code or data: {old} is now {new}")
        if before != settings:
            write_json(self.path / "settings.json", settings, durable=True)
        if begun != (recorded := {**manifest, "settings": short_hash(settings)}):
            write_json(self.path / "manifest.json", hashed(recorded), durable=True)

    def summary(self) -> Summary | None:
        """The summary of a run that has ended; a SettingsError if it is damaged."""
        return self._outcome()[0]

    def marks(self) -> Marks:
        """Marks of all files of a run that has ended, from its summary; none of any other."""
        return self._outcome()[1]

    def _outcome(self) -> tuple[Summary | None, Marks]:
        values = read_hashed(self.path / "summary.json")
        if values is None:
            return None, {}
        marks: Marks = values.pop("files")
        return cast(Summary, values), marks

    def finished(self, key: str, keep_states: bool = True) -> Summary | None:
        """The summary if the run of this key has ended and all of its files are there, as long as they were.

        Nobody owns such a run again, so what a process left behind that was killed after the end is removed here, and of a
        complete run the checkpoints, unless ``keep_states``.
        """
        summary, marks = self._outcome()
        ended = summary is not None and summary.get("run_key") == key and summary.get("state") != "interrupted"
        if summary is None or not ended or problems(self.path, marks, read=False):
            return None
        with suppress(OSError):  # its last owner is removing the states, or it is somebody else's folder
            remove_dead_parts(self.path)
            if keep_states or summary["state"] != "complete":
                sweep(self.state)
            else:
                remove_states(self.state)
        return summary

    @property
    def has_lost_summary(self) -> bool:
        """Whether only the summary of a complete run is missing, which no saved state can give again."""
        restorable = not (self.path / MODEL).is_file() or generations(self.state)
        return not (restorable or (self.path / "summary.json").exists())  # in this order: states go after it has come

    def verify(self, *names: str) -> None:
        """Refuse records of a run that has ended if they, or its summary, are missing or not as it left them."""
        marks = self.marks()
        if found := problems(self.path, {name: marks[name] for name in names if name in marks}):
            restoring = "its summary.json, and the same command restores it if its checkpoint allows"
            advice = restoring if generations(self.state) else "the run directory to start the run again"
            raise SettingsError(f"{self.path}: {', '.join(found)}; restore it, or delete {advice}")

    def finish(self, summary: Summary) -> None:
        """Write the summary, with marks of all files, once these are on the disk."""
        names = [name for name in (*_DURABLE, _TIMELINE) if (self.path / name).is_file()]
        files = {name: mark_file(self.path / name) for name in names}
        if _TIMELINE in files:
            sync(self.path / _TIMELINE)
        values = {**summary, "files": {**files, **self.mark_records()}}
        write_json(self.path / "summary.json", hashed(values), durable=True)

    def event(self, kind: str, **facts: Any) -> None:
        self._growing.append(_EVENTS, f"{json.dumps({'event': kind, **facts})}\n".encode())

    def history(self) -> list[dict[str, str]]:
        """Rows of ``history.csv``, as text; without a last one that a killed process has left incomplete."""
        self.verify("history.csv")
        path = self.path / "history.csv"
        rows = _rows(path)
        for number, row in enumerate(rows, start=1):
            if row["round"] != str(number):
                raise SettingsError(f"{path}: round {row['round']!r} instead of {number}: rows are missing")
        return rows

    def per_class(self) -> list[dict[str, str]]:
        """Rows of ``per_class.csv``, as text."""
        self.verify("per_class.csv")
        return _rows(self.path / "per_class.csv")

    def append(
        self,
        row: dict[str, Any],
        per_class: dict[str, Sequence[float | None]],
        clients: dict[str, Sequence[float]] | None = None,
        scores: dict[str, Sequence[Any]] | None = None,
        sessions: Sequence[dict[str, Any]] = (),
        owners: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Append a round to ``history.csv`` and its details to the other tables.

        Args:
            row: of the history. per_class: accuracies by split, and samples held.
            clients: columns (``client``, ...) with a value per participant. scores: columns of the table of client scores.
            sessions: rows of scores on the samples of earlier sessions. owners: rows of clients' scores on the next period.
        """
        first = _first_columns(row)
        columns = [*first, *sorted(row.keys() - set(first))]
        self._append("history.csv", columns, row)
        for split, values in per_class.items():
            named = {f"class_{index}": value for index, value in enumerate(values)}
            self._append("per_class.csv", ["round", "split", *named], {"round": row["round"], "split": split, **named})
        if clients:
            each = [dict(zip(clients, values, strict=True)) for values in zip(*clients.values(), strict=True)]
            self._append("clients.csv", ["round", *clients], *({"round": row["round"], **one} for one in each))
        for name, rows in (("session_scores.csv", sessions), ("owner_scores.csv", owners)):
            if rows:
                each = [{"round": row["round"], **one} for one in rows]
                self._append(name, list(each[0]), *each)
        if scores:
            self._growing.append(client_scores.file_name(row["round"]), client_scores.encoded(scores))

    def _append(self, name: str, columns: list[str], *rows: dict[str, Any]) -> None:
        """Append rows in one write, after a header in a new file. An existing file keeps its columns.

        Raises:
            SettingsError: a row has a column that the file lacks.
        """
        path = self.path / name
        new = not path.exists() or path.stat().st_size == 0
        if not new:
            with path.open(encoding="utf-8") as stream:
                columns = stream.readline().strip().split(",")
            if unknown := sorted({name for row in rows for name in row} - set(columns)):
                raise SettingsError(
                    f"{path}: round {rows[0].get('round')} records {', '.join(unknown)}, which earlier rows lack; "
                    "record the same columns in every round, None where there is no value"
                )
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([columns] if new else [])
        writer.writerows([row.get(column) for column in columns] for row in rows)
        self._growing.append(name, text.getvalue().encode())

    def mark_records(self) -> Marks:
        """Marks of the tables and events so far, once these are on the disk: for the state that continues them."""
        for name in (*TABLES, _EVENTS, *client_scores.file_names(self.path)):
            self._growing.watch(name)
        return self._growing.marks()

    def lost(self, marks: Marks) -> list[str]:
        """What the records lack of what a saved state continues."""
        return problems(self.path, marks, grown=True)

    def rewind(self, marks: Marks) -> None:
        """Drop what tables have beyond the marks, and what belongs to later rounds, so that records and saved state agree."""
        (self.path / "summary.json").unlink(missing_ok=True)  # the run has not ended
        for name in (*TABLES, _EVENTS, *client_scores.file_names(self.path)):
            path = self.path / name
            if path.is_file() and (name not in marks or not name.startswith(client_scores.FOLDER)):
                size = marks[name]["bytes"] if name in marks else 0
                kept = self._kept_events(size) if name == _EVENTS else b""
                write_bytes(path, path.read_bytes()[:size] + kept, durable=True)
        self.__dict__.pop("_growing", None)  # the files are shorter now

    def _kept_events(self, size: int) -> bytes:
        """What happened to the run later, without what belongs to rounds and a torn last line."""
        later = (self.path / _EVENTS).read_bytes()[size:].splitlines(keepends=True)
        facts = [_event(line.decode(errors="replace")) for line in later]
        return b"".join(
            line
            for line, each in zip(later, facts, strict=True)
            if each is not None and each["event"] not in (SESSION, REQUEST, LEFT_OUT)
        )


def _first_columns(row: dict[str, Any]) -> list[str]:
    """``HISTORY_COLUMNS``, with the scores of the row's task in place of a classification's."""
    tasks = [names for names in RECORDED.values() if any(f"{split}_{names[0]}" in row for split in _SPLITS)]
    if not tasks or tasks[0] == RECORDED["classification"]:
        return list(HISTORY_COLUMNS)
    round_, session, *others = (name for name in HISTORY_COLUMNS if not name.startswith("test_"))
    return [round_, session, *(f"test_{name}" for name in tasks[0]), *others]


def _event(line: str) -> dict[str, Any] | None:
    """The event of a line, ``None`` if it is torn."""
    try:
        facts = json.loads(line)
    except json.JSONDecodeError:
        return None
    return facts if isinstance(facts, dict) and "event" in facts and line.endswith("\n") else None


def whole_lines(path: Path) -> str:
    """The text of a table without a last line that a killed process has left incomplete; empty if the file is missing."""
    text = read_text(path) if path.is_file() else ""
    return text[: text.rfind("\n") + 1]


def _rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file, without a last one that lacks fields."""
    rows = list(csv.DictReader(whole_lines(path).splitlines()))
    if any(None in row or None in row.values() for row in rows[:-1]) or any("round" not in row for row in rows):
        raise SettingsError(f"{path} is damaged: not all of its rows have a cell for each column")
    return [row for row in rows if None not in row and None not in row.values()]
