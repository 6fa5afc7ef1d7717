"""Every method with a published source can be cited, by what its docstring says and nothing else."""

from __future__ import annotations

import re

import pytest

from fedtide.cli import cite
from fedtide.core import plugins

EVERY = [(kind, name) for kind in cite.KINDS for name in plugins.names(kind)]
UNPUBLISHED = {"average", "drift_reset", "fedensemble", "frozen", "local", "oracle", "previous", "restart"}
"""Bounds, controls and plain rules that come from no paper of their own."""


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_a_method_names_the_papers_it_comes_from(kind: str, name: str) -> None:
    text = " ".join(" ".join(plugins.docstrings(kind, name)).split())
    found = cite.papers(kind, name)
    assert (not found) == (name in UNPUBLISHED)
    for paper in found:  # nothing but what is written there
        arxiv = rf", arXiv[: ]{paper.arxiv}" if paper.arxiv else ""
        assert re.search(rf"{re.escape(paper.authors)}{f' {paper.year}' * bool(paper.year)}{arxiv}", text), paper
    named = set(re.findall(r"([A-Z][\w'-]+) et al\.", text))  # and all of it
    assert named <= {paper.authors.removesuffix(" et al.") for paper in found}
    assert set(re.findall(r"\d{4}\.\d{5}", text)) - {paper.arxiv for paper in found} <= {
        "2003.13461"
    }  # an aside of apfl's


def test_every_title_is_that_of_a_paper_that_is_named() -> None:
    named = {(name, cite._first(paper)) for kind, name in EVERY for paper in cite.papers(kind, name)}
    assert cite.TITLES.keys() <= named
