"""``fedtide cite``: the papers that docstrings name, as BibTeX."""

import json
import re
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer

from fedtide.cli.options import Json
from fedtide.core import plugins
from fedtide.core.errors import SettingsError, nearest, shortened

KINDS = ("algorithms", "initializers", "erasers")

_NAME = r"[A-Z][\w'-]+"
_PAPER = re.compile(
    rf"(?P<authors>(?:{_NAME}, )*{_NAME} and {_NAME}(?= \d)|{_NAME} et al\.)(?: (?P<year>(?:19|20)\d\d))?"
    r"(?:, arXiv[: ](?P<arxiv>\d{4}\.\d{5}))?"
)
"""How docstrings name a paper: ``Wang and Ji 2024``, ``Gu et al. 2021, arXiv:2106.04159``; without a year only with et al."""
_REFERENCE = re.compile(rf"^ {{4}}{_PAPER.pattern}\.? (?P<title>.+(?:\n {{8}}.+)*)\.$", re.MULTILINE)
"""A line below ``References:`` in a docstring: the paper and its title."""


class Paper(NamedTuple):
    """A paper as a docstring names it; what it does not give is empty."""

    authors: str
    year: str
    arxiv: str
    title: str


def cite(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Algorithms, initializers and erasers.")],
    as_json: Json = False,
) -> None:
    """Print BibTeX entries of the references recorded for algorithms, initializers and erasers."""
    known = {name: kind for kind in KINDS for name in plugins.names(kind)}
    for name in names:
        if name not in known:
            raise SettingsError(nearest(f"no algorithm, initializer or eraser {shortened(name)!r}", name, known))
    found = {name: papers(known[name], name) for name in names}
    if as_json:
        print(json.dumps([{"name": name, **paper._asdict()} for name, cited in found.items() for paper in cited]))
        return
    titles: set[str] = set()
    for name, cited in found.items():
        if not cited:
            print(f"% {name}: no reference recorded\n")
        for paper in cited:
            if paper.title not in titles:
                print("\n".join(_entry(name, paper)), end="\n\n")
            titles |= {paper.title} - {""}


def papers(kind: str, name: str) -> list[Paper]:
    """The papers that a plug-in's docstring names, in order."""
    texts = plugins.docstrings(kind, name)
    titles = {
        (match["authors"], match["year"]): " ".join(match["title"].split())
        for text in texts
        for match in _REFERENCE.finditer(text)
    }
    found: dict[tuple[str, str], Paper] = {}
    for match in _PAPER.finditer(" ".join(" ".join(texts).split())):
        known = match["authors"], match["year"]
        if match["arxiv"] or known not in found:
            found[known] = Paper(known[0], known[1] or "", match["arxiv"] or "", titles.get(known, ""))
    return list(found.values())


def _entry(name: str, paper: Paper) -> Iterator[str]:
    """The lines of a BibTeX entry."""
    first_author = re.split(r", | and | et al", paper.authors)[0]
    yield f"@misc{{{first_author.lower()}{paper.year}{name},"
    yield f"  author = {{{paper.authors.replace(', ', ' and ').replace(' et al.', ' and others')}}},"
    if paper.title:
        yield f"  title = {{{{{paper.title}}}}},"
    if paper.year:
        yield f"  year = {{{paper.year}}},"
    if paper.arxiv:
        yield f"  eprint = {{{paper.arxiv}}},"
        yield "  archivePrefix = {arXiv},"
    yield f"  note = {{{name} in fedtide}},"
    yield "}"
