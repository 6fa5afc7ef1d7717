"""CSV and Parquet files as people have them, with one line for what is wrong."""

import codecs
import lzma
import re
import unicodedata
from collections.abc import Callable, Collection
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedtide.core.errors import SettingsError, shortened
from fedtide.core.plugins import OMIT_DEFAULT
from fedtide.world.adapters.columns import MISSING_NUMBERS
from fedtide.world.data._layout import UNNAMED, Layout, layout
from fedtide.world.data.base import DatasetSettings

_PARQUET = (".parquet", ".pq")
BINARY = (*_PARQUET, ".feather", ".arrow")
UNREADABLE = (OSError, pa.ArrowException, lzma.LZMAError, EOFError)
_FOREIGN = (
    *(".xlsx", ".xls", ".xlsm", ".ods", ".json", ".jsonl", ".dta", ".sav", ".sas7bdat", ".rds", ".rdata", ".pkl"),
    ".h5",
)
_DELIMITERS = {";": "';'", "\t": r'"\t"', "|": "'|'", ",": "','"}
_LARGEST = 2**31 - 1
_STARTS = {b"\x1f\x8b": ".csv.gz", b"\xfd7zXZ": ".csv.xz", b"PAR1": ".parquet", b"ARROW1": ".feather"}
_PLAIN = re.compile(r"[-+]?\d+(\.\d+)?")
WRITTEN = ("encoding", "delimiter", "decimal", "missing")
"""Settings that say how the values of a file are written."""

Place = Callable[[int], str]


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

    missing: Annotated[tuple[str, ...], OMIT_DEFAULT] = Field(
        (),
        description="texts and numbers that are a missing value in every column, such as ? or -999, in addition to empty cells "
        "and, in columns of numbers, to NA, NaN, null, None and the like (elsewhere these are names)",
    )

    @staticmethod
    def likely_encoding(content: bytes) -> str:
        """An encoding for what is not UTF-8: that of its mark, or of Windows if it has bytes that are no signs in latin-1."""
        if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        return "cp1252" if re.search(rb"[\x80-\x9f]", content) else "latin-1"

    @field_validator("missing", "classes", mode="before", check_fields=False)
    @classmethod
    def _as_text(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, list | tuple):
            return given
        if words := [name for name in given if name is None or isinstance(name, bool)]:
            shown = "null is YAML's empty value" if words[0] is None else f"{str(words[0]).lower()} is a YAML boolean"
            raise SettingsError(f"{info.field_name}: {shown}; write it in quotation marks")
        return tuple(str(name) if isinstance(name, int | float) else name for name in given)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise SettingsError(
                f"encoding = {self.encoding!r} is not an encoding known to Python; use one such as utf-8 or latin-1"
            ) from None
        if self.decimal == self.delimiter:
            raise SettingsError(f"decimal and delimiter are both {self.decimal!r}")
        return self


def read_table(
    path: Path, options: FileSettings, typed: Collection[str] = ()
) -> tuple[pd.DataFrame, Place, tuple[str, ...]]:
    """The rows of a CSV, Parquet or Feather file, where each is found in it, for errors, and what was left out, sentences.

    Values of a CSV file are texts as they are written, but for the columns ``typed``, which are integers or floats if all their
    values are; those of other files keep their types. Texts have no blanks around them and Unicode's form NFC; what is empty
    or in ``options.missing`` is missing.

    Raises:
        SettingsError: it is no readable table, has no rows, or columns with equal names.
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

    def place(row: int) -> str:
        return f"{path}, {line.format(row + first)}"

    table = table.rename_columns(names := _named(path, table.column_names))
    if not len(table):
        raise SettingsError(f"{path}: no rows")
    columns = [_cleaned(column, options.missing) for column in table.columns]
    if suffix not in BINARY and len(names) > 1:
        same = [
            pc.equal(column, name) for name, column in zip(names, columns, strict=True) if not UNNAMED.fullmatch(name)
        ]
        if same and (again := pc.index(reduce(pc.and_, same), True).as_py()) >= 0:
            raise SettingsError(f"{place(again)}: the header again; remove the line")
    columns = [
        _typed(column, options.decimal) if name in typed else column
        for name, column in zip(names, columns, strict=True)
    ]
    # An integer column with missing values stays exact.
    frame = pa.table(columns, names).to_pandas(ignore_metadata=True, integer_object_nulls=True)
    return frame, place, notes


def read_bytes(path: Path) -> bytes:
    """The content of a file, decompressed if its name says that it is compressed."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    content: bytes = pa.input_stream(str(path), compression="detect").read()
    return content


