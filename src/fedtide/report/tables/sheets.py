"""A table of text."""

from __future__ import annotations

from dataclasses import dataclass

from fedtide.records.frames import Method


@dataclass(frozen=True)
class Sheet:
    """A table of text: headings of its columns, and the cells of each method.

    Rows may also describe other things with two names, whose kinds are ``names``.
    """

    title: str
    caption: str
    headings: list[str]
    rows: list[tuple[Method, list[str]]]
    names: tuple[str, str] = ("Algorithm", "Initializer")
