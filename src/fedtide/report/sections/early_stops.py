"""Where runs were stopped early, and what each method has spent by then to reach the target of ``stop``."""

from collections.abc import Iterator

import pandas as pd

from fedtide.records.frames import METHOD, by_method
from fedtide.records.measures import metrics
from fedtide.records.run_directory import RunDirectory
from fedtide.report import formats
from fedtide.report.parts import Source, complete_runs, sheets, warnings
from fedtide.report.tables.method_table import Sheet
from fedtide.settings.scores import main_score

_SPENT = {"rounds": formats.rounds, "bytes": formats.human_bytes, "seconds": formats.seconds}


def caveat(source: Source) -> Iterator[str]:
    """Which runs were stopped, and the rounds that tables and figures are then about."""
    found = complete_runs(source.run_dirs).values()
    lines = [
        f"{each['label']} / {each['initializer']} / seed {each['seed']} after round {each['rounds']}: {each['stopped']}"
        for each in found
        if "stopped" in each
    ]
    if lines:
        shared = f"the first {min(each['rounds'] for each in found)} rounds, which all complete runs have"
        yield f"Runs ended early. Tables and figures, but for the cost of the target, compare {shared}: {'; '.join(lines)}."


def sheet(source: Source) -> list[Sheet]:
    """Rounds, traffic and simulated time to the target, of the complete runs that have one: medians over the seeds."""
    methods, rows = source.records.runs.set_index("key")[METHOD], []
    for path, summary in complete_runs(source.run_dirs).items():
        settings = source.records.settings[path.name]
        if (target := settings.get("stop.target")) is None:
            continue
        score, frame = main_score(summary.get("task", "classification")), pd.DataFrame(RunDirectory(path).history())
        named = [f"{settings['evaluation.splits'][0]}_{each.name}" for each in (score, score.of_served)]
        optional = ["latency", "seconds_simulated"]
        frame = frame.reindex(columns=["round", "bytes_up", "bytes_down", *optional, *named]).apply(pd.to_numeric)
        values = frame[named[0]].fillna(frame[named[1]])
        rounds = metrics.rounds_to_target(score.sign * values, score.sign * target)
        seconds = frame["seconds_simulated"].fillna(frame["latency"].cumsum())
        costs = frame.assign(rounds=frame["round"], bytes=frame["bytes_up"] + frame["bytes_down"], seconds=seconds)
        last = costs[list(_SPENT)].iloc[int(min(rounds, len(frame))) - 1]
        rows.append(dict(methods.loc[path.name]) | dict(last) | {"reached": rounds <= len(frame)})
    if not rows:
        return []
    runs = pd.DataFrame(rows)
    timed = {"Simulated time": "seconds"} if runs["seconds"].notna().any() else {}
    columns = {"Rounds": "rounds", "Traffic": "bytes"} | timed
    caption = "Medians over the seeds. A run that does not reach the target of `stop` counts in full, marked with >."
    lines = [(method, _cells(own, list(columns.values()))) for method, own in by_method(runs).items()]
    return [Sheet("Cost of the target", caption, [f"{name} to target" for name in columns], lines)]


def _cells(runs: pd.DataFrame, columns: list[str]) -> list[str]:
    """Cells of a method."""
    middle = ((name, *metrics.median_spent(runs[name], runs["reached"])) for name in columns)
    return [("" if reached else "> ") + _SPENT[name](value) for name, value, reached in middle]


sheets.add(5, sheet)
warnings.add(5, caveat)
