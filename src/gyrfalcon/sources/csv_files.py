"""Reader of CSV files."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from csv import Error as CsvError
from csv import reader as csv_reader
from typing import IO, Any

import numpy as np

from .blocks import Indices
from .stored import ContentsError, FileState
from .table_reader import TableReader, arrow, check_columns, column_types, kind_of

_BLOCK_BYTES = 1 << 22  # of text that pyarrow parses at once
_COLUMN_BYTES = 10_000  # of memory that pyarrow takes for each column
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}  # other than a comma
_MOST_LINES = 10_000_000  # that are counted to locate an error, which takes some seconds


class CsvReader(TableReader):
    """Reader of text with one line of names. Numbers are read as float64, with or without a decimal point."""

    parses_text = True

    def __init__(self, path: str, delimiter: str | None = None) -> None:
        from pyarrow import csv

        state = FileState.of(path)
        self.delimiter = "," if delimiter is None else delimiter
        if delimiter is None:
            check_separator(path)
        check_width(path, self.delimiter)
        options = {"parse_options": self._parse_options()}
        # types are inferred from the first lines
        with csv.open_csv(path, read_options=self._read_options(), **options) as reader:
            self.types = column_types(path, reader.schema)
        nothing, float64 = arrow().null(), arrow().float64()
        self.types = {name: float64 if type_ == nothing else type_ for name, type_ in self.types.items()}
        count = 0
        first = next(iter(self.types))
        options["convert_options"] = csv.ConvertOptions(include_columns=[first], column_types={first: arrow().string()})
        threads = not path.lower().endswith(".gz")  # which would decompress far ahead
        with csv.open_csv(path, read_options=self._read_options(threads), **options) as reader:
            for batch in reader:
                count += batch.num_rows
        super().__init__(path, np.array([0, count], dtype=np.intp), state, 8 * min(_BLOCK_BYTES, state.size))

    def _read_options(self, threads: bool = False) -> Any:
        from pyarrow import csv

        return csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=threads)

    def _parse_options(self) -> Any:
        from pyarrow import csv

        return csv.ParseOptions(delimiter=self.delimiter)

    def place(self, row: int) -> str:
        return place_of(self.path, row, self.delimiter)

    def batches(self, columns: Sequence[str], groups: Indices | None) -> Iterator[tuple[int, Any]]:
        from pyarrow import csv

        text = all(kind_of(self.types[name]) == "label" for name in columns)
        bool_, float64 = arrow().bool_(), arrow().float64()
        options = csv.ConvertOptions(
            include_columns=list(columns),
            column_types={name: self.types[name] if text or self.types[name] == bool_ else float64 for name in columns},
            strings_can_be_null=True,
            null_values=[""] if text else None,  # "NA" may be a label
        )
        start = 0
        try:
            with csv.open_csv(
                self.path,
                read_options=self._read_options(),
                parse_options=self._parse_options(),
                convert_options=options,
            ) as reader:
                for batch in reader:
                    yield start, batch
                    start += batch.num_rows
        except arrow().ArrowInvalid as error:
            place = re.match(r"In CSV column #(\d+): (.*)", str(error), re.DOTALL)
            if place is None:
                raise
            name = list(self.types)[int(place[1])]
            raise ContentsError(f"{self.path}: column {name!r} after row {start}: {place[2]}") from error


def place_of(path: str, row: int, delimiter: str) -> str:
    """Describe the line of a row, which depends on empty lines and line breaks within quotes before it."""
    if row < _MOST_LINES:
        with suppress(CsvError, OSError), _open_text(path) as file:
            reader = csv_reader(file, delimiter=delimiter)
            ended = seen = 0
            for record in reader:
                if record and seen == row + 1:  # the names come first
                    return f", line {ended + 1} of the file"
                seen += bool(record)
                ended = reader.line_num
    return f", about line {row + 2} of the file"


def _open_text(path: str) -> IO[str]:
    opener: Any = gzip.open if path.lower().endswith(".gz") else open
    file: IO[str] = opener(path, "rt", encoding="utf-8", errors="replace", newline="")
    return file


def check_width(path: str, delimiter: str) -> None:
    """Raise ContentsError if the first line has more columns than the size of the file explains."""
    with _open_text(path) as file:
        count = file.readline(_BLOCK_BYTES).count(delimiter) + 1
    check_columns(path, FileState.of(path).size, count, _COLUMN_BYTES)


def check_separator(path: str) -> None:
    """Raise ContentsError if the first line has no commas but another separator."""
    with _open_text(path) as file:
        first = file.readline(1 << 20)
    for separator, words in _SEPARATORS.items():
        if separator in first and "," not in first:
            raise ContentsError(
                f"{path} has no comma in its first line, and its columns seem to be separated by {words}: say so with "
                f"delimiter={separator!r}"
            )
