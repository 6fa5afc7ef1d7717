"""Alarms of detectors in a comparison: when they were and, where drifts were planted, what they were worth."""

import pandas as pd

from fedtide.records.frames import METHOD, Records, by_method
from fedtide.records.measures import drifts, metrics
from fedtide.records.measures.detections import CLIENTS, COLUMN, HORIZON, detections, listed
from fedtide.report import findings, formats
from fedtide.report.parts import frames, sheets, warnings
from fedtide.report.tables.method_table import Sheet

_RUN = ["key", *METHOD, "seed"]
_MOST_ROWS = 20


def per_run(records: Records) -> pd.DataFrame:
    """A row per complete run with a detector and planted drifts.

    The run's columns, ``drifts``, ``detected``, ``delay``, ``false_alarms``.
    """
    rows = []
    for _, run in _watched(records, planted=True):
        found = detections(run[COLUMN], run[drifts.COLUMN])
        measured = {"drifts": len(found.delays), "detected": found.detected, "delay": found.delay}
        rows.append(run[_RUN].iloc[0].to_dict() | measured | {"false_alarms": found.false})
    return pd.DataFrame(rows, columns=[*_RUN, "drifts", "detected", "delay", "false_alarms"])


def per_alarm(records: Records) -> pd.DataFrame:
    """A row per alarm of the complete runs without planted drifts: the run's columns, ``round``, ``period``, ``clients``.

    ``period``: its name, empty without periods; ``clients``: whose detectors alarmed, NaN where the server's is watched.
    """
    rows = [run[run[COLUMN] > 0] for _, run in _watched(records, planted=False)]
    found = pd.concat(rows) if rows else records.history[:0]
    period = [
        records.session_name(int(session), "period ") if records.has_periods else "" for session in found["session"]
    ]
    return found[[*_RUN, "round"]].assign(period=period, clients=found[CLIENTS])


def _watched(records: Records, planted: bool) -> list[tuple[str, pd.DataFrame]]:
    """Histories of the complete runs with a detector, with or without planted drifts."""
    history = records.history[records.history["state"] == "complete"]
    runs = history[history[COLUMN].notna()].groupby("key", sort=False)
    return [(str(key), run) for key, run in runs if run[drifts.COLUMN].notna().any() == planted]


def sheets_of(runs: pd.DataFrame) -> list[Sheet]:
    """The table of :func:`per_run`; none without runs."""
    rows = [(method, _cells(group)) for method, group in by_method(runs).items()] if len(runs) else []
    return [Sheet("Alarms", _CAPTION, ["Detected", "Delay, rounds", "False alarms"], rows)] if rows else []


_CAPTION = (
    f"Detected: drifts with an alarm from their first round to {HORIZON} rounds from their last change on, and before the next "
    "one; delay: rounds from the first round to that alarm. False: alarms while no concept of a client present has changed for "
    f"{HORIZON} rounds, per run. Mean \N{PLUS-MINUS SIGN} sample standard deviation over the seeds."
)


def _cells(runs: pd.DataFrame) -> list[str]:
    delay, false = (metrics.mean_std(runs[name]) for name in ("delay", "false_alarms"))
    return [
        f"{int(runs['detected'].sum())} of {int(runs['drifts'].sum())}",
        formats.over(formats.rounds(round(delay[0], 1), delay[1]), runs["delay"].count(), len(runs)),
        formats.rounds(round(false[0], 1), false[1]),
    ]


def list_of(found: pd.DataFrame) -> list[Sheet]:
    """The table of :func:`per_alarm`; none without alarms."""
    if not len(found):
        return []
    columns = ["seed", "round", "period", "clients"]
    shown = found.assign(clients=[formats.NOTHING if pd.isna(count) else f"{count:.0f}" for count in found["clients"]])
    rows = [
        (method, [str(seed), str(round_), period or formats.NOTHING, clients])
        for method, group in by_method(shown).items()
        for seed, round_, period, clients in group[columns].to_numpy().tolist()
    ]
    more = f" And {len(rows) - _MOST_ROWS} more in alarms.csv." if len(rows) > _MOST_ROWS else ""
    caption = (
        "Rounds in which a detector alarmed, in data without a planted drift: whether something changed is not known. Clients: "
        f"whose detectors alarmed; {formats.NOTHING} where the mean loss of the round is watched.{more}"
    )
    return [Sheet("Alarms of detectors", caption, ["Seed", "Round", "Period", "Clients"], rows[:_MOST_ROWS])]


def sentences(found: pd.DataFrame) -> list[str]:
    """The alarms of :func:`per_alarm` of each run in words."""
    return [
        f"{findings.method(method)}, seed {seed}, {listed(list(zip(run['round'], run['period'], strict=True)))}."
        for method, group in by_method(found).items()
        for seed, run in group.groupby("seed", sort=False)
    ]


sheets.add(60, lambda source: sheets_of(per_run(source.records)))
sheets.add(61, lambda source: list_of(per_alarm(source.records)))
warnings.add(1, lambda source: sentences(per_alarm(source.records)))
frames.add(0, lambda source: [("detections", found)] if len(found := per_run(source.records)) else [])
frames.add(0, lambda source: [("alarms", found)] if len(found := per_alarm(source.records)) else [])
