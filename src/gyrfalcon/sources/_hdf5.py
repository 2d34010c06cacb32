"""Arrays of HDF5 files: their names, and checks before the HDF5 library reads one of them."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .limits import decodes_to_more, raise_chunk_error
from .stored import ContentsError

_TO_READ = (
    "other files than the one given are not read. If you know who wrote it, open it with h5py and give the dataset"
)
_HEAP = b"GCOL\x01\0\0\0"  # signature of a heap of strings, in version 1, the only one
_BLOCK = 1 << 23  # bytes of a file that are searched at once
_CODECS = {1: "zlib", 32_000: "lzf", 32_001: "blosc", 32_015: "zstd"}  # by the number of the filter
_SHUFFLE, _FLETCHER, _SIZED = 2, 3, (5, 6)  # filters that keep the size; that declare the number and size of values
_REFERENCE = 16  # bytes that a chunk has for a text, which is stored in a heap


def shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's arrays by name; links to other files are left out."""
    found: dict[str, tuple[int, ...]] = {}
    h5py = _h5py()
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item.shape}) if isinstance(item, h5py.Dataset) else None)
    return found


class OpenedArray(NamedTuple):
    """An open array: an h5py.Dataset, and the path of its file."""

    array: Any
    path: str

    def check_chunks(self, corners: Iterable[tuple[int, ...]] | None = None) -> None:
        """Raise ContentsError if a chunk at one of `corners`, by default any chunk, decodes to too many bytes."""
        array, path = self.array, self.path
        if array.chunks is None:
            return
        if corners is None:
            corners = product(*(range(0, size, step) for size, step in zip(array.shape, array.chunks, strict=True)))
        plist = array.id.get_create_plist()
        filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        packers = [number for number, *_ in filters if number not in (_SHUFFLE, _FLETCHER)]
        if not packers:
            return
        limit = math.prod(array.chunks) * (_REFERENCE if array.dtype.kind == "O" else array.dtype.itemsize)
        if len(packers) > 1:
            raise ContentsError(
                f"{path} has chunks that are compressed more than once: write them with one compression"
            )
        if any(number in _SIZED and values[2] * values[4] > limit for number, _, values, _ in filters):
            raise ContentsError(f"{path} is damaged: its filter decodes more values than a chunk holds")
        codec = _CODECS.get(packers[0], "")
        for corner in corners:
            if array.id.get_chunk_info_by_coord(corner).size and decodes_to_more(
                codec, array.id.read_direct_chunk(corner)[1], limit
            ):
                raise_chunk_error(path, corner, limit)


@contextmanager
def open_array(path: str, name: str) -> Iterator[OpenedArray]:
    """Open an array if its values are in this file: an HDF5 file can refer to any file that the process may read."""
    h5py = _h5py()
    with h5py.File(path, "r") as file:
        array = file
        for step in name.split("/"):
            link = array.get(step, getlink=True) if isinstance(array, h5py.Group) else None
            if link is None:
                raise ContentsError(f"{path} has no array {name!r}")
            if not isinstance(link, h5py.HardLink):
                raise ContentsError(f"{path}, {name!r} is a link: {_TO_READ}")
            array = array[step]
        if not isinstance(array, h5py.Dataset):
            raise ContentsError(f"{path}, {name!r} is a group and not an array")
        if array.external:
            raise ContentsError(f"{path}, {name!r} has its values in {array.external[0][0]!r}: {_TO_READ}")
        if array.is_virtual:
            raise ContentsError(f"{path}, {name!r} is a virtual dataset, made of parts of others: {_TO_READ}")
        yield OpenedArray(array, path)


def read_text(path: str, array: Any) -> NDArray[Any]:
    """Read an array of strings of any length; equal strings share one object, as they may in the file."""
    step = max(1, _BLOCK // max(1, check_heaps(path)))  # rows, each may have the longest text
    texts = array.asstr()
    known: dict[str, str] = {}
    out = np.empty(array.shape, dtype=object)
    for start in range(0, array.shape[0], step):
        part = texts[start : start + step]
        out[start : start + step] = np.array(
            [known.setdefault(text, text) for text in part.ravel().tolist()], dtype=object
        ).reshape(part.shape)
    return out


def check_heaps(path: str) -> int:
    """Return the length of the longest text, and check heaps of strings.

    Raises ContentsError if one has free space of no length, on which the HDF5 library loops forever.
    """
    longest = 0
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        for start in range(0, size, _BLOCK):
            file.seek(start)
            block = file.read(_BLOCK + len(_HEAP) - 1)
            at = block.find(_HEAP)
            while at >= 0:
                longest = max(longest, _check_heap(path, file, start + at))
                at = block.find(_HEAP, at + 1)
    return longest


def _check_heap(path: str, file: IO[bytes], at: int) -> int:
    """Check the objects of a heap: each has a number, 0 for free space, and a length. Return the greatest length."""
    file.seek(at + len(_HEAP))
    (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
    file.seek(at)
    heap = file.read(min(length, 1 << 26))
    position, longest = 16, 0
    while position + 16 <= len(heap):
        number, size = struct.unpack_from("<H6xQ", heap, position)
        if number == 0 and size == 0:
            raise ContentsError(f"{path} is damaged: its text has free space without end, at byte {at + position}")
        if number:
            longest = max(longest, size)
        position += size if number == 0 else 16 + -(-size // 8) * 8
    return longest


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files are read by h5py: pip install h5py") from error
    return h5py
