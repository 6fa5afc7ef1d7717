"""The facts, results and warnings of a comparison in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import pandas as pd

from fedtide.records.frames import METHOD, Method, Records
from fedtide.records.method_labels import differing
from fedtide.report import formats
from fedtide.report.charts.methods import method_names
from fedtide.report.tables.method_table import Column, MethodTable
from fedtide.settings.groups.local import WORK
from fedtide.settings.reading.references import REFERENCES
from fedtide.settings.scores import capitalized

_NOT_SHOWN = ("label", "initializer_label", "seed", "world_seed")
_WORLD = ("data", "long_tail", "validation", "scenario", "partition", "drift", "model", "objective", "evaluation")
_PARTS = {"Dataset": "data"} | {name.capitalize(): name for name in ("scenario", "partition", "participation", "model")}


def facts(records: Records) -> list[tuple[str, str]]:
    """The setup of the comparison, as (term, description)."""
    runs, history = records.runs, records.history
    sessions = history.groupby("key")["session"].nunique()
    drifts = any("drift.name" in each for each in records.settings.values())
    within = f" in {_span(sessions)} sessions" if sessions.max() > 1 else ""
    return [
        ("Algorithms", _listed(runs["label"])),
        ("Initializers", _listed(runs["initializer"])),
        *((term, _part(records, group)) for term, group in _PARTS.items()),
        *([("Drift", _part(records, "drift"))] if drifts else []),
        ("Length", f"{_span(runs['rounds'])} rounds{within}"),
        ("Clients", f"{_span(history['present'])} present in a round"),
        (
            "Local training",
            f"{_work(records)} a round, batches of "
            f"{_values(records, 'local.batch_size')}, learning rate {_values(records, 'local.lr')}",
        ),
        ("Scores", _scores(records)),
        ("Seeds", ", ".join(str(seed) for seed in sorted(set(runs["seed"])))),
    ]


def _scores(records: Records) -> str:
    """Which models are scored."""
    if records.beside is None:
        lacking = "" if records.score.served else "; clients have no held-out samples of their own"
        return f"of {records.models()}{lacking}"
    served = records.score if records.score.served else records.beside
    return f"of {records.models(served)}; beside them, of {records.models(served.of_global)}"


def results(tables: Sequence[MethodTable]) -> list[str]:
    """What the paired comparisons say by each headline metric, one sentence each; none without a complete run.

    The first one is the verdict. If it finds no difference, those for the worst decile of clients and newcomers that do follow.
    Left out are spreads, which are lowest where nothing is learned.
    """
    found = [
        (column.key, *_result(table, column))
        for table in tables
        for column in table.columns
        if column.headline and not column.key.endswith("_std")
    ]
    found = [(key, differs, sentence) for key, differs, sentence in found if sentence]
    if found and not found[0][1]:
        parts = [each for each in found[1:] if each[1] and each[0].endswith(("worst_decile", "newcomers"))]
        found = [found[0], *parts, *(each for each in found[1:] if each not in parts)]
    return [sentence for _, _, sentence in found]


def _result(table: MethodTable, column: Column) -> tuple[bool, str]:
    """Whether the comparison separates any methods, and what it says; no sentence without a value."""
    leader, compared = table.leader(column), table.against_leader(column)
    if leader is None:
        return False, ""
    rows, what = dict(table.rows()), capitalized(column.headline)
    names_of, counts = method_names(list(rows)), {names: column.seeds(row) for names, row in rows.items()}

    def shown(names: Method, gap: str = " ", usual: int = counts[leader]) -> str:
        value = f"{names_of[names]}{gap}{column.value(rows[names])}{column.scale.unit}"
        return formats.over(value, counts[names], usual)

    def together(*methods: Method) -> str:
        """Their number of seeds once, if they have the same."""
        if any(counts[names] != counts[leader] for names in methods):
            return ", ".join(shown(names, usual=0) for names in methods)
        return f"{', '.join(map(shown, methods))} ({formats.seeds(counts[leader])})"

    if compared is None:
        return False, f"Mean {column.headline}: {shown(leader, ', ', 0)}."
    best, others = ("Lowest", "higher") if column.good == "low" else ("Highest", "lower")
    worse, untested = (
        f"; {words}: {', '.join(map(shown, methods))}" if methods else ""
        for words, methods in ((others, compared.worse), ("not tested", compared.untested))
    )
    if compared.equals:
        equal = together(leader, *compared.equals)
        return bool(compared.worse), f"{what}: no difference detected between {equal}{worse}{untested}."
    if compared.worse:
        return True, f"{best} mean {column.headline}: {shown(leader, ', ', 0)}{worse}{untested}."
    no = f"no difference can be tested{' with one seed' if counts[leader] == 1 else ''}"
    return False, f"{what}: {no} between {together(leader, *compared.untested)}."


def _worlds(records: Records) -> list[str]:
    """Settings of their world in which runs differ by what a user has set: not by what defines a built-in reference."""

    @cache
    def chosen(defined: frozenset[str]) -> set[str]:
        return set(differing([each for each in records.settings.values() if each.get("label") not in defined]))

    found = []
    for name in records.differing():
        group = name.partition(".")[0]
        labels = (label for label, reference in REFERENCES.items() if group in reference.settings.get("with", {}))
        if group in _WORLD and name in chosen(frozenset(labels)):
            found.append(name)
    return found


def warnings(records: Records) -> list[str]:
    """Caveats about the numbers; empty if all runs are complete and of one world."""
    count = len(records.missing)
    cure = "run `fedtide compare`, or list in compare.algorithms, .initializers and .seeds only what was run"
    lines = [f"{count} of {count + len(records.runs)} runs of `compare` are missing: {cure}."] if count else []
    failed = records.runs[records.runs["state"] != "complete"]
    for (label, start, state), group in failed.groupby([*METHOD, "state"], sort=False):
        when = ", ".join(f"seed {seed} in round {at}" for seed, at in zip(group["seed"], group["rounds"], strict=True))
        what = "diverged" if state == "diverged" else "did not finish"
        lines.append(f"{method((str(label), str(start)))} {what}: {when}. Not in means or tests; dotted in figures.")
    complete = records.runs[records.runs["state"] == "complete"]
    if complete.groupby(METHOD)["seed"].agg(frozenset).nunique() > 1:
        lines.append(
            "Methods are averaged over different seeds. Only those with the most complete runs can be marked best; compare "
            "the others by their paired differences."
        )
    if world := _worlds(records):
        lines.append(f"Runs differ in {', '.join(world)}: differences between rows are not due to the methods alone.")
    columns = [
        records.column,
        *([f"test_{records.beside.name}"] if records.beside else []),
    ]  # nobody may train one model
    tested = records.history.groupby("key", sort=False)[columns].count().sum(axis=1)
    return lines + [f"{key} has no test {records.score.words}." for key in tested[tested == 0].index]


def differences(records: Records) -> list[tuple[str, str, str]]:
    """Settings in which methods differ: dotted name, value, methods. Without those that are part of the method's name."""
    runs = records.runs
    method_of = dict(zip(runs["key"], runs[METHOD].itertuples(index=False, name=None), strict=True))
    rows = []
    for name, values in records.differing().items():
        if all(value in method_of[key] for key, value in values.items()):
            continue
        holders: dict[str, set[Method]] = {}
        for key, value in values.items():
            holders.setdefault(plain(value), set()).add(method_of[key])
        rows += [(name, value, _who(holder, records.methods)) for value, holder in holders.items()]
    return rows


