"""Reader of CSV files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from csv import Error as CsvError
from csv import reader as csv_reader
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._utils.words import listed
from .blocks import Indices
from .limits import require_in_proportion
from .locations import LocatedReader, Location
from .stored import ContentsError
from .table_reader import arrow, check_columns, column_types, kind_of

_BLOCK_BYTES = 1 << 22  # bytes of text that pyarrow parses at once
_PACKED_BLOCK, _MANY_COLUMNS = (
    1 << 20,
    10_000,
)  # the same for compressed files; with this many columns a line may be longer
_FIELD_BYTES = 16  # bytes of memory for a field, which is read as a number and as text
_PIECE = 1 << 20  # bytes of compressed text that are measured at once
_COLUMN_BYTES = 10_000  # bytes of memory that pyarrow takes for each column
FIRST_BLOCK = 1 << 22  # bytes of text that tell the names and types of columns
_LARGEST_BLOCK = 1 << 30  # bytes of text that tell the types of columns of a table in memory
_EXPANSION = 6  # typical ratio of text to its compression
_SEPARATORS = (";", "\t", "|")  # other than a comma
_THOUSANDS = (",", ".", " ", "'", "_", "\u00a0", "\u202f")
_QUOTED = re.compile('"[^"]*"')
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_NULLS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "n/a", "#N/A")
_MOST_LINES = 10_000_000  # lines that are counted to locate an error, which takes some seconds


@dataclass(frozen=True)
class CsvFormat:
    """How CSV files are written; fields that are None are found by looking at each file.

    delimiter : a comma, unless the first line has no comma but semicolons, tabs or bars
    encoding : UTF-8, or UTF-16 if the file begins with its mark
    decimal : a comma if `thousands` is a point, or if another delimiter is used and more columns are numbers that way
    thousands : separator of groups of three digits; none by default
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and (not _is_character(self.delimiter) or self.delimiter in '"\r\n'):
            raise ValueError(f"delimiter={self.delimiter!r} must be one character, such as ';'")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except (LookupError, TypeError) as error:
                message = (
                    f"encoding={self.encoding!r} is not known: use a name of Python, such as 'latin-1' or 'cp1252'"
                )
                raise ValueError(message) from error
        if self.decimal is not None and self.decimal not in (".", ","):
            raise ValueError(f"decimal={self.decimal!r} must be '.' or ','")
        if self.thousands is not None and self.thousands not in _THOUSANDS:
            raise ValueError(f"thousands={self.thousands!r} must be one of {listed(_THOUSANDS)}")
        if self.thousands is not None and self.thousands == self.decimal:
            raise ValueError(f"thousands={self.thousands!r} cannot be the decimal point as well")

    @property
    def given(self) -> dict[str, str]:
        """The fields that are not None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def of(self, location: Location) -> CsvFormat:
        """Return the format of a file, with its delimiter, encoding and decimal point."""
        encoding = _mark_of(location) or "utf-8" if self.encoding is None else self.encoding
        with location.text(encoding) as file:
            line = file.readline(_BLOCK_BYTES)
        first = _QUOTED.sub("", line)
        others = [separator for separator in _SEPARATORS if separator in first and "," not in first]
        delimiter = (others[0] if others else ",") if self.delimiter is None else self.delimiter
        # before pyarrow makes a reader for each column
        check_columns(location.path, location.state().size, line.count(delimiter) + 1, _COLUMN_BYTES)
        point = "," if self.thousands == "." else "."
        found = replace(self, delimiter=delimiter, encoding=encoding, decimal=self.decimal or point)
        if self.decimal is not None or delimiter == "," or self.thousands is not None:
            return found
        comma = replace(found, decimal=",")
        return comma if comma._count_numbers(location) > found._count_numbers(location) else found

    def _count_numbers(self, location: Location) -> int:
        """Count the columns that are numbers, by the first lines."""
        from pyarrow import csv

        parsing = self.parsing(newlines_in_values=True)
        with csv.open_csv(beginning(location), self.reading(FIRST_BLOCK), parsing, self.converting()) as reader:
            return sum(kind_of(type_) == "number" for type_ in reader.schema.types)

    def reading(self, block: int, threads: bool = False) -> Any:
        """Return options of pyarrow for reading blocks of text."""
        from pyarrow import csv

        utf8 = codecs.lookup(self.encoding or "utf-8").name in ("utf-8", "utf-8-sig")  # pyarrow leaves out the mark
        return csv.ReadOptions(block_size=block, use_threads=threads, encoding="utf8" if utf8 else self.encoding)

    def parsing(self, **options: Any) -> Any:
        """Return options of pyarrow for finding fields."""
        from pyarrow import csv

        return csv.ParseOptions(delimiter=self.delimiter or ",", **options)

    def converting(self, **options: Any) -> Any:
        """Return options of pyarrow for making values of fields."""
        from pyarrow import csv

        return csv.ConvertOptions(decimal_point=self.decimal or ".", **options)

    def numbers(self, column: Any) -> Any:
        """Return text with thousands separators as numbers, or None if some of it is not a number."""
        import pyarrow.compute as pc

        point, separator = re.escape(self.decimal or "."), re.escape(self.thousands or "")
        body = rf"^\s*-?(?:\d{{1,3}}(?:{separator}\d{{3}})+|\d+)(?:{point}\d*)?\s*$"
        if not pc.all(pc.match_substring_regex(column, body), min_count=0).as_py():
            return None
        digits = pc.replace_substring(column, self.thousands, "")
        return pc.utf8_trim_whitespace(pc.replace_substring(digits, self.decimal or ".", ".")).cast(arrow().float64())


def _is_character(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 1 and text.isascii()


def beginning(location: Location) -> Any:
    """Read the text of two blocks; the first gives names and types.

    If pyarrow were given the whole file, it would read dozens of blocks ahead, however small the compressed file is.
    """
    with location.stream() as file:
        return arrow().BufferReader(file.read(2 * FIRST_BLOCK))


def _mark_of(location: Location) -> str | None:
    """Return the encoding that the byte order mark of a file stands for, or None without a mark."""
    with location.stream() as file:
        first = file.read(4)
    return next((encoding for mark, encoding in _MARKS.items() if first.startswith(mark)), None)


@contextmanager
def explained(location: Location, encoding: str) -> Iterator[None]:
    """Raise an error that names the file and the remedy where text cannot be decoded."""
    try:
        yield
    except (UnicodeError, arrow().ArrowInvalid) as error:
        if isinstance(error, UnicodeError) or "invalid UTF8" in str(error):
            raise wrong_encoding(location, encoding) from error
        raise


def wrong_encoding(location: Location, encoding: str) -> ContentsError:
    """Return an error that says where text cannot be decoded, and what to do."""
    name, place = codecs.lookup(encoding).name, ""
    if not name.startswith("utf-16"):  # whose line breaks are not single bytes
        with suppress(OSError), location.binary() as file:
            lines = (number for number, line in enumerate(file, 1) if not _decodes(line, name))
            place = f": see line {next(lines, 1)}"
    return ContentsError(
        f"{location.path} is not text in {name.upper()}{place}. Say how it was written, such as with encoding='cp1252' "
        "(Windows in Western Europe) or encoding='latin-1', or write it again as UTF-8"
    )


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeError:
        return False
    return True


class CsvReader(LocatedReader):
    """Reader of text with one line of names. Numbers are read as float64, with or without a decimal point."""

    parses_text = True

    def __init__(self, location: Location, format: CsvFormat | None = None) -> None:
        from pyarrow import csv

        self.location = location
        state = location.state()
        self.format = (format or CsvFormat()).of(location)
        types, first_rows = self._beginning({})
        if any(arrow().types.is_binary(type_) for type_ in types.values()):
            raise wrong_encoding(location, self.format.encoding or "utf-8")
        float64 = arrow().float64()
        texts = [name for name, type_ in types.items() if kind_of(type_) == "label"]
        self.parsing = self.format.parsing(newlines_in_values=bool(texts))
        self.grouped = {
            name
            for name in texts
            if self.format.thousands is not None
            and self.format.numbers(first_rows.column(name).filter(_present(first_rows.column(name)))) is not None
        }
        self.without_values = {name for name, type_ in types.items() if type_ == arrow().null()}
        self.types = types | dict.fromkeys(self.grouped | self.without_values, float64)
        self._codes: list[str] | None = None
        count = 0
        first = next(iter(self.types))
        converting = self.format.converting(include_columns=[first], column_types={first: arrow().binary()})
        packed = location.compression is not None  # pyarrow decompresses many blocks ahead
        self.block = _PACKED_BLOCK if packed and len(self.types) < _MANY_COLUMNS else _BLOCK_BYTES
        reading = self.format.reading(self.block, not packed)
        with location.stream() as file, csv.open_csv(file, reading, self.parsing, converting) as reader:
            for batch in reader:
                count += batch.num_rows
        buffers = 8 * min(_BLOCK_BYTES, state.size)
        super().__init__(location.path, np.array([0, count], dtype=np.intp), state, buffers)

    def _beginning(self, types: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the types of columns by the first lines, and their rows; columns in `types` are read as these."""
        from pyarrow import csv

        parsing = self.format.parsing(newlines_in_values=True)
        options = self.format.reading(FIRST_BLOCK), parsing, self.format.converting(column_types=types)
        text = beginning(self.location)
        with explained(self.location, self.format.encoding or "utf-8"), csv.open_csv(text, *options) as reader:
            return column_types(self.location.path, reader.schema), next(iter(reader), reader.schema.empty_table())

    def has_codes(self, columns: Sequence[str]) -> bool:
        if self._codes is None:
            stored, _ = self.split(list(self.types))
            whole = [name for name in stored if arrow().types.is_integer(self.types[name])]
            _, rows = self._beginning(dict.fromkeys(whole, arrow().string()))
            self._codes = _codes(rows, whole)
        return any(name in self._codes for name in columns)

    def table_bytes(self) -> int:
        assert self.state is not None
        return self.state.size * (1 if self.location.compression is None else _EXPANSION)

    def _whole(self, columns: Sequence[str], as_text: Collection[str]) -> Iterator[tuple[int, Any]]:
        from pyarrow import csv

        check_text(self.location, self.format.delimiter or ",")
        block = min(max(self.table_bytes() + 1, FIRST_BLOCK), _LARGEST_BLOCK)
        string, parsing = arrow().string(), self.format.parsing(newlines_in_values=True)

        def read(names: Sequence[str], texts: Collection[str]) -> Any:
            types = dict.fromkeys(texts, string)
            converting = self.format.converting(
                include_columns=list(names), column_types=types, strings_can_be_null=True
            )
            with explained(self.location, self.format.encoding or "utf-8"), self.location.stream() as file:
                return csv.read_csv(file, self.format.reading(block, threads=True), parsing, converting)

        table = read(columns, as_text)
        if any(arrow().types.is_binary(type_) for type_ in table.schema.types):
            raise wrong_encoding(self.location, self.format.encoding or "utf-8")
        whole = [field.name for field in table.schema if arrow().types.is_integer(field.type)]
        if whole:
            text = read(whole, whole)
            for name in _codes(text, whole):
                table = table.set_column(list(columns).index(name), name, text.column(name))
        yield 0, table if self.format.thousands is None else self._without_groups(table, as_text)

    def _without_groups(self, table: Any, as_text: Collection[str]) -> Any:
        """Convert text with thousands separators to numbers."""
        for at, field in enumerate(table.schema):
            if kind_of(field.type) == "label" and field.name not in as_text:
                numbers = self.format.numbers(table.column(at))
                table = table if numbers is None else table.set_column(at, field.name, numbers)
        return table

    def place(self, row: int) -> str:
        return place_of(self.location, row, self.format)

    def stored_batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        from pyarrow import csv

        text = all(kind_of(self.types[name]) == "label" for name in columns)
        bool_, float64, string = arrow().bool_(), arrow().float64(), arrow().string()
        types = {name: self.types[name] if text or self.types[name] == bool_ else float64 for name in columns}
        types |= {name: string for name in columns if name in self.grouped}
        converting = self.format.converting(
            include_columns=list(columns),
            column_types=types,
            strings_can_be_null=True,
            null_values=[""] if text else None,  # "NA" may be a label
        )
        start = 0
        try:
            with (
                explained(self.location, self.format.encoding or "utf-8"),
                self.location.stream() as file,
                csv.open_csv(file, self.format.reading(self.block), self.parsing, converting) as reader,
            ):
                for batch in reader:
                    yield start, self._ungrouped(batch, start)
                    start += batch.num_rows
        except arrow().ArrowInvalid as error:
            place = re.match(r"In CSV column #(\d+): (.*)", str(error), re.DOTALL)
            if place is None:
                raise
            name = list(self.types)[int(place[1])]
            raise ContentsError(f"{self.path}: column {name!r} after row {start}: {place[2]}") from error

    def _ungrouped(self, batch: Any, start: int) -> Any:
        """Convert the columns of a batch that have thousands separators."""
        for at, name in enumerate(batch.schema.names):
            if name in self.grouped:
                numbers = self.format.numbers(batch.column(name))
                if numbers is None:
                    raise ContentsError(
                        f"{self.path}: column {name!r} after row {start} has text that is no number with "
                        f"thousands={self.format.thousands!r}: correct it, or leave the column out"
                    )
                batch = batch.set_column(at, name, numbers)
        return batch


