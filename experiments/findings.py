"""Tables and forest plots of what became of papers' claims, from results/ and `experiments/*/published/claims.yaml`.

    python experiments/findings.py results docs

replaces the first table of every docs/claims_*.md, and draws docs/images/forest_*.png.
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
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def with_table(page: str, lines: str) -> str:
    """The page with another first table."""
    return TABLE.sub(lambda _: f"{lines}\n", page, count=1)


def main(results: Path, docs: Path, experiments: Path = EXPERIMENTS) -> None:
    """Draw the figures and write the tables."""
    pages, figures = dict[Path, str](), dict[str, bytes]()
    for file in sorted(experiments.glob("*/published/claims.yaml")):
        paper, family = read_paper(file), file.parents[1].name
        lines, rows = weigh(paper, results, experiments)
        page = docs / f"claims_{family}.md"
        text = page.read_text(encoding="utf-8")
        if not TABLE.search(text):
            raise SettingsError(f"{page} has no table")
        pages[page] = with_table(text, table(lines))
        figures[f"forest_{family}.png"] = forest_png(paper, rows)
    for name, content in figures.items():
        write_bytes(docs / "images" / name, content)
    for page, text in pages.items():
        write_text(page, text)


if __name__ == "__main__":
    try:
        main(*map(Path, sys.argv[1:]))
    except SettingsError as error:
        sys.exit(f"error: {error}")
