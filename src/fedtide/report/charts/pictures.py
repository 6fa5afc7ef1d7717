"""Figures of the report as files, and what the page needs to show them."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from fedtide.report.charts import interactive, printed
from fedtide.report.charts.chart import Chart
from fedtide.report.charts.style import paper, saved


@dataclass(frozen=True)
class Drawing:
    """A figure of the report that is not drawn yet: its name, title and caption, and what is drawn, or a PNG that was before.

    ``written``: whether the report has a file of it.
    """

    name: str
    title: str
    caption: str
    content: Chart | Figure | bytes
    written: bool = True

    def figure(self) -> Figure:
        """The figure, in the style of the report."""
        assert not isinstance(self.content, bytes)
        with paper():
            return printed.drawn(self.content) if isinstance(self.content, Chart) else self.content

    def files(self, formats: Sequence[str]) -> dict[str, bytes]:
        """The same as ``png``, ``svg`` or ``pdf``, by format; a PNG stays one."""
        if isinstance(self.content, bytes):
            return {"png": self.content}
        figure = self.figure()
        with paper():
            return {form: saved(figure, form) for form in dict.fromkeys(formats)}


def drawings(name: str, title: str, caption: str, content: Chart | Figure | None) -> list[Drawing]:
    """The drawing in a list, which is empty without content."""
    return [] if content is None else [Drawing(name, title, caption, content)]


@dataclass(frozen=True)
class Picture:
    """A figure of the report.

    Attributes:
        name: of its files, without suffix.
        title, caption: below it.
        files: content by format; ``png`` is always among them.
        chart: what is drawn on the page instead; None: the PNG is shown.
    """

    name: str
    title: str
    caption: str
    files: Mapping[str, bytes]
    chart: Chart | None = None

    @property
    def base64(self) -> str:
        return base64.b64encode(self.files["png"]).decode("ascii")

    @property
    def alternative(self) -> str:
        """The figure in words, for those who do not see it."""
        return f"{self.title}. {self.chart.described()}" if self.chart else self.title

    @property
    def legend(self) -> list[tuple[str, str, str]]:
        """Name, color and CSS border style of each entry of the legend."""
        found = self.chart.legend.values() if self.chart else ()
        return [(series.name, interactive.color(series.color), _BORDERS[series.dash]) for series in found]

    @property
    def note(self) -> str:
        """What is different on the page."""
        return _THINNED if self.chart and interactive.thinned_out(self.chart) else ""


_BORDERS = ("solid", "dashed", "dotted", "double")
_THINNED = "On the page, lines show the minimum and maximum over several rounds; the figure files show all rounds."


def picture(drawing: Drawing, formats: Sequence[str]) -> Picture:
    """The figure with its files in these formats and as PNG."""
    files = drawing.files(["png", *formats])
    chart = drawing.content if isinstance(drawing.content, Chart) else None
    return Picture(drawing.name, drawing.title, drawing.caption, files, chart)
