"""Arrays of HDF5 files: their names, and checks before the HDF5 library reads one of them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from .stored import ContentsError

_TO_READ = (
    "other files than the one given are not read. If you know who wrote it, open it with h5py and give the dataset"
)
_HEAP = b"GCOL\x01\0\0\0"  # signature of a heap of strings, in version 1, the only one
_BLOCK = 1 << 23


def shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's arrays by name; links to other files are left out."""
    found: dict[str, tuple[int, ...]] = {}
    h5py = _h5py()
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item.shape}) if isinstance(item, h5py.Dataset) else None)
    return found


@contextmanager
def open_array(path: str, name: str) -> Iterator[Any]:
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
        yield array


def check_heaps(path: str) -> None:
    """Raise ContentsError if a heap of strings has free space of no length, on which the HDF5 library loops forever."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        for start in range(0, size, _BLOCK):
            file.seek(start)
            block = file.read(_BLOCK + len(_HEAP) - 1)
            at = block.find(_HEAP)
            while at >= 0:
                _check_heap(path, file, start + at)
                at = block.find(_HEAP, at + 1)


def _check_heap(path: str, file: IO[bytes], at: int) -> None:
    """Check the objects of a heap: each has a number, 0 for free space, and a length."""
    file.seek(at + len(_HEAP))
    (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
    file.seek(at)
    heap = file.read(min(length, 1 << 26))
    position = 16
    while position + 16 <= len(heap):
        number, size = struct.unpack_from("<H6xQ", heap, position)
        if number == 0 and size == 0:
            raise ContentsError(f"{path} is damaged: its text has free space without end, at byte {at + position}")
        position += size if number == 0 else 16 + -(-size // 8) * 8


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError('HDF5 files are read by h5py: pip install "gyrfalcon[files]"') from error
    return h5py
