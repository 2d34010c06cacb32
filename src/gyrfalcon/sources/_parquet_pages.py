"""Decoded sizes of the pages of Parquet files, read from their headers before pyarrow decodes any of them.

A decoder uses the header of each page, and not the sizes in the footer. Headers are structs in the compact protocol of
Thrift. See https://parquet.apache.org/docs/file-format/data-pages/.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .stored import ContentsError

_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # types of pages
_DELTA_LENGTHS, _DELTA_TEXTS = 6, 7  # encodings whose decoders hold a length for each value of a page
_DICTIONARY_VALUE, _LENGTH = 32, 8  # bytes of memory for a value of a dictionary, and for a length
_FIRST, _LONGEST = 1 << 10, 1 << 22  # bytes of a header, with its statistics, that are read at first, and at most
_DEEPEST = 16  # largest number of nested structs


class Pages(NamedTuple):
    """What the pages of a column of a row group decode to."""

    held: int  # bytes that the decoder holds at once: the dictionary, and the largest other page
    repeating: int  # bytes of the largest page whose values may repeat the beginnings of others; 0 if there is none


def pages_of(path: str, file: Any, column: Any) -> Pages:
    """Walk over the pages of a column of a row group, as its reader does; `column` is pyarrow's metadata."""
    start, end = _range(column)
    dictionary = largest = repeating = seen = 0
    while start < end and seen < column.num_values:
        try:
            header, length = _header(file, start, end)
            kind, size, stored = header[1], header[2], header[3]
            about = header.get({_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}.get(kind, 0), {1: 0})
            count = about[1]
            if min(size, stored, count) < 0:
                raise ValueError(size)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise ContentsError(
                f"{path} cannot be read, is it damaged or cut short? (the header of a page at byte {start})"
            ) from error
        if kind == _DICTIONARY:
            dictionary = max(dictionary, size + _DICTIONARY_VALUE * count)
        elif kind in (_DATA, _DATA_2):
            coding = about.get(2 if kind == _DATA else 4)
            lengths = _LENGTH * count if coding in (_DELTA_LENGTHS, _DELTA_TEXTS) else 0
            largest = max(largest, size + lengths)
            repeating = max(repeating, size if coding == _DELTA_TEXTS else 0)
            seen += count
        start += length + stored
    return Pages(dictionary + largest, repeating)


def _range(column: Any) -> tuple[int, int]:
    """Return where the pages of a column begin and end."""
    start = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        start = min(start, column.dictionary_page_offset) if column.dictionary_page_offset > 0 else start
    return start, start + column.total_compressed_size


def _header(file: Any, start: int, end: int) -> tuple[dict[int, Any], int]:
    """Read the header of a page, and its length."""
    size = _FIRST
    while True:
        file.seek(start)
        data = file.read(min(size, end - start))
        try:
            return _struct(data, 0, _DEEPEST)
        except IndexError:  # it is longer
            if size >= min(_LONGEST, end - start):
                raise
            size *= 8


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return value, at
        shift += 7


def _integer(data: bytes, at: int, depth: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int, depth: int) -> tuple[None, int]:
    length, at = _varint(data, at)
    return None, at + length


def _list(data: bytes, at: int, depth: int) -> tuple[None, int]:
    count, kind = data[at] >> 4, data[at] & 0xF
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data) - at:  # each takes a byte or more
        raise IndexError(count)
    for _ in range(count):
        _, at = (None, at + 1) if kind in (1, 2) else _VALUES[kind](data, at, depth - 1)
    return None, at


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    if depth == 0:
        raise RecursionError
    fields: dict[int, Any] = {}
    number = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 0xF
        at += 1
        if step:
            number += step
        else:
            number, at = _integer(data, at, depth)
        fields[number], at = _VALUES[kind](data, at, depth - 1)
    return fields, at + 1


_VALUES: dict[int, Any] = {
    1: lambda data, at, depth: (True, at),
    2: lambda data, at, depth: (False, at),
    3: lambda data, at, depth: (data[at], at + 1),
    4: _integer,
    5: _integer,
    6: _integer,
    7: lambda data, at, depth: (None, at + 8),
    8: _bytes,
    9: _list,
    10: _list,
    12: _struct,
}