def _codes(text: Any, names: Sequence[str]) -> list[str]:
    """Return the columns of whole numbers with leading zeros, such as postcodes, which numbers would lose."""
    import pyarrow.compute as pc

    zeros = r"^\s*[+-]?0\d"
    return [name for name in names if pc.any(pc.match_substring_regex(text.column(name), zeros)).as_py()]


def _present(column: Any) -> Any:
    """Return where a column of text is neither empty nor a word for a missing value."""
    import pyarrow.compute as pc

    return pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column, arrow().array(_NULLS))))


def place_of(location: Location, row: int, format: CsvFormat) -> str:
    """Describe the line of a row, which depends on empty lines and line breaks within quotes before it."""
    if row < _MOST_LINES:
        with suppress(CsvError, OSError), location.text(format.encoding or "utf-8") as file:
            reader = csv_reader(file, delimiter=format.delimiter or ",")
            ended = seen = 0
            for record in reader:
                if record and seen == row + 1:  # the names come first
                    return f", line {ended + 1} of the file"
                seen += bool(record)
                ended = reader.line_num
    return f", about line {row + 2} of the file"


def check_text(location: Location, delimiter: str) -> None:
    """Raise ContentsError if compressed text, and the table parsed from it, are out of proportion to the file."""
    if location.compression is None:
        return  # a character is a field at most
    file_bytes = location.state().size
    size = 0
    with location.stream() as file:
        while piece := file.read(_PIECE):
            size += len(piece) + _FIELD_BYTES * (piece.count(delimiter.encode()) + piece.count(b"\n"))
            what = "its text and the table that it makes take more than"
            require_in_proportion(
                location.path, file_bytes, size, what, "decompress the file, if its text is as long as that"
            )
