"""CSV and Parquet files as people have them, with one line for what is wrong."""

import codecs
import lzma
import re
import unicodedata
from pathlib import Path
from typing import Annotated, Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from pydantic import BeforeValidator, Field, model_validator

from fedtide.core.errors import SettingsError, shortened
from fedtide.core.plugins import OMIT_DEFAULT
from fedtide.settings.run import DatasetSettings
from fedtide.world.adapters.columns import MISSING_NUMBERS
from fedtide.world.adapters.layouts import UNNAMED, Layout, layout
from fedtide.world.adapters.names import name_of
from fedtide.world.adapters.rows import Rows
from fedtide.world.adapters.zones import refuse_unknown_zone

_PARQUET = (".parquet", ".pq")
BINARY = (*_PARQUET, ".feather", ".arrow")
UNREADABLE = (OSError, pa.ArrowException, lzma.LZMAError, EOFError)
_FOREIGN = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".dta", ".sav", ".sas7bdat", ".rds", ".rdata", ".pkl", ".h5")
_DELIMITERS = {";": "';'", "\t": r'"\t"', "|": "'|'", ",": "','"}
_LARGEST = 2**31 - 1
_PLAIN = re.compile(r"[-+]?\d+(\.\d+)?")
WRITTEN = ("encoding", "delimiter", "decimal", "missing")
"""Settings that say how the values of a file are written."""


Name = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) in (int, float) else value)]
"""A text of a file; numbers are written as such in YAML, too."""


class FileSettings(DatasetSettings):
    """How the values of a file are written; all defaults are those of RFC 4180 and ISO 8601."""

    encoding: Annotated[str, OMIT_DEFAULT] = Field("utf-8", description="encoding of a CSV file, such as latin-1")
    delimiter: Annotated[str, OMIT_DEFAULT] = Field(
        ",", min_length=1, max_length=1, description="character between the values of a CSV file"
    )
    decimal: Annotated[str, OMIT_DEFAULT] = Field(
        ".", pattern="^[.,]$", description="decimal sign of a CSV file: . or ,"
    )
    date_format: Annotated[str | None, OMIT_DEFAULT] = Field(
        None, description="strptime format of the times, such as %d/%m/%Y; null: integers or ISO dates"
    )
    timezone: Annotated[str | None, OMIT_DEFAULT] = Field(
        None,
        description="time zone of the clock by which times have days and months, such as Europe/Berlin; null: that of the one "
        "offset that all times have, UTC of integers",
    )
    missing: Annotated[tuple[Name, ...], OMIT_DEFAULT] = Field(
        (),
        description="texts and numbers that are a missing value in every column, such as ? or -999, in addition to empty cells "
        "and, in columns of numbers, to NA, NaN, null, None and the like (elsewhere these are names)",
    )

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise SettingsError(
                f"encoding = {self.encoding!r} is not an encoding known to Python; use one such as utf-8 or latin-1"
            ) from None
        if self.timezone is not None:
            refuse_unknown_zone(self.timezone)
        if self.decimal == self.delimiter:
            raise SettingsError(f"decimal and delimiter are both {self.decimal!r}")
        return self


def read_table(path: Path, options: FileSettings) -> Rows:
    """The rows of a CSV, Parquet or Feather file.

    Values of a CSV file are texts as they are written; those of other files keep their types. Texts have no blanks around them
    and Unicode's form NFC; what is empty or in ``options.missing`` is missing. Columns without a name are left out.

    Raises:
        SettingsError: it is no readable table, has no rows, columns with equal names, or one without a name that does not
            number the rows.
    """
    if not path.is_file():
        raise SettingsError(f"data.file = {str(path)!r}: no such file")
    suffix, notes = path.suffix.lower(), tuple[str, ...]()
    if suffix in _FOREIGN:
        raise SettingsError(f"{path}: {suffix} is not supported; save the table as .csv, .parquet or .feather")
    line, first = "row {}", 1
    try:
        if suffix in BINARY:
            # What pandas noted of its index is ignored: an index with a name is a column.
            table = (pyarrow.parquet if suffix in _PARQUET else pyarrow.feather).read_table(path)
            table = table.select(
                [name for name in table.column_names if not re.fullmatch(r"__index_level_\d+__", name)]
            )
        else:
            content = _as_utf8(path, read_bytes(path), options)
            if not content.strip():
                raise SettingsError(f"{path}: the file is empty")
            found = layout(content, options.delimiter)
            rows = content[found.byte :]
            end = len(rows.rstrip(b" \t\r\n".replace(found.delimiter.encode(), b"")))
            rows = rows[: rows.find(b"\n", end) + 1 or None]  # without lines of blanks below
            table, notes = _read_csv(path, rows, found), found.notes
            if rows.rstrip().count(b"\n") + 1 == len(table):  # one line each
                line, first = "line {}", found.line + 1
    except UNREADABLE as error:
        raise SettingsError(f"{path}: not a readable table: {' '.join(str(error).split())}") from None
    names = _named(path, table.column_names)
    if not len(table):
        raise SettingsError(f"{path}: no rows")
    columns = [_cleaned(column, options.missing) for column in table.columns]
    # An integer column with missing values stays exact.
    frame = pa.table(columns, names).to_pandas(ignore_metadata=True, integer_object_nulls=True)
    unnamed = [_left_out(path, frame, number) for number, name in enumerate(names) if UNNAMED.fullmatch(name)]
    frame = frame.drop(columns=filter(UNNAMED.fullmatch, names))
    return Rows(path, frame, lambda row: f"{path}, {line.format(row + first)}", options.decimal, (*notes, *unnamed))


