"""Letters that the font of the figures lacks."""

import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from fedtide.report.charts.fonts import _font, _tell, file_of
from fedtide.report.charts.style import paper, saved

CHINESE, CIRCLE = "\u662f", "\u20dd"  # of no font that comes with Matplotlib; of one of them, which is not the figures'


def drawn(label: str) -> Figure:
    figure = Figure()
    figure.subplots().set_yticks([0, 1], labels=["no", label])
    return figure


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines of the log; there are no fonts but Matplotlib's."""
    lines: list[str] = []
    every = font_manager.fontManager.ttflist
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [font for font in every if "mpl-data" in font.fname])
    monkeypatch.setattr("fedtide.report.charts.fonts.logger.warning", lambda line, *values: lines.append(line % values))
    _font.cache_clear()
    _tell.cache_clear()
    return lines


def test_another_font_draws_what_the_first_lacks(told: list[str], recwarn: pytest.WarningsRecorder) -> None:
    with paper():
        figure = drawn(CIRCLE)
        assert saved(figure, "png") != saved(drawn(CHINESE), "png")
    (label,) = [text for text in figure.axes[0].get_yticklabels() if text.get_text() == CIRCLE]
    assert label.get_fontfamily() == ["DejaVu Sans", "STIXGeneral"]
    assert not recwarn.list


def test_letters_of_no_font_are_one_line(told: list[str], recwarn: pytest.WarningsRecorder) -> None:
    with paper():
        for form in ("png", "svg", "png"):
            file_of(drawn(CHINESE + "?" + CHINESE), format=form)
    (line,) = told
    assert line.startswith("figures: no font of this system has \u662f; install one that does")
    assert not recwarn.list


def test_other_figures_stay_as_they_are(told: list[str]) -> None:
    with paper():
        figure = drawn("yes")
        assert file_of(figure, format="png") == file_of(figure, format="png")
    assert all(text.get_fontfamily() == ["DejaVu Sans"] for text in figure.axes[0].get_yticklabels())
    assert not told
