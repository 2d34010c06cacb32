"""Arrays of zarr stores: their names and codecs, read as JSON and checked before zarr reads them.

The metadata of a store choose the code that decodes its chunks. One of zarr's codecs is pickle, which runs arbitrary
code. So arrays are opened one by one, after their metadata are known to describe numbers or text of fixed length, and
chunks are measured before they are decoded.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from .limits import decodes_to_more, raise_chunk_error
from .stored import ContentsError

_FILES = ("zarr.json", ".zarray")  # of formats 3 and 2; if both exist, both are checked
_CHECKSUM = 4  # bytes at the end of a shard, after the places of its chunks
_NOTHING = 2**64 - 1  # the place of a chunk that a shard does not have
_LONGEST = 1 << 25  # bytes of JSON: a group may hold a copy of all metadata below it

# These convert between bytes and numbers. Others make Python objects, or are unknown here.
_PACKERS = {"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}  # whose output can be measured before it is decoded
_RESIZERS = {"astype", "base64", "fixedscaleoffset", "packbits", "quantize"}  # whose values take up to 8 times as much
_CODECS = {
    *_PACKERS,
    *_RESIZERS,
    *("bitround", "delta", "shuffle"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("bytes", "sharding_indexed", "transpose"),
}
_TYPES = {
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "fixed_length_utf32", "null_terminated_bytes"),
}


def shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a store's arrays by name; a store that is itself an array is called X."""
    return {name: _shape(documents[0]) for name, _, documents in _arrays(path)}


