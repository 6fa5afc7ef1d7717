"""Settings for a table: how it is written, its label, client and time, and the periods of its time."""

import json
import logging
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedtide.authoring.project.columns import (
    SIGNS,
    Found,
    Time,
    find_client,
    find_identifiers,
    find_label,
    find_signs,
    find_texts,
    find_time,
)
from fedtide.authoring.project.templates import replaced, template
from fedtide.core import plugins
from fedtide.core.errors import SettingsError, nearest
from fedtide.settings.params import Params
from fedtide.settings.reading.yaml_files import read_value
from fedtide.settings.scores import Score
from fedtide.world.adapters.columns import Column, floats_of, is_numeric
from fedtide.world.adapters.layouts import layout
from fedtide.world.adapters.names import name_of
from fedtide.world.adapters.reading import BINARY, UNREADABLE, FileSettings, likely_encoding, read_bytes, read_table
from fedtide.world.adapters.rows import Rows
from fedtide.world.building.build import build_timeline
from fedtide.world.data.base import DatasetPlugin
from fedtide.world.storage.prepared import load

_DAYS = {"month": 30.4, "year": 365.25, "week": 7, "day": 1}
_PERIODS = (3, 36)  # fewest and most that make a scenario
_SLICES = 12
_MANY = 100  # categories of a column that have a feature each, by default
_LITTLE = 0.4  # of its even share of the rows, below which a class is rare
_NO_CLIENT = "no column named as one, and no text with repeated values, found; name one with --client"


def settings_for(file: Path, given: Mapping[str, Sequence[str]] | None = None) -> tuple[str, list[str]]:
    """Text of a settings file for a table, and what was decided, a sentence each; its data and its clients can be made.

    Args:
        given: names of columns that are the ``label``, the ``client`` and the ``time``; others are found.

    Raises:
        SettingsError: it is no readable table, or has no column that can be a label, or not the given ones.
    """
    written = _written(file)
    sentences = [f"{key}: detected {value!r} in the file." for key, value in written.items()]
    found = _read(file, written)
    held = [name for name in found.frame.columns if (found.frame[name] == name).any()]
    if len(held) > 1 and 2 * len(held) >= len(found.frame.columns):
        shown = f"its first line has values of the rows, such as {held[0]!r}"
        raise SettingsError(f"{file}: no header: {shown}; write the names of the columns above them")
    rows, frame = _typed(found)
    (label, regression), client, time = _roles(rows, frame, given or {})
    taken = {client.name} if client else set()
    taken |= set(time.columns) if time else set()
    sentences.append(_sentence("label", label) + (" The task is regression." if regression else ""))
    sentences.append(_sentence("client", client) if client else f"client: {_NO_CLIENT}.")
    sentences.append(_sentence("time", time) if time else "time: no column with dates found.")
    gaps, described = rows.lacking([label.name, *sorted(taken)])
    sentences += [f"rows: {described}."] if gaps.any() else []
    taken.add(label.name)
    names = {label.name, client.name} if client else {label.name}
    known = find_signs(rows.frame[list(names)])  # names, also where they stand for missing values in other columns
    if signs := {sign: columns for sign, columns in find_signs(found.frame).items() if sign not in known}:
        written["missing"] = sorted(signs)
        shown = "; ".join(f"{sign!r} in {', '.join(columns)}" for sign, columns in signs.items())
        sentences.append(f"missing values: {shown}.")
    path = file.resolve() if ".." in file.parts else file  # a file of the project moves with it
    data: dict[str, Any] = {"name": "table", "file": str(path), **written, "label": label.name}
    data |= {"task": "regression"} if regression else {}
    data |= {"client": client.name} if client else {}
    if time:
        data |= {"time": time.name if len(time.columns) == 1 else list(time.columns), **time.settings}
    data |= {"unlabeled": "drop"} if gaps.any() else {}
    data |= _features(_read(file, written), frame.drop(columns=list(taken)), sentences)
    rare = None if regression else _rare(rows.frame[label.name])
    sentences += [] if rare is None else [rare]
    problem: SettingsError | None = None
    for period in _periods(time):  # a sentence says why a better one is not possible
        scenario = _scenario(period, client, time)
        split = {} if period in ("month", "all") else {"split": {"period": "all" if period == "equal" else period}}
        text = _text({**data, **split}, scenario, regression, client)
        if rare is not None:
            text = _by_auroc(text, ahead=client is not None and time is not None)
        try:
            _try(text)
        except SettingsError as error:
            problem = error
            sentences.append(f"scenario: not every {period}: {error}.")
            continue
        return text, [*sentences, scenario[1]]
    raise problem or SettingsError(f"{file}: no settings found")


def _roles(
    rows: Rows, frame: pd.DataFrame, given: Mapping[str, Sequence[str]]
) -> tuple[tuple[Found, bool], Found | None, Time | None]:
    """The label with whether it is a number to predict, the client and the time: given columns, or ones found in others."""
    for option, name in (pairs := [(f"--{role}", name) for role in given for name in given[role]]):
        if name not in frame.columns:
            raise SettingsError(nearest(f"{rows.path}: {option}: no column {name!r}", name, list(frame.columns)))
    taken = {name for _, name in pairs}
    if len(taken) < len(pairs):
        raise SettingsError(f"{' '.join(map(' '.join, pairs))}: a column is given twice; each needs its own")
    label, client, dates = ([*given.get(role, ())] for role in ("label", "client", "time"))
    time = find_time(rows.frame.drop(columns=label + client), rows.place, dates)
    taken |= set(time.columns) if time else set()
    owner = find_client(frame, rows.frame, taken, *client)
    taken |= {owner.name} if owner else set()
    try:
        return find_label(frame, rows.frame, taken, *label), owner, time
    except SettingsError as error:
        raise SettingsError(f"{rows.path}: {error}") from None


