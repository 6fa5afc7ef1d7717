"""Where runs were stopped early, and what each method has spent by then to reach the target of ``stop``."""

from collections.abc import Iterator

import pandas as pd

from fedtide.records.frames import METHOD, by_method
from fedtide.records.run_directory import RunDirectory
from fedtide.report import formats
from fedtide.report.parts import Source, sheets, warnings
from fedtide.report.tables.early_stops import complete, shared_rounds
from fedtide.report.tables.method_table import Sheet
from fedtide.settings.scores import main_score

_SPENT = {"rounds": formats.rounds, "bytes": formats.human_bytes, "seconds": formats.seconds}


def caveat(source: Source) -> Iterator[str]:
    """Which runs were stopped, and the rounds that tables and figures are then about."""
    found = complete(source.run_dirs).values()
    stopped = [
        f"{each['label']} \N{MIDDLE DOT} {each['initializer']}, seed {each['seed']}, after round {each['rounds']}: "
        f"{each['stopped']}"
        for each in found
        if "stopped" in each
    ]
    if stopped:
        yield (
            f"Runs were stopped early, so all tables and figures but the one about the target of `stop` compare the first "
            f"{shared_rounds(source.run_dirs)} rounds of complete runs, which all of them have. Stopped: {'; '.join(stopped)}."
        )


def sheet(source: Source) -> list[Sheet]:
    """Rounds, traffic and simulated time to the target, of the complete runs that have one: medians over the seeds."""
    methods, rows = source.records.runs.set_index("key")[METHOD], []
    for path, summary in complete(source.run_dirs).items():
        settings = source.records.settings[path.name]
        if (target := settings.get("stop.target")) is None:
            continue
        score, frame = main_score(summary.get("task", "classification")), pd.DataFrame(RunDirectory(path).history())
        named = [f"{settings['evaluation.splits'][0]}_{each.name}" for each in (score, score.of_served)]
        optional = ["latency", "seconds_simulated"]
        frame = frame.reindex(columns=["round", "bytes_up", "bytes_down", *optional, *named]).apply(pd.to_numeric)
        values = frame[named[0]].fillna(frame[named[1]])
        reached = score.sign * values >= score.sign * target
        last = frame.loc[: reached.idxmax()] if reached.any() else frame
        rows.append(
            dict(methods.loc[path.name])
            | {"reached": reached.any(), "rounds": len(last), "bytes": last[["bytes_up", "bytes_down"]].iloc[-1].sum()}
            | {"seconds": last["seconds_simulated"].fillna(last["latency"].cumsum()).iloc[-1]}
        )
    if not rows:
        return []
    runs = pd.DataFrame(rows)
    timed = {"Simulated time": "seconds"} if runs["seconds"].notna().any() else {}
    columns = {"Rounds": "rounds", "Traffic": "bytes"} | timed
    caption = "Medians over the seeds. A run that does not reach the target of `stop` counts in full, marked with >."
    lines = [(method, _cells(own, list(columns.values()))) for method, own in by_method(runs).items()]
    return [Sheet("Cost of the target", caption, [f"{name} to target" for name in columns], lines)]


def _cells(runs: pd.DataFrame, columns: list[str]) -> list[str]:
    """Cells of a method: those of its median run."""
    middle = runs.sort_values(["reached", "rounds"], ascending=[False, True], kind="stable").iloc[(len(runs) - 1) // 2]
    return [("" if middle["reached"] else "> ") + _SPENT[name](middle[name]) for name in columns]


sheets.add(5, sheet)
warnings.add(5, caveat)