class OpenedArray(NamedTuple):
    """An open zarr.Array, and what its metadata say about its chunks."""

    array: Any
    what: str  # the store and the name, for error messages
    folder: str
    codecs: list[str]

    def check_chunks(self, corners: Iterable[tuple[int, ...]] | None = None) -> None:
        """Raise ContentsError if a chunk at one of `corners`, by default any chunk, decodes to too many bytes."""
        packers = [codec for codec in self.codecs if codec in _PACKERS]
        if not packers:
            return
        if len(packers) > 1:
            raise ContentsError(f"{self.what} is compressed more than once: write it with one compression")
        chunks, shards = self.array.chunks, self.array.shards
        if corners is None:
            steps = (range(0, size, step) for size, step in zip(self.array.shape, chunks, strict=True))
            corners = product(*steps)
        limit = math.prod(chunks) * self.array.dtype.itemsize * (1 if _RESIZERS.isdisjoint(self.codecs) else 8)
        seen = set()
        for corner in corners:
            place = tuple(at // size for at, size in zip(corner, shards or chunks, strict=True))
            if place in seen:
                continue
            seen.add(place)
            for data in self._pieces(place):
                if decodes_to_more(packers[0], data, limit):
                    raise_chunk_error(self.what, corner, limit)

    def _pieces(self, place: tuple[int, ...]) -> Iterator[bytes]:
        """Iterate over what is compressed on its own in a chunk's file: all of it, or each part of a shard."""
        try:
            with open(os.path.join(self.folder, self.array.metadata.encode_chunk_key(place)), "rb") as file:
                data = file.read()
        except FileNotFoundError:  # a chunk of fill values
            return
        if self.array.shards is None:
            yield data
            return
        count = math.prod(-(-a // b) for a, b in zip(self.array.shards, self.array.chunks, strict=True))
        end = len(data) - _CHECKSUM
        for offset, length in struct.iter_unpack("<QQ", data[max(0, end - 16 * count) : end]):
            if offset != _NOTHING:
                yield data[offset : offset + length]


@contextmanager
def open_array(path: str, name: str) -> Iterator[OpenedArray]:
    """Open an array of a store if its metadata describe numbers or text of fixed length."""
    for found, folder, documents in _arrays(path):
        if found == name:
            what = f"{path}, {name!r}"
            for document in documents:
                _check(what, document)
            _check_links(folder)
            codecs = [codec for document in documents[:1] for codec in _codecs(document)]
            yield OpenedArray(_zarr().open_array(_store(folder), mode="r"), what, folder, codecs)
            return
    raise ContentsError(f"{path} has no array {name!r}")


def _arrays(path: str) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Iterate over the arrays: name, folder and metadata. Folders of chunks are not searched."""
    if not os.path.isdir(path):
        raise ContentsError(f"{path} is a file: a zarr store is a folder, and one in an archive has to be unpacked")
    for folder, folders, names in os.walk(path):
        documents = [_document(os.path.join(folder, name)) for name in _FILES if name in names]
        documents = [document for document in documents if document.get("node_type", "array") == "array"]
        if documents:
            folders.clear()
            yield "X" if folder == path else os.path.relpath(folder, path).replace(os.sep, "/"), folder, documents
        folders.sort()


def _document(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        text = file.read(_LONGEST + 1)
    document = json.loads(text) if len(text) <= _LONGEST else None
    if not isinstance(document, dict):
        raise ContentsError(f"{path} is not the metadata of a zarr array or group")
    return document


def _shape(document: dict[str, Any]) -> tuple[int, ...]:
    shape = document["shape"]
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"{shape!r} is not the shape of an array")
    return tuple(shape)


def _check(what: str, document: dict[str, Any]) -> None:
    stored = document.get("dtype", document.get("data_type"))
    if not _is_plain(stored):
        raise ContentsError(
            f"{what} holds {stored!r}, which is neither numbers nor text of fixed length, and is not read: its values "
            "could be anything. Write it as one of these"
        )
    for codec in _codecs(document):
        if codec not in _CODECS:
            raise ContentsError(
                f"{what} is coded with {codec!r}, and only codecs of numbers are run ({', '.join(sorted(_CODECS))}): "
                "others can make any object of what is in a file. Write it with one of these"
            )
    for shard in _shards(document):
        index = [codec.get("name") if isinstance(codec, dict) else codec for codec in shard.get("index_codecs", [])]
        if shard.get("index_location", "end") != "end" or index != ["bytes", "crc32c"] or [*_shards(shard)]:
            raise ContentsError(f"{what} has shards of another form than zarr's own, which are not read")


def _check_links(folder: str) -> None:
    """Raise ContentsError if there are links, which can lead to any file of the machine."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise ContentsError(f"{entry.path} is a link, and is not followed: copy what it leads to")
            if entry.is_dir():
                _check_links(entry.path)


def _is_plain(stored: Any) -> bool:
    if isinstance(stored, dict):
        stored = stored.get("name")
    if not isinstance(stored, str):  # a list is a record
        return False
    if stored in _TYPES:
        return True
    try:
        return np.dtype(stored).kind in "fiubUS"
    except (TypeError, ValueError, SyntaxError):
        return False


def _codecs(node: Any) -> Iterator[str]:
    """Iterate over the names of all codecs, also of those inside others, as for shards."""
    if not isinstance(node, dict):
        return
    for key in ("compressor", "filters", "codecs", "index_codecs"):
        listed = node.get(key)
        for codec in listed if isinstance(listed, list) else [] if listed is None else [listed]:
            name = codec.get("id", codec.get("name")) if isinstance(codec, dict) else codec
            yield str(name).removeprefix("numcodecs.")
            if isinstance(codec, dict):
                yield from _codecs(codec)
                yield from _codecs(codec.get("configuration"))


def _shards(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Iterate over the settings of shards."""
    for codec in node.get("codecs") or []:
        if isinstance(codec, dict) and codec.get("name") == "sharding_indexed":
            yield codec.get("configuration") or {}


def _store(folder: str) -> Any:
    """Make a store of a folder explicitly, because zarr takes some names of folders for archives or addresses."""
    from zarr.storage import LocalStore

    return LocalStore(folder, read_only=True)


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("zarr stores are read by zarr: pip install zarr numcodecs") from error
    return zarr
