"""What stands above the rows of a CSV file: its header, and what programs write before and beside it."""

import csv
import re
from collections import Counter
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

_HEAD = 1 << 20  # bytes in which the header ends
_RECORDS = 50  # that say how many values a row has
_NUMBER = re.compile(r"[-+]?[\d.,]+")
_YEAR = re.compile(r"[12]\d{3}")
UNNAMED = re.compile(r"Unnamed: \d+(\.\d+)*")
"""Columns that have no name, as pandas calls them: mostly the numbers of the rows."""


class Layout(NamedTuple):
    """Names of the columns, the delimiter, the text of the header, the line and the byte on which rows begin, from 0."""

    names: list[str]
    delimiter: str
    header: str
    line: int
    byte: int
    notes: tuple[str, ...] = ()
    """What was left out."""


def layout(content: bytes, delimiter: str) -> Layout:
    """The layout of a CSV file that is not empty, in UTF-8.

    Left out are Excel's line ``sep=;``, which decides the delimiter, and lines above the header that are comments (``#``) or
    have fewer values than the rows, such as titles. A header that lacks the last name, where every row ends with a delimiter,
    or the first one, where rows are numbered, is completed by a column without a name.
    """
    lines = [f"{line}\n" for line in content[:_HEAD].decode(errors="ignore").split("\n")]
    start = 0
    if lines and (separator := re.fullmatch(r'"?sep=(.)"?\s*', lines[0])):
        start, delimiter = 1, separator[1]
    reader = csv.reader(lines[start:], delimiter=delimiter, skipinitialspace=True)
    records: list[tuple[int, int, list[str]]] = []
    line = start
    with suppress(csv.Error):  # a value without an end
        for fields in islice(reader, _RECORDS):
            if values := [field.strip() for field in fields]:
                records.append((line, start + reader.line_num, values))
            line = start + reader.line_num
    if not records:
        return Layout([], delimiter, "", 0, 0)
    counts = Counter(len(fields) for _, _, fields in records if not fields[0].startswith("#"))
    width = counts.most_common(1)[0][0] if counts else len(records[0][2])
    place = next((number for number, (_, _, fields) in enumerate(records) if _is_header(fields, width)), 0)
    if any(_NUMBER.fullmatch(field) and not _YEAR.fullmatch(field) for field in records[place][2]):
        place = 0  # a row: the header itself is wrong
    header, rows, names = records[place]
    below = [fields for _, _, fields in records[place + 1 :]]
    if len(names) == width - 1 > 0 and below:
        if all(len(fields) == width and not fields[-1] for fields in below):
            names = [*names, ""]
        elif all(len(fields) == width and fields[0].isdecimal() for fields in below):
            names = ["", *names]
    notes = (f"lines left out above the header: {header}",) if place or start else ()
    byte = sum(len(line.encode()) for line in lines[:rows])
    return Layout(names, delimiter, "".join(lines[header:rows]).strip(), rows, byte, notes)


def _is_header(fields: list[str], width: int) -> bool:
    filled = sum(map(bool, fields))
    if fields[0].startswith("#") and len(fields) != width:
        return False
    return len(fields) >= width - 1 and (filled > 1 or width < 2)
