"""The verdicts and forest plots of docs/verdicts.md, from results/ and the papers' claims (`published/claims.yaml`).

python experiments/findings.py results docs/verdicts.md

It replaces the first table below the heading of each paper, and draws images/forest_*.png beside the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fedtide.core.errors import SettingsError
from fedtide.core.files import write_bytes, write_text
from fedtide.reproduce.claims import read_paper
from fedtide.reproduce.forest import forest_png, table, weigh

EXPERIMENTS = Path(__file__).parent
TABLE = r"(^## {}\n(?:(?!## |\|).*\n)*)((?:\|.*\n)+)"
"""A section up to its first table, and that table."""


def with_table(page: str, title: str, lines: str) -> str:
    """The page with another table in the section of this title."""
    found = re.search(TABLE.format(re.escape(title)), page, re.MULTILINE)
    if found is None:
        raise SettingsError(f"no table below the heading '## {title}'")
    return page[: found.start(2)] + lines + "\n" + page[found.end(2) :]


def main(results: Path, page: Path, experiments: Path = EXPERIMENTS) -> None:
    """Draw the figures and write the tables."""
    text, figures = page.read_text(encoding="utf-8"), {}
    for file in sorted(experiments.glob("*/published/claims.yaml")):
        paper = read_paper(file)
        lines, rows = weigh(paper, results, experiments)
        text = with_table(text, paper.title, table(lines))
        figures[f"forest_{file.parents[1].name}.png"] = forest_png(paper, rows)
    for name, content in figures.items():
        write_bytes(page.parent / "images" / name, content)
    write_text(page, text)


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:]))
    except SettingsError as error:
        sys.exit(f"error: {error}")
