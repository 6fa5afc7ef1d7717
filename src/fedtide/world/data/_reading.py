"""CSV and Parquet files as people have them, with one line for what is wrong."""

import codecs
import csv
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pydantic import Field, model_validator

from fedtide.core.errors import SettingsError, shortened
from fedtide.core.plugins import OMIT_DEFAULT
from fedtide.world.data.base import DatasetSettings

_PARQUET = (".parquet", ".pq")
_DELIMITERS = {";": "';'", "\t": r'"\t"', "|": "'|'", ",": "','"}
_HEAD = 1 << 20  # bytes in which the header ends
_LARGEST = 2**31 - 1
_MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)  # pandas' own

Place = Callable[[int], str]


class FileSettings(DatasetSettings):
    """How the text of a CSV file is written; all defaults are those of RFC 4180 and ISO 8601."""

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


def read_table(path: Path, options: FileSettings, text: Sequence[str] = ()) -> tuple[pd.DataFrame, Place]:
    """The rows of a CSV or Parquet file, and where each is found in it, for errors.

    ``options`` say how a CSV file is written; values of the columns ``text`` stay as they are written.

    Raises:
        SettingsError: it is no readable table, has no rows, or columns without a name or with equal names.
    """
    if not path.is_file():
        raise SettingsError(f"data.file = {str(path)!r}: no such file")
    line, first = "row {}", 1
    try:
        if path.suffix in _PARQUET:
            # What pandas noted of its index is ignored: an index with a name is a column.
            table = pyarrow.parquet.read_table(path)
            table = table.select(
                [name for name in table.column_names if not re.fullmatch(r"__index_level_\d+__", name)]
            )
        else:
            content = pa.input_stream(str(path), compression="detect").read()
            table = _read_csv(path, _as_utf8(path, content, options), options, text)
            if content.rstrip().count(b"\n") == len(table):  # one line each
                line, first = "line {}", 2
    except (OSError, pa.ArrowException) as error:
        raise SettingsError(f"{path}: not a readable table: {' '.join(str(error).split())}") from None
    _refuse_names(path, table.column_names)
    if not len(table):
        raise SettingsError(f"{path}: no rows")
    return table.to_pandas(ignore_metadata=True), lambda row: f"{path}, {line.format(row + first)}"


def _as_utf8(path: Path, content: bytes, options: FileSettings) -> bytes:
    """The file's text; what is no text in the encoding that is set is refused by line and byte."""
    if content.startswith(b"PK\x03\x04"):
        raise SettingsError(f"{path}: a workbook or an archive; save the table as .csv or .parquet")
    try:
        decoded = content.decode(options.encoding)
    except UnicodeError as error:
        if not isinstance(error, UnicodeDecodeError):
            raise SettingsError(f"{path}: not {options.encoding}: {error}; set data.encoding") from None
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        likely = "utf-16" if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "latin-1"
        raise SettingsError(
            f"{path}, line {line}: byte 0x{byte:02x} is not {options.encoding}; set data.encoding, for example {likely}"
        ) from None
    if codecs.lookup(options.encoding).name == "utf-8":
        return content.removeprefix(codecs.BOM_UTF8)
    return decoded.removeprefix("\ufeff").encode()


def _read_csv(path: Path, content: bytes, options: FileSettings, text: Sequence[str]) -> pa.Table:
    if not content.strip():
        raise SettingsError(f"{path}: the file is empty")
    _refuse_names(path, header := _header(content, options.delimiter))
    if len(header) == 1 and (other := [sign for sign in _DELIMITERS if sign in header[0]]):
        shown = shortened(header[0])
        raise SettingsError(f"{path}: one column, {shown!r}; set data.delimiter: {_DELIMITERS[other[0]]}")
    wrong: list[Any] = []

    def read(**reading: Any) -> pa.Table:
        def refuse(row: Any) -> str:
            wrong.append(row)
            return "error"

        return pyarrow.csv.read_csv(
            pa.BufferReader(content),
            pyarrow.csv.ReadOptions(**reading),
            pyarrow.csv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True, invalid_row_handler=refuse),
            pyarrow.csv.ConvertOptions(
                null_values=_MISSING,
                strings_can_be_null=True,
                decimal_point=options.decimal,
                column_types={name: pa.string() for name in text},
            ),
        )

    try:
        return read()
    except pa.ArrowInvalid:
        if not wrong and len(content) < _LARGEST:
            # Types are guessed from the first block, so that one large block has the types that fit all rows.
            return read(block_size=len(content) + 1)
        if not wrong:
            raise
    wrong.clear()
    try:
        read(use_threads=False)  # counts rows
    except pa.ArrowInvalid:
        row = wrong[0]
    lengths = f"{row.actual_columns} values, the header {row.expected_columns}"
    raise SettingsError(f"{path}, line {row.number}: {lengths}: {shortened(row.text)!r}")


def _header(content: bytes, delimiter: str) -> list[str]:
    head = content[:_HEAD].decode(errors="ignore").lstrip("\r\n")
    return next(csv.reader(io.StringIO(head, newline=""), delimiter=delimiter))


def _refuse_names(path: Path, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        if not name.strip():
            raise SettingsError(f"{path}: column {place + 1} has no name; name it, or remove it if it numbers the rows")
        if name in names[:place]:
            raise SettingsError(f"{path}: two columns are named {name!r}; rename one")
