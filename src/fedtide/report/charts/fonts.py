"""Letters that the font of a figure lacks, such as Chinese ones: from another font of the system, else one line."""

import io
import logging
import re
import warnings
from functools import cache
from typing import Any

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.text import Text

logger = logging.getLogger(__name__)

_PLACEHOLDER = "Last Resort"  # a font of Matplotlib, with a frame in place of every letter


def file_of(figure: Figure, **options: Any) -> bytes:
    """A figure as Matplotlib's ``savefig`` writes it, with more fonts if letters are missing; those of no font are logged."""
    content, missing = _drawn(figure, options)
    if fonts := sorted({name for letter in missing if (name := _font(letter)) is not None}):
        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            text.set_fontfamily([*text.get_fontfamily(), *fonts])
        content, missing = _drawn(figure, options)
    if missing:
        _tell("".join(sorted(missing)))
    return content


def _drawn(figure: Figure, options: dict[str, Any]) -> tuple[bytes, set[str]]:
    """The file, and the letters that Matplotlib warns of while it is written."""
    stream = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", r"Glyph \d+")
        figure.savefig(stream, **options)
    found = [(each, re.match(r"Glyph (\d+)", str(each.message))) for each in caught]
    for each, glyph in found:
        if glyph is None:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return stream.getvalue(), {chr(int(glyph[1])) for _, glyph in found if glyph is not None}


@cache
def _font(letter: str) -> str | None:
    """The first family of the system's fonts, by name, that has a letter."""
    fonts = sorted((font.name, font.fname) for font in font_manager.fontManager.ttflist)
    having = (name for name, file in fonts if ord(letter) in _letters(file) and not name.startswith(_PLACEHOLDER))
    return next(having, None)


@cache
def _letters(file: str) -> frozenset[int]:
    return frozenset(font_manager.get_font(file).get_charmap())


@cache
def _tell(letters: str) -> None:
    shown = letters if len(letters) <= 20 else f"{letters[:20]}..."
    logger.warning(
        "figures: no font of this system has %s; install one that does, such as Noto Sans CJK for Chinese", shown
    )
