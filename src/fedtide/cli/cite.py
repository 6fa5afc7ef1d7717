"""``fedtide cite``: the papers that docstrings name, as BibTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, NamedTuple

import typer

from fedtide.core import plugins
from fedtide.core.errors import SettingsError, nearest, shortened

KINDS = ("algorithms", "initialisation")

_NAME = r"[A-Z][\w'-]+"
_PAPER = re.compile(
    rf"(?P<authors>(?:{_NAME}, )*{_NAME} and {_NAME}|{_NAME} et al\.)(?: (?P<year>(?:19|20)\d\d))?"
    r"(?:, arXiv[: ](?P<arxiv>\d{4}\.\d{5}))?"
)
"""How docstrings name a paper: ``Wang and Ji 2024``, ``Gu et al. 2021, arXiv:2106.04159``; without a year only with et al."""


class Paper(NamedTuple):
    """A paper as a docstring names it; ``year`` and ``arxiv`` are empty where it does not give them."""

    authors: str
    year: str
    arxiv: str


_CFL = "Towards Federated Learning on Time-Evolving Heterogeneous Data"
_DYNAMIC = (
    "Communication-Efficient Federated Learning under Dynamic Device Arrival and Departure: Convergence Analysis and "
    "Algorithm Design"
)
_FEDSAM = "Generalized Federated Learning via Sharpness Aware Minimization"
_FEDWCM = "FedWCM: Unleashing the Potential of Momentum-based Federated Learning in Long-Tailed Scenarios"

TITLES = {
    ("apfl", "Deng"): "Adaptive Personalized Federated Learning",
    ("cfl_core_set", "Guo"): _CFL,
    ("cfl_generative", "Guo"): _CFL,
    ("cfl_regularization", "Guo"): _CFL,
    ("ditto", "Li"): "Ditto: Fair and Robust Federated Learning Through Personalization",
    ("continuous", "Chang"): _DYNAMIC,
    ("dynamic", "Chang"): _DYNAMIC,
    ("fedavg", "McMahan"): "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    (
        "fedccfa",
        "Chen",
    ): "Classifier Clustering and Feature Alignment for Federated Learning under Distributed Concept Drift",
    ("feddc", "Gao"): "FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction",
    ("feddrift", "Jothimurugesan"): "Federated Learning under Distributed Concept Drift",
    ("feddyn", "Acar"): "Federated Learning Based on Dynamic Regularization",
    ("fedgen", "Zhu"): "Data-Free Knowledge Distillation for Heterogeneous Federated Learning",
    ("fednova", "Wang"): "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization",
    ("fedopt", "Hsu"): "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
    ("fedopt", "Reddi"): "Adaptive Federated Optimization",
    ("fedper", "Li"): "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
    ("fedper", "Liang"): "Think Locally, Act Globally: Federated Learning with Local and Global Representations",
    ("fedprox", "Li"): "Federated Optimization in Heterogeneous Networks",
    ("fedsam", "Qu"): _FEDSAM,
    ("fedssg", "Zhou"): "FedSSG: Expectation-Gated and History-Aware Drift Alignment for Federated Learning",
    ("fedwcm", "Li"): _FEDWCM,
    (
        "fedwcm_x",
        "Li",
    ): _FEDWCM,
    ("mofedsam", "Qu"): _FEDSAM,
    ("moon", "Li"): "Model-Contrastive Federated Learning",
    (
        "per_fedavg",
        "Fallah",
    ): "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning Approach",
    ("pfedme", "Dinh"): "Personalized Federated Learning with Moreau Envelopes",
    ("scaffold_released", "Chang"): _DYNAMIC,
    ("scaffold", "Karimireddy"): "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
}
"""Titles by plug-in and first author. A paper without an entry is cited without its title: none is guessed."""


def cite(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Algorithms and initialisers.")],
) -> None:
    """Print BibTeX entries of the papers that algorithms and initialisers come from, as far as their documentation has them."""
    known = {name: kind for kind in KINDS for name in plugins.names(kind)}
    for name in names:
        if name not in known:
            raise SettingsError(nearest(f"no algorithm or initialiser {shortened(name)!r}", name, known))
    found = {name: papers(known[name], name) for name in dict.fromkeys(names)}
    titles = set[str]()
    for name, cited in found.items():
        if not cited:
            print(f"% {name}: its documentation names no paper\n")
        for paper in cited:
            title = TITLES.get((name, _first(paper)), "")
            if title not in titles:
                print("\n".join(_entry(name, paper, title)), end="\n\n")
            titles |= {title} - {""}


def papers(kind: str, name: str) -> list[Paper]:
    """The papers that a plug-in's docstring names, in order."""
    found: dict[tuple[str, str], Paper] = {}
    for text in plugins.docstrings(kind, name):
        for match in _PAPER.finditer(" ".join(text.split())):
            paper = Paper(*(match[part] or "" for part in Paper._fields))
            if paper.arxiv or (paper.authors, paper.year) not in found:
                found[paper.authors, paper.year] = paper
    return list(found.values())


def _first(paper: Paper) -> str:
    """The first author."""
    return re.split(r", | and | et al", paper.authors)[0]


def _entry(name: str, paper: Paper, title: str) -> Iterator[str]:
    """The lines of a BibTeX entry."""
    yield f"@misc{{{_first(paper).lower()}{paper.year}{name},"
    yield f"  author = {{{paper.authors.replace(', ', ' and ').replace(' et al.', ' and others')}}},"
    if title:
        yield f"  title = {{{{{title}}}}},"
    if paper.year:
        yield f"  year = {{{paper.year}}},"
    if paper.arxiv:
        yield f"  eprint = {{{paper.arxiv}}},"
        yield "  archivePrefix = {arXiv},"
    yield f"  note = {{{name} in fedtide}},"
    yield "}"
