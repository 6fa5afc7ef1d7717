"""Settings for a table: how it is written, its label, client and time, and the periods of its time."""

import json
import logging
import re
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from fedtide.authoring.project.columns import (
    Found,
    Time,
    find_client,
    find_identifiers,
    find_label,
    find_missing,
    find_symbols,
    find_time,
)
from fedtide.authoring.project.templates import replaced, template
from fedtide.core import plugins
from fedtide.core.errors import SettingsError
from fedtide.settings.params import Params
from fedtide.settings.reading.yaml_files import read_value
from fedtide.world.adapters.columns import MISSING_NUMBERS, is_numeric
from fedtide.world.building.build import build_timeline
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.data.table import (
    BINARY,
    UNREADABLE,
    FileSettings,
    Rows,
    lacking_rows,
    layout,
    read_bytes,
    read_table,
)
from fedtide.world.storage.prepared import load

_DAYS = {"month": 30.4, "year": 365.25, "week": 7, "day": 1}
_PERIODS = (3, 36)  # fewest and most that make a scenario
_SLICES = 12
_MANY = 100  # categories of a column that have a feature each, by default


def settings_for(file: Path) -> tuple[str, list[str]]:
    """Text of a settings file for a table, and what was decided, a sentence each; its data and its clients can be made.

    Raises:
        SettingsError: it is no readable table, or has no column that can be a label.
    """
    written, sentences = _written(file)
    found = _read(file, written)
    missing = find_missing(map(found.column, found.frame.columns))
    signs = {sign for counts in missing.values() for sign in counts} - MISSING_NUMBERS
    rows = _read(file, written | {"missing": sorted(signs)})
    held = [name for name in rows.frame.columns if (rows.frame[name] == name).any()]
    if len(held) > 1 and 2 * len(held) >= len(rows.frame.columns):
        shown = f"its first line has values of the rows, such as {held[0]!r}"
        raise SettingsError(f"{file}: no header: {shown}; write the names of the columns above them")
    unnamed = rows.unnamed()
    frame = _read(file, written | {"missing": sorted(signs)}, rows.frame.columns).frame.drop(columns=list(unnamed))
    place = rows.place
    sentences += [f"{note}." for note in unnamed.values()]
    time, unread = find_time(frame, place)
    taken = set(time.columns) if time else set()
    client, why = find_client(frame, rows.frame, taken)
    taken |= {client.name} if client else set()
    try:
        label, regression = find_label(frame, rows.frame, taken)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from None
    sentences.append(_sentence("label", label) + (" The task is regression." if regression else ""))
    sentences.append(_sentence("client", client) if client else f"client: {why}.")
    sentences.append(_sentence("time", time) if time else "time: no column with dates found.")
    sentences += [f"time: column {name!r} is named as a time and holds none: {why}." for name, why in unread.items()]
    gaps, described = lacking_rows(frame, [label.name, *sorted(taken)], place)
    sentences += [f"rows: {described}."] if gaps.any() else []
    taken.add(label.name)
    features = [name for name in frame.columns if name not in taken]
    for name in features:
        if name not in missing and (symbols := find_symbols(found.column(name))):
            missing[name] = symbols
    named = {value for found_ in (label, client) if found_ for value in map(str, rows.frame[found_.name].unique())}
    signs = {sign for counts in missing.values() for sign in counts} - named - MISSING_NUMBERS
    written |= {"missing": sorted(signs)} if signs else {}
    sentences += _missing(found.frame[features], missing, signs | MISSING_NUMBERS)
    path = file.resolve() if ".." in file.parts else file  # a file of the project moves with it
    data: dict[str, Any] = {"name": "table", "file": str(path), **written, "label": label.name}
    data |= {"task": "regression"} if regression else {}
    data |= {"client": client.name} if client else {}
    if time:
        data |= {"time": time.name if len(time.columns) == 1 else list(time.columns), **time.settings}
    data |= {"unlabeled": "drop"} if gaps.any() else {}
    names = ([] if regression else [label.name]) + ([client.name] if client else [])
    sentences += [f"{sentence}." for sentence in rows.doubtful(names)]
    data |= _features(_read(file, written), frame, features, unread, sentences)
    problem: SettingsError | None = None
    for period in _periods(time):
        scenario = _scenario(period, client, time)
        split = {} if period in ("month", "all") else {"split": {"period": "all" if period == "equal" else period}}
        text = _text({**data, **split}, scenario, regression, client)
        try:
            _try(text)
        except SettingsError as error:
            problem = error
            continue
        return text, [*sentences, scenario[1]]
    raise problem or SettingsError(f"{file}: no settings found")


def _sentence(role: str, found: Found | Time) -> str:
    return f"{role}: using column {found.name!r} ({found.why})."


def _read(file: Path, written: dict[str, Any], typed: Collection[str] = ()) -> Rows:
    options = FileSettings(name="table", **written)
    frame, place, _ = read_table(file, options, typed)
    return Rows(file, frame, place, options.decimal)


