"""Contents of run directories as frames, for the report."""

import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.core.storage.files import read_text
from fedtide.records.files.guarantees import COLUMNS, PRIVACY
from fedtide.records.measures import detections, drifts, forgetting
from fedtide.records.measures.forgetting import NOTHING, Forgetting
from fedtide.records.method_labels import METHOD as METHOD
from fedtide.records.method_labels import Settings, differing, distinct_labels, refuse_duplicates
from fedtide.records.run_directory import ENCODING, RunDirectory, flat, read_json, whole_lines
from fedtide.settings.scores import ACCURACY, RECORDED, Score, main_score
from fedtide.world.presence.calendar import RECURRING
from fedtide.world.scenarios.base import Scenario

Method = tuple[str, str]
"""Label and initializer; runs of one method differ in their seeds."""

_RUN = ["key", *METHOD, "seed", "state"]
_HISTORY = ["round", "session", "bytes_up", "bytes_down", "present"]
_OPTIONAL = [
    *("test_accuracy", "latency", "energy", "gradient_rounds", "gradients", "kappa", "alpha", "momentum_norm"),
    *("exchanges", "seconds_simulated", "refused", "cancelled", drifts.COLUMN, detections.COLUMN, detections.CLIENTS),
    *("attack_success", "epsilon"),
]
_SCORES = r"erased?(_|$)|test_|client_(accuracy|r2|mae)_|finetuned_|finetuning_|personalization_|fraction_|served_"
_CLIENTS = ["gate", "local_loss", "global_loss", "staleness"]
_KEPT = ["kept", "clip_factor", "attacker"]
_BOUNDARY = ["session", "returning", "start_accuracy", "mu", "losses"]
_TEXT = ["split", "layer"]
_TABLES = ("history.csv", "per_class.csv", "clients.csv", "session_scores.csv")
_READ = ("settings.json", *_TABLES, "events.jsonl", PRIVACY)
_ROWS = 30  # most methods that are listed