def _sentence(role: str, found: Found | Time) -> str:
    return f"{role}: using column {found.name!r} ({found.why})."


def _read(file: Path, written: dict[str, Any]) -> Rows:
    return read_table(file, FileSettings(name="table", **written))


def _typed(rows: Rows) -> tuple[Rows, pd.DataFrame]:
    """The rows without signs of missing values in columns of numbers, and with floats in these; 007 is a name."""
    texts, typed = rows.frame.copy(), rows.frame.copy()
    for name, values in rows.frame.items():
        written = values.astype(str)
        known = values.mask(written.str.lower().isin(SIGNS))
        floats, wrong = floats_of(Column(known, str(name), rows.place, rows.decimal))
        if not wrong.any() and known.notna().any() and not written.str.fullmatch(r"0\d+|[-+]?\d{19,}").any():
            texts[name], typed[name] = known, floats
    return replace(rows, frame=texts), typed


def _written(file: Path) -> dict[str, Any]:
    """Settings for how a CSV file is written, where that is not the default."""
    if file.suffix.lower() in BINARY or not file.is_file():
        return {}
    found: dict[str, Any] = {}
    content = b""
    try:
        content = read_bytes(file)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        found["encoding"] = likely_encoding(content)
        text = content.decode(found["encoding"], errors="replace")
    except UNREADABLE:
        return {}  # reading it says why
    best = max((layout(text.encode(), sign) for sign in (",", ";", "\t", "|")), key=lambda each: len(each.names))
    if (sign := best.delimiter) != "," and len(best.names) > 1:
        found["delimiter"] = sign
        if re.search(rf"(^|{re.escape(sign)})-?[\d.]*\d,\d+({re.escape(sign)}|\r?$)", text, re.MULTILINE):
            found["decimal"] = ","
    return found


def _features(rows: Rows, frame: pd.DataFrame, sentences: list[str]) -> dict[str, Any]:
    """Settings of the features, the columns of ``frame``: none that name rows; columns of many categories are hashed."""
    chosen: dict[str, Any] = {}
    identifiers = find_identifiers(frame)
    features = sorted(name for name in frame.columns if name not in identifiers)
    texts = find_texts(frame)
    if texts and not set(features) - set(texts):
        raise SettingsError(
            f"{rows.path}: no column is left for features: {texts[0]!r} is running text, of which a table makes no numbers; "
            'pass token ids to fedtide.from_tensors(..., kind="text"), or add columns of numbers or categories'
        )
    numeric = [name for name in features if is_numeric(rows.column(name))]
    text = [name for name in features if name not in numeric]
    if identifiers:
        chosen |= {"numeric": numeric, "categorical": text}
        sentences.append(f"excluded {', '.join(identifiers)}: unique value in every row (looks like an ID).")
    if many := [name for name in text if rows.frame[name].nunique() > _MANY]:
        chosen["buckets"] = 64
        sentences.append(f"hashed: {', '.join(many)}, more than {_MANY} values.")
    return chosen


def _periods(time: Time | None) -> list[str]:
    """Lengths of a period to try, the best first."""
    if time is None:
        return ["all"]
    days = (int(time.values.max()) - int(time.values.min())) / 86400
    fitting = [name for name, length in _DAYS.items() if _PERIODS[0] <= days / length + 1 <= _PERIODS[1]]
    return [*fitting, "equal"]


def _scenario(period: str, client: Found | None, time: Time | None) -> tuple[list[str], str]:
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
    shown = f"{_SLICES} periods of equal size" if period == "equal" else f"every {period}"
    return [*lines, "  rounds_per_period: 10"], f"scenario: {shown} is a session with the clients that have rows in it."


def _text(data: dict[str, Any], scenario: tuple[list[str], str], regression: bool, client: Found | None) -> str:
    text = replaced(
        template("own-table"), "data", ["data:", *(f"  {key}: {_yaml(value)}" for key, value in data.items())]
    )
    text = replaced(text, "scenario", scenario[0])
    if client is None:
        text = replaced(text, "partition", ["partition: {name: iid}"])
    return replaced(text, "objective", ["objective: {name: mean_squared_error}"]) if regression else text


def _rare(labels: pd.Series) -> str | None:
    """A sentence if accuracy would say little: a class has less than a fifth of the rows, of L classes less than 2 / 5 L."""
    shares = labels.dropna().map(name_of).value_counts(normalize=True)
    if shares.min() >= _LITTLE / len(shares):
        return None
    return (
        f"metric: AUROC is the headline, and balanced accuracy and average precision are recorded, since {shares.index[-1]!r} "
        f"has {shares.iloc[-1]:.1%} of the rows: a model that never predicts it would have a high accuracy."
    )


def _by_auroc(text: str, ahead: bool) -> str:
    """The settings with AUROC as the headline; ``ahead``: of what clients are served, on the next period."""
    metrics = ["evaluation:", "  every: 1", "  metrics: [auroc, balanced_accuracy, average_precision]"]
    (title,) = re.findall(r"^report:\n(  title: .*)$", text, re.MULTILINE)
    metric = Score("auroc").next.of_served if ahead else Score("auroc")
    return replaced(replaced(text, "evaluation", metrics), "report", ["report:", title, f"  metric: {metric.name}"])


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
