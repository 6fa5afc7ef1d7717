"""Numbers of docs/tide.md are those of the published scores."""

import re

import pytest
from printed_commands import PAGES

from fedtide.core.discovery.shipped import TIDE
from fedtide.studies.tide.board import PUBLISHED, Board, board, read_rows
from fedtide.studies.tide.page import gain_lines, lines
from fedtide.studies.tide.suite import REFERENCE, REFERENCE_LINES, suite

RESULTS = PAGES["docs/tide.md"].partition("## Results")[2].partition("## ")[0]
PARAGRAPHS = {
    found[1]: found[0] for found in re.finditer(r"^\* \*\*`(\w+)`\*\* .+\n(?:  .+\n)*", RESULTS, re.MULTILINE)
}
GAIN = re.compile(r"[+\u2212]\d+\.\d \([+\u2212]\d+\.\d to [+\u2212]\d+\.\d\)")


@pytest.fixture(scope="module")
def published() -> Board:
    return board(read_rows(TIDE / PUBLISHED), list(suite().values()))


def test_the_table_is_the_board(published: Board) -> None:
    found = [
        [cell.strip() for cell in line.replace("`", "").strip("|").split("|")]
        for line in re.findall(r"^\| `.+ \|$", RESULTS, re.MULTILINE)
    ]
    expected = lines(published)
    for cells in expected:
        if cells[0] in REFERENCE_LINES:
            cells[0] += " (reference)"
    assert found == expected


def test_a_paragraph_per_world_quotes_scores_and_gains_of_that_world(published: Board) -> None:
    assert list(PARAGRAPHS) == published.worlds
    for place, (world, text) in enumerate(PARAGRAPHS.items(), start=1):
        plain = " ".join(text.split())
        reference = f"{published.scores[world][REFERENCE]:.1f} ± {published.spread[world][REFERENCE]:.1f} %)"
        assert reference in plain, world
        gains = {cells[place].rstrip("*") for cells in gain_lines(published, intervals=True)}
        assert GAIN.findall(plain)
        assert set(GAIN.findall(plain)) <= gains, world


def test_the_first_paragraph_quotes_means(published: Board) -> None:
    first = " ".join(RESULTS.partition("![")[0].split())
    means = {cells[1] for cells in lines(published)}
    assert len(GAIN.findall(first)) == 4
    assert set(GAIN.findall(first)) <= means
