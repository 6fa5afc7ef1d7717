"""What DVC compares between experiments: curves of accuracy (or another main score), and one number per method."""

import csv
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fedtide.core.storage.files import replacing, write_json
from fedtide.records.run_directory import RunDirectory
from fedtide.records.summary import Summary, headline, of_global, score_in
from fedtide.settings.scores import main_score

_DIGITS = 6


def write_curves(summaries: Iterable[Summary], runs: Path, metrics: Path, curves: Path) -> None:
    """Write the accuracies (or other main scores) of one algorithm's complete runs, summarized over their seeds.

    Where samples have owners they are those of what clients are served, and where periods are evaluated ahead those on the
    next period.

    Args:
        metrics: JSON file: ``{algorithm: {initializer: accuracy}}``, the mean over the last ten rounds; on the next
            period, or of what clients are served, an initializer has ``{mean_next_served_accuracy: ...}``, by the name of the
            headline, and the same of the global model.
        curves: folder of a CSV file per initializer: ``round``, ``accuracy`` (the mean), ``lowest`` and ``highest``, of the
            rounds that all runs have evaluated.
    """
    methods: dict[tuple[str, str], list[Summary]] = defaultdict(list)
    for summary in summaries:
        if summary["state"] == "complete" and headline(summary) is not None:
            methods[summary["label"], summary["initializer"]].append(summary)
    found: dict[str, dict[str, float | dict[str, float]]] = defaultdict(dict)
    curves.mkdir(parents=True, exist_ok=True)
    for (label, initializer), members in methods.items():
        main, first = main_score(members[0].get("task", "classification")), headline(members[0])
        column = f"test_{main.name}"
        if first is not None and (first.score.ahead or first.score.served):
            column = f"test_{first.score.name}"
            pairs = [(each, of_global(summary, each)) for summary in members for each in [headline(summary)]]
            named: dict[str, list[float]] = defaultdict(list)
            for each in (each for pair in pairs for each in pair if each is not None):
                named[each.name].append(each.value)
            found[label][initializer] = {name: round(statistics.fmean(each), _DIGITS) for name, each in named.items()}
        else:
            means = [value for each in members if (value := score_in(each, "mean_last10")) is not None]
            found[label][initializer] = round(statistics.fmean(means), _DIGITS)
        with replacing(curves / f"{initializer}.csv") as part, part.open("w", newline="", encoding="utf-8") as stream:
            table = csv.writer(stream, lineterminator="\n")
            table.writerow(["round", main.name, "lowest", "highest"])
            table.writerows(_rows([RunDirectory(runs / summary["run_key"]) for summary in members], column))
    metrics.parent.mkdir(parents=True, exist_ok=True)
    write_json(metrics, found)


def _rows(members: Iterable[RunDirectory], score: str) -> Iterable[tuple[int, float, float, float]]:
    columns = [
        {int(row["round"]): float(row[score]) for row in member.history() if row.get(score)} for member in members
    ]
    for number in sorted(set.intersection(*map(set, columns))):
        values = [column[number] for column in columns]
        mean, lowest, highest = (
            round(value, _DIGITS) for value in (statistics.fmean(values), min(values), max(values))
        )
        yield number, mean, lowest, highest
