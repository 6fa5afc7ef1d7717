"""Figure of what models still know: the model at the end of each session on the samples of every session so far."""

import numpy as np

from fedtide.records.frames import Records, by_method
from fedtide.records.measures.forgetting import column_of, matrix
from fedtide.report.charts.chart import Axis, Cells, Chart, Panel
from fedtide.report.charts.methods import method_names
from fedtide.report.charts.pictures import drawings
from fedtide.report.parts import figures

_MOST_WRITTEN = 30  # columns of cells, over the width of the page, in which a number has room

_CAPTION = (
    "Of {}. A row: after a {word}, tested on the held-out samples of each {word} so far. Mean over the complete runs of a "
    "method."
)


def session_scores(records: Records) -> Chart | None:
    """The matrix of each method, mean over its complete runs."""
    score, column, rows = records.score.present, column_of(records.score), records.session_scores
    if column not in rows:
        return None
    known = rows[(rows["state"] == "complete") & rows[column].notna()]
    found = {method: matrix(group, column) for method, group in by_method(known).items()}
    size = max((len(A) for A in found.values()), default=0)
    if size < 2:
        return None
    padded = {method: np.pad(A, (0, size - len(A)), constant_values=np.nan) for method, A in found.items()}
    names, columns = method_names(list(found)), min(len(found), 2)
    written = size * columns <= _MOST_WRITTEN
    low, high = (float(limit([limit(A[~np.isnan(A)]) for A in found.values()])) for limit in (np.min, np.max))

    def cells(A: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Cells:
        colors = "viridis_r" if score.lower else "viridis"
        return Cells(A, colors, score.title, share=score.share, written=written, low=low, high=high)

    sessions = tuple(records.session_name(number, "") for number in range(1, size + 1))
    word = _word(records)
    lines = -(-len(found) // columns)
    return Chart(
        Axis(f"Tested on {word}", names=sessions),
        Axis(f"Model after {word}", names=sessions),
        tuple(Panel(names[method] if len(found) > 1 else "", cells=cells(A)) for method, A in padded.items()),
        columns,
        0.5 + lines * (0.4 + 0.22 * size),
    )


def _word(records: Records) -> str:
    return "period" if records.periods else "session"


figures.add(
    210,
    lambda source: drawings(
        "earlier_sessions",
        f"Test {source.records.score.present.words} on earlier {_word(source.records)}s",
        _CAPTION.format(source.records.models(), word=_word(source.records)),
        session_scores(source.records),
    ),
)