def common(records: Records) -> list[tuple[str, str]]:
    """Settings that all runs share: dotted name and value."""
    first = next(iter(records.settings.values()))
    others = records.settings.values()
    shared = [name for name in first if all(name in values and values[name] == first[name] for values in others)]
    return [(name, plain(first[name])) for name in shared if name not in _NOT_SHOWN]


def method(names: Method) -> str:
    """``label · initializer``."""
    return " · ".join(names)


def plain(value: Any) -> str:
    """A setting as it can be written in ``params.yaml``."""
    return value if isinstance(value, str) else json.dumps(value)


def _who(holders: set[Method], methods: list[Method]) -> str:
    """Names of methods in order: only their algorithms, or only their initializers, if that identifies them."""
    for part in (0, 1):
        words = dict.fromkeys(names[part] for names in methods if names in holders)
        if holders == {names for names in methods if names[part] in words}:
            return ", ".join(words)
    return ", ".join(method(names) for names in methods if names in holders)


def _part(records: Records, group: str) -> str:
    """``name (key value, ...)`` of a plug-in, without null or empty settings."""
    parts: dict[str, None] = {}
    for settings in records.settings.values():
        start = f"{group}."
        mine = {name.removeprefix(start): value for name, value in settings.items() if name.startswith(start)}
        given = {name: value for name, value in mine.items() if name != "name" and value not in (None, [], "")}
        details = [f"{name} {plain(value)}" for name, value in given.items()]
        name = str(mine.get("name", "none, the scenario assigns the clients' data" if group == "partition" else ""))
        parts[f"{name} ({', '.join(details)})" if details else name] = None
    return "; ".join(parts)


def _work(records: Records) -> str:
    """How much work a client does in a round: ``5 epochs``."""
    given = [(settings, unit) for settings in records.settings.values() for unit in WORK if f"local.{unit}" in settings]
    return " or ".join(dict.fromkeys(f"{settings[f'local.{unit}']} {unit}" for settings, unit in given))


def _values(records: Records, name: str) -> str:
    """Value of a setting, or its values, in order of appearance."""
    return " or ".join(dict.fromkeys(plain(settings.get(name)) for settings in records.settings.values()))


def _listed(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return distinct[0] if len(distinct) == 1 else f"{len(distinct)} ({', '.join(distinct)})"


def _span(values: pd.Series[Any]) -> str:
    if values.empty:
        return "0"
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low} to {high}"
