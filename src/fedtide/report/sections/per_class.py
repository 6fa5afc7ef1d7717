"""Accuracy per class."""

from collections.abc import Iterator

import numpy as np

from fedtide.records.frames import METHOD, Records
from fedtide.records.measures.one_class import described, only_class
from fedtide.report.charts.chart import Axis, Cells, Chart, Panel
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import drawings
from fedtide.report.findings import method
from fedtide.report.parts import figures, warnings

_MOST_CELLS = 20


def per_class(records: Records) -> Chart | None:
    """Accuracy per class of the last evaluated model, mean over the seeds; gray where a class has no test samples."""
    complete = records.per_class[records.per_class["state"] == "complete"]
    classes = [name for name in complete.columns if str(name).startswith("class_")]
    if complete.empty or not classes:
        return None
    means = complete.groupby(METHOD, sort=False)[classes].mean()
    names = method_names(means.index.to_list())
    written = len(classes) <= _MOST_CELLS
    values = means.to_numpy(dtype=np.float64)
    cells = Cells(values, "cividis", "Accuracy", missing="#d9d9d9", share=True, written=written)
    x = Axis("Class", names=_names(records, len(classes)) if written else (), whole=not written)
    return Chart(x, Axis("", names=tuple(names.values())), (Panel(cells=cells),), 1, 1.0 + 0.27 * len(names))


def _names(records: Records, classes: int) -> tuple[str, ...]:
    return records.classes if len(records.classes) == classes else tuple(map(str, range(classes)))


def one_class(records: Records) -> Iterator[str]:
    """A line per class on which alone final models are right: which methods, and in how many of their complete runs."""
    complete = records.per_class[records.per_class["state"] == "complete"]
    classes = complete.filter(regex=r"^class_\d+$")
    last = records.history.dropna(subset=["test_accuracy"]).groupby("key")["test_accuracy"].last()
    only = np.array([only_class(row) for row in classes.to_numpy(dtype=np.float64).tolist()], dtype=np.float64)
    for number in np.unique(only[~np.isnan(only)]).astype(int).tolist():
        runs = complete[only == number]
        counts = {(str(label), str(start)): len(own) for (label, start), own in runs.groupby(METHOD, sort=False)}
        who = ", ".join(f"{method(names)} ({count} run{'s' * (count > 1)})" for names, count in counts.items())
        name = _names(records, classes.shape[1])[number]
        yield f"{who}: {described(name, float(last.reindex(runs['key']).mean()))}."


warnings.add(10, lambda source: one_class(source.records))
figures.add(
    220,
    lambda source: drawings(
        "per_class",
        "Accuracy per class of the final global model",
        "Mean over the complete runs, on all test samples of a class, whether or not it is present at the end.",
        per_class(source.records),
    ),
)