def _written(file: Path) -> tuple[dict[str, Any], list[str]]:
    """Settings for how a CSV file is written, where that is not the default, and a sentence about each."""
    if file.suffix.lower() in BINARY or not file.is_file():
        return {}, []
    found, content = dict[str, Any](), b""
    try:
        content = read_bytes(file)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        found["encoding"] = FileSettings.likely_encoding(content)
        text = content.decode(found["encoding"], errors="replace")
    except UNREADABLE:
        return {}, []  # reading it says why
    layouts = {sign: layout(text.encode(), sign) for sign in (",", ";", "\t", "|")}
    best = max(layouts.values(), key=lambda each: len(each.names))
    if (sign := best.delimiter) != "," and len(best.names) > 1:
        found["delimiter"] = sign
        if re.search(rf"(^|{re.escape(sign)})-?[\d.]*\d,\d+({re.escape(sign)}|\r?$)", text, re.MULTILINE):
            found["decimal"] = ","
    return found, [
        *(f"{key}: detected {value!r} in the file." for key, value in found.items()),
        *map("{}.".format, best.notes),
    ]


def _missing(frame: pd.DataFrame, counts: dict[str, dict[str, int]], signs: set[str]) -> list[str]:
    """A sentence about empty cells and about the signs of missing values, with the rows in which a column has them."""
    shown = list[str]()
    for name in frame.columns:
        found = {repr(sign): count for sign, count in counts.get(name, {}).items() if sign in signs}
        found = {"empty": int(frame[name].isna().sum())} | found
        if any(found.values()):
            shown.append(f"{name} ({', '.join(f'{sign}: {count:,} rows' for sign, count in found.items() if count)})")
    return [f"missing values: {', '.join(shown)}."] if shown else []


def _features(
    rows: Rows, frame: pd.DataFrame, features: list[str], unread: Collection[str], sentences: list[str]
) -> dict[str, Any]:
    """Settings of the features: without columns that name rows or hold many ``unread`` times; many categories are hashed."""
    chosen = dict[str, Any]()
    identifiers = find_identifiers(frame[features], set())
    dates = [name for name in features if name in unread and name not in identifiers and frame[name].nunique() > _MANY]
    features = [name for name in features if name not in {*identifiers, *dates}]
    numeric = [name for name in features if is_numeric(rows.column(name))]
    text = [name for name in features if name not in numeric]
    if identifiers or dates:
        chosen |= {"numeric": numeric, "categorical": text}
    if identifiers:
        sentences.append(f"excluded {', '.join(identifiers)}: unique value in every row (looks like an ID).")
    if dates:
        sentences.append(f"excluded {', '.join(dates)}: more than {_MANY} values that look like unreadable dates.")
    if many := [name for name in text if rows.frame[name].nunique() > _MANY]:
        chosen["buckets"] = 64
        sentences.append(f"hashed: {', '.join(many)}, more than {_MANY} values.")
    sentences += [f"{sentence}." for sentence in rows.doubtful(text)]
    return chosen


def _periods(time: Time | None) -> list[str | int]:
    """Lengths of a period to try, the best first."""
    if time is None:
        return ["all"]
    if time.unit != "s":
        return [max(1, -(-int(time.values.max() - time.values.min() + 1) // _SLICES)), "equal"]
    days = (int(time.values.max()) - int(time.values.min())) / 86400
    fitting: list[str | int] = [
        name for name, length in _DAYS.items() if _PERIODS[0] <= days / length + 1 <= _PERIODS[1]
    ]
    return [*fitting, "equal"]


def _scenario(period: str | int, client: Found | None, time: Time | None) -> tuple[list[str], str]:
    """Lines of the group ``scenario``, and a sentence."""
    if client is None:
        return [
            "scenario: {name: static, num_clients: 20, rounds: 100}"
        ], "scenario: rows are assigned to 20 clients at random."
    if time is None:
        lines = ["scenario: {name: static, num_clients: null, rounds: 100}    # all clients, always present"]
        return lines, "scenario: every client is always present."
    lines = [
        "scenario:                       # each period is a session with the clients that have rows in it",
        "  name: calendar",
    ]
    lines += [f"  period: {period}"] + ([f"  equal_periods: {_SLICES}"] if period == "equal" else [])
    shown = {"equal": f"{_SLICES} periods of equal size"}.get(str(period), f"every {period}")
    if isinstance(period, int):
        shown = f"every {period:,} of {time.name!r}"
    return [*lines, "  rounds_per_period: 10"], f"scenario: {shown} is a session with the clients that have rows in it."


def _text(data: dict[str, Any], scenario: tuple[list[str], str], regression: bool, client: Found | None) -> str:
    text = replaced(
        template("own-table"), "data", ["data:", *(f"  {key}: {_yaml(value)}" for key, value in data.items())]
    )
    text = replaced(text, "scenario", scenario[0])
    if client is None:
        text = replaced(text, "partition", ["partition: {name: iid}"])
    return replaced(text, "objective", ["objective: {name: mean_squared_error}"]) if regression else text


def _yaml(value: Any) -> str:
    """A value on one line of YAML: a plain word where that is read as the same."""
    plain = isinstance(value, str) and re.fullmatch(r"[\w./-]+", value)
    return str(value) if plain and read_value(str(value)) == value else json.dumps(value, ensure_ascii=False)


def _try(text: str) -> None:
    """Read the data and make the timeline, without leaving anything."""
    settings = Params(read_value(text)).run()
    logging.disable(logging.WARNING)  # these are among the sentences
    try:
        with tempfile.TemporaryDirectory() as folder:
            data = load(plugins.create(DatasetPlugin, settings.data), Path(folder))
        build_timeline(settings, data)
    finally:
        logging.disable(logging.NOTSET)