@dataclass(frozen=True)
class Records:
    """Contents of several run directories.

    Attributes:
        runs: one row per run that has settings, in the given order: ``key`` (name of its directory), ``label``,
            ``initializer``, ``seed``, ``state`` (complete, diverged or unfinished) and ``rounds`` done.
        history: the rounds of all runs: the run's columns (without ``rounds``), ``round``, ``session`` (both from 1),
            ``test_accuracy`` (share, NaN where not evaluated), ``bytes`` (both directions, cumulative), ``present``,
            ``latency`` [s] and ``energy`` [J] of the round and ``elapsed`` [s] at its end (NaN where not simulated),
            ``exchanges`` of models, ``refused`` and ``cancelled`` results (NaN in lockstep), ``gradient_rounds`` (cumulative),
            ``gradients`` (of a participant, NaN where every step takes one), ``kappa`` (normalized communication cost of the
            round), ``alpha`` and ``momentum_norm`` (NaN where the algorithm has none), ``concepts_changed`` (clients whose
            concept has changed in the round, NaN without drift), ``alarm`` (1 where a detector has alarmed, NaN without one),
            ``alarmed_clients`` (whose detectors have alarmed, NaN where the server's losses are watched),
            ``attack_success`` (share, NaN without a backdoor), ``epsilon`` (largest that a client has spent so far, NaN
            without noise); and the other ``test_*``, ``client_*`` scores, ``finetuned_*`` and ``served_*`` of the runs that
            have them, and with requests to erase clients ``erased`` (how many so far), ``erased_*`` and ``erase_*``.
        whole: the same of all rounds, where ``history`` has the shared ones of runs that ended early.
        boundaries: one row per run and session whose start was recorded: the run's columns, ``session`` (from 1),
            ``returning`` (to clients of an earlier session after the pilot), ``start_accuracy`` (share, NaN where not
            recorded), ``mu`` (weight by stored session) and ``losses`` (training loss by model), both possibly empty.
        clients: records of participants: the run's columns, ``round``, ``client``, ``gate``, ``local_loss``,
            ``global_loss``, ``staleness``, ``kept``, ``clip_factor`` and ``attacker``, NaN where not recorded.
        per_class: per run, the test accuracies of its last evaluated model: the run's columns, then one per class.
        session_scores: one row per run, ``session`` and session ``tested`` up to it (both from 1), if sessions have held-out
            samples of their own: the run's columns, these two, ``round``, and the ``test_*`` and ``validation_*`` scores of the
            model at the end of ``session`` on the samples of ``tested``.
        forgetting: by run, measured by the session scores; NaN without them.
        forgetting_beside: the same by :attr:`beside`.
        estimated: by run that is not measured, from accuracies per class; NaN where data does not change. If the sessions of a
            complete run have no samples of their own, all runs are estimated, so that means are of one kind over all seeds.
        privacy: one row per client of each run with noise: the run's columns and those of
            :data:`fedtide.records.files.guarantees.COLUMNS`.
        settings: the settings of each run by key, flat with dotted names, without those of a partition that its scenario
            does not use.
        missing: names of directories without settings.
        score: that a report is about.
        classes, periods: names of the classes, and of the sessions if they are periods of the data's time; else empty.
    """

    runs: pd.DataFrame
    history: pd.DataFrame
    whole: pd.DataFrame
    boundaries: pd.DataFrame
    clients: pd.DataFrame
    per_class: pd.DataFrame
    session_scores: pd.DataFrame
    forgetting: dict[str, Forgetting]
    forgetting_beside: dict[str, Forgetting]
    estimated: dict[str, Forgetting]
    privacy: pd.DataFrame
    settings: dict[str, Settings]
    missing: tuple[str, ...]
    score: Score = ACCURACY
    classes: tuple[str, ...] = ()
    periods: tuple[str, ...] = ()

    def __repr__(self) -> str:
        title, table = self._brief()
        return f"{title}\n{table.to_string(index=False, max_rows=_ROWS)}"

    def _repr_html_(self) -> str:
        title, table = self._brief()
        return f"<p>{title}</p>{table.to_html(index=False, max_rows=_ROWS)}"

    def _brief(self) -> tuple[str, pd.DataFrame]:
        """How many runs are in which state; for each method the mean and standard deviation of its last main score."""
        history = self.history
        either = [score for main in map(main_score, RECORDED) for score in (main.of_served, main)]
        found = [score for score in either if f"test_{score.name}" in history]
        score = next((one for one in found if history[f"test_{one.name}"].notna().any()), main_score())
        rows = history.reindex(columns=["key", f"test_{score.name}"])
        last = self.runs.assign(last=self.runs["key"].map(rows.groupby("key").last().iloc[:, 0]))
        grouped = last.groupby(METHOD, sort=False)["last"]
        columns = {"runs": grouped.size(), f"final test {score.words}": grouped.mean(), "std": grouped.std()}
        states = self.runs["state"].value_counts(sort=False).items()
        title = f"{len(last)} run{'s' * (len(last) != 1)}: {', '.join(f'{count} {state}' for state, count in states)}"
        return title, pd.DataFrame(columns).dropna(axis=1, how="all").round(4).reset_index()

    @property
    def column(self) -> str:
        """The column of ``history`` with the score; NaN where the model was not evaluated."""
        return f"test_{self.score.name}"

    @property
    def beside(self) -> Score | None:
        """The same score of the global model, or, if it is that one's, of what clients are served; None without values."""
        other = self.score.of_global if self.score.served else self.score.of_served
        column = f"test_{other.name}"
        return other if column in self.history and self.history[column].notna().any() else None

    def models(self, score: Score | None = None) -> str:
        """Which models a score, by default the report's, is about."""
        if (score or self.score).served:
            return "the models that clients are served, each on its client's own samples, at the end of a period"
        kinds = {settings.get("evaluation.model", "global") for settings in self.settings.values()}
        return (
            "the global model" if kinds == {"global"} else f"the reported model ({', '.join(sorted(map(str, kinds)))})"
        )

    def session_name(self, number: int, words: str = "S") -> str:
        """Name of a session by its number, from 1: its period's, else the number after ``words``."""
        return self.periods[number - 1] if number <= len(self.periods) else f"{words}{number}"

    @property
    def without_global(self) -> set[str]:
        """Keys of the runs that train no global model: they only have scores of what clients are served."""
        names = [[f"test_{score.name}" for score in map(main_score, RECORDED)]]
        names.append([f"test_{main_score(task).of_served.name}" for task in RECORDED])
        trained, served = (self.history.reindex(columns=each).notna().any(axis=1) for each in names)
        return set(self.history["key"][served]) - set(self.history["key"][trained])

    @property
    def asynchronous(self) -> bool:
        """Whether a run has a clock of events, so that rounds of different runs are hard to compare."""
        return any(settings.get("mode.name") == "async" for settings in self.settings.values())

    @property
    def has_periods(self) -> bool:
        """Whether sessions of a run are periods of the data's time, so that its rounds have different test samples."""
        return any(settings.get("scenario.name") == "calendar" for settings in self.settings.values())

    @property
    def recurs(self) -> bool:
        """Whether periods of a run recur, so that sessions return to earlier populations."""
        return any(settings.get("scenario.period") in RECURRING for settings in self.settings.values())

    @property
    def methods(self) -> list[Method]:
        """(label, initializer) of every method, in order of appearance."""
        return [(str(label), str(start)) for label, start in self.runs[METHOD].drop_duplicates().to_numpy()]

    def differing(self) -> dict[str, dict[str, Any]]:
        """Settings in which runs differ, apart from seeds and speed: dotted name -> run -> value."""
        return {
            name: {key: settings[name] for key, settings in self.settings.items() if name in settings}
            for name in differing(self.settings.values())
        }


