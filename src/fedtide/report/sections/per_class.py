"""Accuracy per class."""

import numpy as np

from fedtide.records.frames import METHOD, Records
from fedtide.report.charts.chart import Axis, Cells, Chart, Panel
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import drawings
from fedtide.report.parts import figures

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


figures.add(
    220,
    lambda source: drawings(
        "per_class",
        "Accuracy per class of the final global model",
        "Mean over the complete runs, on all test samples of a class, whether or not it is present at the end.",
        per_class(source.records),
    ),
)
