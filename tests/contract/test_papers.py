"""Every method with a published source can be cited: all that its docstring names, with titles, is found."""

import re

from fedtide.cli.commands import cite
from fedtide.core import plugins

EVERY = [(kind, name) for kind in cite.KINDS for name in plugins.names(kind)]
UNPUBLISHED = {
    *("average", "oracle_reset", "fedensemble", "frozen", "local", "oracle", "previous", "restart"),
    *("continue_training", "retrain", "rollback"),
}
"""Bounds, controls and plain rules that come from no paper of their own."""


def test_every_method_names_the_papers_it_comes_from_and_their_titles() -> None:
    for kind, name in EVERY:
        texts, found = plugins.docstrings(kind, name), cite.papers(kind, name)
        assert (not found) == (name in UNPUBLISHED), name
        named = set(re.findall(r"([A-Z][\w'-]+) et al\.", " ".join(" ".join(texts).split())))
        assert named <= {paper.authors.removesuffix(" et al.") for paper in found}, name
        below = (re.sub(r"\n {8}", " ", text.partition("References:\n")[2]) for text in texts)
        written = [line for lines in below for line in lines.splitlines()]
        titles = {paper.title for paper in found} - {""}
        assert len(titles) == len(written), name
        assert all(any(line.endswith(f". {title}.") for title in titles) for line in written), name