def by_method(rows: pd.DataFrame) -> dict[Method, pd.DataFrame]:
    """Rows of each method, in order of appearance."""
    return {(str(label), str(start)): group for (label, start), group in rows.groupby(METHOD, sort=False)}


def load(run_dirs: Sequence[Path], score: Score = ACCURACY, rounds: int | None = None) -> Records:
    """Read run directories, including missing, unfinished and diverged runs.

    Runs of one label and initializer whose settings differ in more than the seed are different methods: the settings in
    which they differ are appended to their labels.

    Args:
        run_dirs: in the order of the tables.
        score: on the test samples, that a report is about.
        rounds: of complete runs that are read, from the first one on; by default all.

    Raises:
        SettingsError: no directory holds a run, a file is damaged or was not written by a run, records of a run that has
            ended are missing, a run occurs twice, or has not recorded the score.
    """
    found = [path for path in run_dirs if (path / "settings.json").is_file()]
    if not found:
        example = f", e.g. {run_dirs[0]}" if run_dirs else ""
        raise SettingsError(f"no runs to report: none of {len(run_dirs)} run directories has a settings.json{example}")
    settings = {path.name: _settings(path) for path in found}
    runs = [_run(path, settings[path.name]) for path in found]
    score = _recorded(found, score)
    ends = [rounds if run["state"] == "complete" else None for run in runs]
    histories = [_history(path, score, end) for path, end in zip(found, ends, strict=True)]
    frame = pd.DataFrame([{**run, "rounds": len(history)} for run, history in zip(runs, histories, strict=True)])
    labels = distinct_labels(frame, settings)
    frame["label"] = frame["key"].map(labels)
    refuse_duplicates(frame)

    def joined(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
        """Rows of all runs; runs without rows must not change the columns' types."""
        tagged = [_tagged(table, run) for table, run in zip(tables, runs, strict=True)]
        table = pd.concat([table for table in tagged if len(table)] or tagged[:1], ignore_index=True)
        return table.assign(label=table["key"].map(labels))

    history = joined(histories)
    whole = history if rounds is None else joined(_history(path, score, None) for path in found)
    by_session = list(map(_session_scores, found, ends))
    estimate = cache(lambda n: _estimated(found[n], histories[n], settings[found[n].name]))
    done = [n for n, run in enumerate(runs) if run["state"] == "complete"]
    mixed = any(by_session[n].empty and estimate(n) is not NOTHING for n in done)
    other = score.of_global if score.served else score.of_served
    forgotten, others = (
        [NOTHING if mixed else forgetting.measured(rows, each) for rows in by_session] for each in (score, other)
    )
    return Records(
        runs=frame,
        history=history,
        whole=whole,
        boundaries=joined(map(_boundaries, found, ends)),
        clients=joined(map(_clients, found, ends)),
        per_class=joined(map(_per_class, found, ends)),
        session_scores=joined(by_session),
        forgetting={path.name: known for path, known in zip(found, forgotten, strict=True)},
        forgetting_beside={path.name: known for path, known in zip(found, others, strict=True)},
        estimated={found[n].name: estimate(n) if known is NOTHING else NOTHING for n, known in enumerate(forgotten)},
        privacy=joined(_read_csv(path / PRIVACY, COLUMNS) for path in found),
        settings={key: _in_use(values) for key, values in settings.items()},
        missing=tuple(path.name for path in run_dirs if path not in found),
        score=score,
        classes=_classes(found[0], settings[found[0].name]),
    )


def _recorded(found: Sequence[Path], score: Score) -> Score:
    """The score, or the global model's if no run has scored what clients are served: they have no samples of their own."""
    lines = [whole_lines(path / "history.csv").partition("\n")[0].split(",") for path in found]
    named = any(f"test_{score.name}" in line for line in lines)
    return score.of_global if score.served and not named else score


def _classes(path: Path, settings: Settings) -> tuple[str, ...]:
    encoding, given = read_json(path / ENCODING) or {}, settings.get("data.classes")
    named = encoding.get("outputs") if encoding.get("task") == "classification" else given
    return tuple(map(str, named)) if isinstance(named, list) else ()


def _settings(path: Path) -> Settings:
    settings = dict(flat(read_json(path / "settings.json") or {}))
    for name in ("algorithm.name", "initializer.name", "seed"):
        if name not in settings:
            raise SettingsError(f"{path / 'settings.json'}: no {name}, so this is not a run directory")
    return settings


def _in_use(settings: Settings) -> Settings:
    """Settings without those of the partition that the scenario does not use."""
    chosen = {name.removeprefix("scenario."): value for name, value in settings.items() if name.startswith("scenario.")}
    try:
        plugin = plugins.load(Scenario, chosen["name"])
        used = plugin(plugin.Settings(**chosen)).partition_settings()
    except Exception:  # a plug-in that is no longer there, or has changed; it may raise anything
        used = None
    if used is None:
        return settings
    kept = {f"partition.{name}" for name in used}
    return {name: value for name, value in settings.items() if not name.startswith("partition.") or name in kept}


def _run(path: Path, settings: Settings) -> dict[str, Any]:
    """The run's columns, once the records of a run that has ended are verified."""
    directory = RunDirectory(path)
    directory.verify(*_READ)
    summary = directory.summary() or {}
    state = summary.get("state", "unfinished")
    return {
        "key": path.name,
        "label": settings.get("label") or settings["algorithm.name"],
        "initializer": settings.get("initializer_label") or settings["initializer.name"],
        "seed": settings["seed"],
        "state": state if state in ("complete", "diverged") else "unfinished",
    }


def _history(path: Path, score: Score, end: int | None) -> pd.DataFrame:
    frame = _read_csv(path / "history.csv", _HISTORY, end)
    wanted = f"test_{score.name}"
    if len(frame) and wanted not in frame and score != ACCURACY:
        raise SettingsError(f"{path / 'history.csv'}: no column {wanted!r}; {score.remedy} and run again")
    scores = [name for name in (*frame.columns, wanted) if re.match(_SCORES, name)]
    frame = frame.reindex(columns=list(dict.fromkeys([*_HISTORY, *_OPTIONAL, *scores])))
    for number, found in enumerate(frame["round"], start=1):
        if found != number:
            raise SettingsError(f"{path / 'history.csv'}: round {found:g} instead of {number}: rows are missing")
    elapsed = frame["seconds_simulated"].fillna(frame["latency"].cumsum())
    frame = frame.assign(gradient_rounds=frame["gradient_rounds"].fillna(0), elapsed=elapsed)
    frame = frame.drop(columns="seconds_simulated")
    return frame.assign(bytes=frame["bytes_up"] + frame["bytes_down"]).drop(columns=["bytes_up", "bytes_down"])


def _boundaries(path: Path, end: int | None) -> pd.DataFrame:
    """Starts of sessions. One repeated by a resumed run is recorded twice; the later record is used."""
    file = path / "events.jsonl"
    text = read_text(file) if file.is_file() else ""
    found = {}
    for line in text[: text.rfind("\n") + 1].splitlines():  # a killed run may leave a torn last line
        try:
            event = json.loads(line)
        except ValueError as error:
            raise SettingsError(f"{file} is not JSON line by line: {error}") from None
        if event.get("event") == "session" and (end is None or event["round"] <= end):
            start, session = event.get("test_accuracy", event.get("validation_accuracy")), int(event["session"])
            mu = {int(stored): float(weight) for stored, weight in (event.get("weights") or {}).items()}
            losses = {name: loss for name, loss in (event.get("losses") or {}).items() if loss is not None}
            returning = bool(event.get("returning", False))
            found[session] = [session, returning, float("nan") if start is None else float(start), mu, losses]
    return pd.DataFrame(list(found.values()), columns=_BOUNDARY)


def _clients(path: Path, end: int | None) -> pd.DataFrame:
    named = ["round", "client"]
    return _read_csv(path / "clients.csv", named, end).reindex(columns=[*named, *_CLIENTS, *_KEPT])


def _per_class(path: Path, end: int | None) -> pd.DataFrame:
    frame = _read_csv(path / "per_class.csv", ["round", "split"], end)
    test = frame[frame["split"] == "test"]
    final: pd.DataFrame = test.loc[test["round"] == test["round"].max(), test.columns.str.match(r"class_\d+$")]
    return final


def _session_scores(path: Path, end: int | None) -> pd.DataFrame:
    file = path / "session_scores.csv"
    return forgetting.complete_rows(_read_csv(file, forgetting.TABLE, end), file)


def _estimated(path: Path, history: pd.DataFrame, settings: Settings) -> Forgetting:
    rows = _read_csv(path / "per_class.csv", ["round", "split"])
    return forgetting.estimated(rows, history, within="scenario.drift" in settings)


def _tagged(frame: pd.DataFrame, run: dict[str, Any]) -> pd.DataFrame:
    tags = pd.DataFrame({name: [run[name]] * len(frame) for name in _RUN}, index=frame.index)
    return pd.concat([tags, frame], axis=1)


def _read_csv(path: Path, required: list[str], end: int | None = None) -> pd.DataFrame:
    """A table up to round ``end``; without rows if the file is missing or empty, as of a run stopped before its first round."""
    try:
        frame = pd.read_csv(io.StringIO(whole_lines(path)))
    except pd.errors.EmptyDataError:
        return pd.DataFrame(columns=required, dtype=float)
    except ValueError as error:
        raise SettingsError(f"{path} is not a table: {' '.join(str(error).split())}") from None
    absent = [name for name in required if name not in frame]
    if absent:
        raise SettingsError(f"{path}: no column {absent[0]!r}, so it was not written by a run")
    for name in frame.columns.difference(_TEXT):
        if len(frame) and not pd.api.types.is_numeric_dtype(frame[name]):
            raise SettingsError(f"{path} is damaged: column {name!r} holds text")
    return frame if end is None else frame[frame["round"] <= end]