def _as_utf8(path: Path, content: bytes, options: FileSettings) -> bytes:
    """The file's text; what is no text in the encoding that is set is refused by line and byte."""
    if content.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise SettingsError(f"{path}: a workbook or an archive; save the table as .csv or .parquet")
    if found := [suffix for start, suffix in _STARTS.items() if content.startswith(start)]:
        raise SettingsError(f"{path}: no text, but a file as those named {found[0]}; rename it")
    try:
        decoded = content.decode(options.encoding)
    except UnicodeError as error:
        if not isinstance(error, UnicodeDecodeError):
            raise SettingsError(f"{path}: not {options.encoding}: {error}; set data.encoding") from None
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        likely = options.likely_encoding(content)
        raise SettingsError(
            f"{path}, line {line}: byte 0x{byte:02x} is not {options.encoding}; set data.encoding, for example {likely}"
        ) from None
    if (nul := decoded.find("\0")) >= 0:
        line = decoded.count("\n", 0, nul) + 1
        raise SettingsError(
            f"{path}, line {line}: a NUL character; save the file as UTF-8, or set data.encoding, such as utf-16-le"
        )
    text = decoded.removeprefix("\ufeff")
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

    def read(**reading: Any) -> pa.Table:
        def refuse(row: Any) -> str:
            wrong.append(row)
            return "error"

        return pyarrow.csv.read_csv(
            pa.BufferReader(rows),
            pyarrow.csv.ReadOptions(column_names=names, **reading),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse),
            pyarrow.csv.ConvertOptions(
                null_values=sorted(MISSING_NUMBERS),
                # Where texts are in quotation marks, as R writes them, these words without such are no texts.
                strings_can_be_null=re.fullmatch(rf'("[^"]*"({sign}|$))+', found.header) is not None,
                quoted_strings_can_be_null=False,
                column_types=dict.fromkeys(names, pa.string()),
            ),
        )

    try:
        return read()
    except pa.ArrowInvalid:
        if not wrong and len(rows) < _LARGEST:
            return read(block_size=len(rows) + 1)  # a row may be longer than a block
        if not wrong:
            raise
    wrong.clear()
    try:
        read(use_threads=False)  # counts rows
    except pa.ArrowInvalid:
        row = wrong[0]
    lengths = f"{row.actual_columns} values, the header {row.expected_columns}"
    raise SettingsError(f"{path}, line {row.number + found.line}: {lengths}: {shortened(row.text)!r}")


def _named(path: Path, names: list[str]) -> list[str]:
    """Names of the columns, cleaned as texts are; those without one get that of pandas."""
    found = list[str]()
    for place, name in enumerate(unicodedata.normalize("NFC", name).strip() for name in names):
        if name and name in found:
            raise SettingsError(f"{path}: two columns are named {name!r}; rename one")
        name = name or f"Unnamed: {place}"
        found.append(f"{name}.1" if name in names[place + 1 :] and not names[place].strip() else name)
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


def _typed(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Integers or floats, if all texts are such."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return column
    numbers_ = pc.if_else(
        pc.is_in(column, value_set=pa.array(sorted(MISSING_NUMBERS), column.type)), pa.scalar(None, column.type), column
    )
    if decimal != ".":
        numbers_ = pc.replace_substring(pc.replace_substring(numbers_, ".", "?"), decimal, ".")
    if pc.any(pc.match_substring_regex(numbers_, r"^0\d+$")).as_py():
        return column  # names such as 007
    identifiers = pc.any(pc.match_substring_regex(numbers_, r"^[-+]?\d{19,}$")).as_py()
    for kind in (pa.int64(), *([] if identifiers else [pa.float64()])):  # integers that are no float exactly stay texts
        try:
            return numbers_.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column
