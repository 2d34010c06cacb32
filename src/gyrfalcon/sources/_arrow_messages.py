"""Decoded sizes of the record batches and dictionaries of Arrow files, read before pyarrow decodes any of them.

A message is metadata in FlatBuffers and a body of buffers. Each compressed buffer begins with its decoded length. See
https://arrow.apache.org/docs/format/Columnar.html, "Serialization and interprocess communication".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from .limits import require_in_proportion
from .locations import Location
from .stored import ContentsError

_MAGIC = b"ARROW1"
_CONTINUES = b"\xff\xff\xff\xff"  # comes before the length of a message; versions before 0.15 have the length alone
_DICTIONARY, _BATCH = 2, 3  # types of messages
_REMEDY = "write smaller record batches"


def check_messages(location: Location, file_bytes: int) -> int:
    """Return the bytes that all record batches decode to.

    Raises ContentsError if one of them, or all dictionaries together, take memory out of proportion to the file.
    """
    total = dictionaries = 0
    path = location.path
    try:
        with location.file() as file:
            is_file = file.read(len(_MAGIC)) == _MAGIC
            for start, metadata in _of_file(file, file_bytes) if is_file else _of_stream(file, file_bytes):
                kind, size = _decoded(file, metadata, start, file_bytes)
                if kind == _DICTIONARY:
                    dictionaries += size
                    require_in_proportion(path, file_bytes, dictionaries, "its dictionaries decode to", _REMEDY)
                else:
                    total += size
                    require_in_proportion(path, file_bytes, size, "a record batch decodes to", _REMEDY)
    except (struct.error, IndexError) as error:
        raise ContentsError(f"{path} is damaged: the description of its record batches cannot be read") from error
    return total + dictionaries


class _Table:
    """A table of FlatBuffers: its fields are found by their numbers, and may be absent."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.layout = at - _unpack("<i", data, at)
        self.size = _unpack("<H", data, self.layout)

    def _place(self, number: int) -> int | None:
        slot = 4 + 2 * number
        offset = _unpack("<H", self.data, self.layout + slot) if slot + 2 <= self.size else 0
        return self.at + offset if offset else None

    def number(self, field: int, format: str) -> int:
        place = self._place(field)
        return 0 if place is None else _unpack(format, self.data, place)

    def table(self, field: int) -> _Table | None:
        place = self._place(field)
        return None if place is None else _Table(self.data, place + _unpack("<I", self.data, place))

    def structs(self, field: int, format: str) -> Iterator[tuple[int, ...]]:
        """Iterate over a vector of structs."""
        place = self._place(field)
        if place is not None:
            at = place + _unpack("<I", self.data, place)
            step = struct.calcsize(format)
            for i in range(_unpack("<I", self.data, at)):
                yield _unpack_all(format, self.data, at + 4 + i * step)


def _unpack_all(format: str, data: bytes, at: int) -> tuple[int, ...]:
    if at < 0:  # a negative offset would be counted from the end
        raise IndexError(at)
    return struct.unpack_from(format, data, at)


def _unpack(format: str, data: bytes, at: int) -> int:
    return _unpack_all(format, data, at)[0]


def _root(data: bytes) -> _Table:
    return _Table(data, _unpack("<I", data, 0))


def _read(file: Any, start: int, length: int, file_bytes: int) -> bytes:
    if not 0 <= start <= start + length <= file_bytes:
        raise IndexError(start)
    file.seek(start)
    return file.read(length)


def _of_file(file: Any, file_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the messages that the end of a file lists: where their bodies begin, and their metadata."""
    tail = 4 + len(_MAGIC)
    length = _unpack("<i", _read(file, file_bytes - tail, 4, file_bytes), 0)
    footer = _root(_read(file, file_bytes - tail - length, length, file_bytes))
    for field in (2, 3):  # dictionaries, record batches
        for offset, size, _ in footer.structs(field, "<qi4xq"):
            data = _read(file, offset, size, file_bytes)
            yield offset + size, data[8 if data[:4] == _CONTINUES else 4 :]


def _of_stream(file: Any, file_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Iterate over the messages of a stream: where their bodies begin, and their metadata."""
    at = 0
    while at + 8 <= file_bytes:
        prefix = 8 if _read(file, at, 4, file_bytes) == _CONTINUES else 4
        length = _unpack("<i", _read(file, at + prefix - 4, 4, file_bytes), 0)
        if length == 0:  # the end of the stream
            return
        metadata = _read(file, at + prefix, length, file_bytes)
        at += prefix + length
        yield at, metadata
        body = _root(metadata).number(3, "<q")
        at = _read_end(at, body, file_bytes)


def _read_end(start: int, length: int, file_bytes: int) -> int:
    if not 0 <= length <= file_bytes - start:
        raise IndexError(length)
    return start + length


def _decoded(file: Any, metadata: bytes, start: int, file_bytes: int) -> tuple[int, int]:
    """Return the type of a message, and the bytes that its buffers decode to; `start` is where its body begins."""
    message = _root(metadata)
    kind, header = message.number(1, "<B"), message.table(2)
    _read_end(start, message.number(3, "<q"), file_bytes)
    if kind == _DICTIONARY and header is not None:
        header = header.table(1)
    if kind not in (_DICTIONARY, _BATCH) or header is None:
        return kind, 0
    compressed = header.table(3) is not None
    size = 0
    for offset, length in header.structs(2, "<qq"):
        declared = 0
        if compressed and length >= 8:
            file.seek(start + max(0, offset))
            declared = _unpack("<q", file.read(8), 0)  # -1 if this one is not compressed
        size += max(length, declared)
    return kind, size
