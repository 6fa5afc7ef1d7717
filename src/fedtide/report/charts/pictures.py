"""Figures of the report: as files, and on the page."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from fedtide.report.charts import printed
from fedtide.report.charts.chart import Chart
from fedtide.report.charts.style import paper, saved


@dataclass(frozen=True)
class Drawing:
    """A figure of the report that is not drawn yet.

    Attributes:
        name: of its files, without suffix. title, caption: below it.
        content: what is drawn, or a PNG. written: whether the report has a file of it.
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
