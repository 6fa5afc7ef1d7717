"""Every method with a published source can be cited, by what its docstring says and nothing else."""

import re

import pytest

from fedtide.cli.commands import cite
from fedtide.core import plugins

EVERY = [(kind, name) for kind in cite.KINDS for name in plugins.names(kind)]
UNPUBLISHED = {
    *("average", "oracle_reset", "fedensemble", "frozen", "local", "oracle", "previous", "restart"),
    *("continue_training", "retrain", "rollback"),
}
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


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_reference_has_a_title(kind: str, name: str) -> None:
    below = [text.partition("References:\n")[2] for text in plugins.docstrings(kind, name)]
    written = [line for lines in below for line in re.sub(r"\n {8}", " ", lines).splitlines()]
    titles = {paper.title for paper in cite.papers(kind, name)} - {""}
    assert len(titles) == len(written)
    assert all(any(line.endswith(f". {title}.") for title in titles) for line in written)