def _left_out(path: Path, frame: pd.DataFrame, number: int) -> str:
    """Why a column without a name is left out: it numbers the rows or is empty; another one is refused."""
    values = [name_of(value) for value in frame.iloc[:, number].dropna().unique()]
    if not all(map(str.isdecimal, values)):
        problem = f"{path}: column {number + 1} has no name and does not number the rows"
        raise SettingsError(f"{problem}; name it in the header, or remove it")
    return f"column {number + 1} has no name and {'numbers the rows' if values else 'is empty'}; left out"


def read_bytes(path: Path) -> bytes:
    """The content of a file, decompressed if its name says that it is compressed."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    content: bytes = pa.input_stream(str(path), compression="detect").read()
    return content


def likely_encoding(content: bytes) -> str:
    """An encoding for what is not UTF-8: that of its mark, or of Windows if it has bytes that are no signs in latin-1."""
    if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    return "cp1252" if re.search(rb"[\x80-\x9f]", content) else "latin-1"


def _as_utf8(path: Path, content: bytes, options: FileSettings) -> bytes:
    """The file's text; what is no text in the encoding that is set is refused."""
    if b"\0" in content and not re.match("utf_?-?(16|32)", options.encoding, re.IGNORECASE):
        cure = "save the table as .csv, .parquet or .feather and name it so, or set data.encoding, for example utf-16"
        raise SettingsError(f"{path}: not a text in {options.encoding}; {cure}")
    try:
        text = content.decode(options.encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        line = content.count(b"\n", 0, getattr(error, "start", 0)) + 1
        likely = likely_encoding(content)
        raise SettingsError(f"{path}, line {line}: {error}; set data.encoding, for example {likely}") from None
    return (text if "\n" in text else text.replace("\r", "\n")).encode()


def _read_csv(path: Path, rows: bytes, found: Layout) -> pa.Table:
    names, delimiter = found.names, found.delimiter
    if len(names) == 1 and (other := [sign for sign in _DELIMITERS if sign in names[0]]):
        shown = shortened(names[0])
        raise SettingsError(f"{path}: one column, {shown!r}; set data.delimiter: {_DELIMITERS[other[0]]}")
    names = _named(path, names)
    if not rows.strip():
        raise SettingsError(f"{path}: no rows")
    sign = re.escape(delimiter)
    if f"{delimiter} " in found.header:  # a value may be in quotation marks behind a blank, too
        rows = re.sub(rf'(^|{sign})[ \t]+"'.encode(), rb'\1"', rows, flags=re.MULTILINE)
    wrong: list[Any] = []

    def refuse(row: Any) -> str:
        wrong.append(row)
        return "error"

    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(rows),
            # One thread counts rows; a row may be longer than a smaller block.
            pyarrow.csv.ReadOptions(use_threads=False, block_size=min(len(rows) + 1, _LARGEST), column_names=names),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse),
            pyarrow.csv.ConvertOptions(
                null_values=sorted(MISSING_NUMBERS),
                # Where texts are in quotation marks, as R writes them, these words without such are no texts.
                strings_can_be_null=re.fullmatch(rf'("[^"]*"({sign}|$))+', found.header) is not None,
                quoted_strings_can_be_null=False,
                column_types=dict.fromkeys(names, pa.string()),
            ),
        )
    except pa.ArrowInvalid:
        if not wrong:
            raise
    row = wrong[0]
    lengths = f"{row.actual_columns} values, the header {row.expected_columns}"
    raise SettingsError(f"{path}, line {row.number + found.line}: {lengths}: {shortened(row.text)!r}")


def _named(path: Path, names: list[str]) -> list[str]:
    """Names of the columns, cleaned as texts are; those without one get that of pandas."""
    found: list[str] = []
    for place, name in enumerate(unicodedata.normalize("NFC", name).strip() for name in names):
        if name and name in found:
            raise SettingsError(f"{path}: two columns are named {name!r}; rename one")
        found.append(name or f"Unnamed: {place}")
    return found


def _cleaned(column: pa.ChunkedArray, missing: tuple[str, ...]) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    numbers_ = [sign for sign in missing if _PLAIN.fullmatch(sign)]
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        if not pc.all(pc.string_is_ascii(column)).as_py():
            column = pc.utf8_normalize(column, form="NFC")
        absent = pc.is_in(column, value_set=pa.array(["", *missing], column.type))
        if numbers_:  # as programs write them among floats, too
            plain = [re.sub(r"\.0*$|(\.\d*?[1-9])0*$", r"\1", sign) for sign in numbers_]
            forms = "|".join(re.escape(sign) + ("0*" if "." in sign else r"(\.0*)?") for sign in plain)
            written = pc.match_substring_regex(column, f"^({forms})$")
            absent = pc.or_(absent, pc.fill_null(written, False))
    elif numbers_ and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        floats = pa.array(map(float, numbers_), pa.float64())
        absent = pc.is_in(column.cast(pa.float64(), safe=False), value_set=floats)
    else:
        return column
    return pc.if_else(absent, pa.scalar(None, column.type), column)
