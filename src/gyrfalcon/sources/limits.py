"""Limits on the memory that a file may ask for, in proportion to its own size, and what compressed bytes decode to.

A few bytes can declare a chunk, a column or a text of any length. What is decoded at once may take `FREE_BYTES`, and
`RATIO` further bytes for each byte of the file: real data compress less than that.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Sequence
from typing import IO, Any, NoReturn

from numpy.typing import NDArray

from .._utils.memory import format_bytes
from .stored import ContentsError

FREE_BYTES = 64 << 20  # bytes of memory that any file may ask for
RATIO = 32  # further bytes of memory for each byte of the file
_PIECE = 1 << 20  # bytes that are decoded at once to measure a stream
_DEFLATE_RATIO = 1032  # the most that a stream of zlib and gzip can be compressed
_MOST_LZMA = 1 << 27  # bytes of a dictionary of LZMA; the strongest preset takes half of them


def allowance(file_bytes: int) -> int:
    """Return the bytes that a file of this size may ask for at once."""
    return FREE_BYTES + RATIO * file_bytes


def require_in_proportion(path: str, file_bytes: int, needed: int, what: str, remedy: str) -> None:
    """Raise ContentsError if a file asks for memory out of proportion to its size."""
    if needed > allowance(file_bytes):
        raise ContentsError(
            f"{path}: {what} {format_bytes(needed)} of memory, out of proportion to the file of "
            f"{format_bytes(file_bytes)}, which may ask for {format_bytes(allowance(file_bytes))}: {remedy}"
        )


def text_labels(values: NDArray[Any], path: str, file_bytes: int) -> NDArray[Any]:
    """Convert labels that are objects or bytes to an array of text, where each takes as much as the longest."""
    if values.dtype.kind not in "SO":
        return values
    longest = max(map(len, values.ravel().tolist()), default=0)
    size = 4 * longest * values.size
    require_in_proportion(path, file_bytes, size, f"labels of up to {longest} characters take", "use shorter labels")
    return values.astype(str)


def raise_chunk_error(path: str, corner: Sequence[int], limit: int) -> NoReturn:
    """Raise ContentsError for a chunk, by its first place, that decodes to more than `limit` bytes."""
    place = ", ".join(map(str, corner))
    raise ContentsError(
        f"{path}: the chunk at ({place}) decodes to more than the {format_bytes(limit)} that it can hold: it is "
        "damaged, or made to fill memory"
    )


def decodes_to_more(codec: str, data: bytes, limit: int) -> bool:
    """Whether compressed bytes decode to more than `limit` bytes; no more than that is decoded to find out.

    False for bytes that the codec cannot decode, which its decoder refuses in turn, and for unknown codecs.
    """
    if codec in ("zlib", "gzip") and len(data) * _DEFLATE_RATIO <= limit:
        return False
    measure = _MEASURES.get(codec)
    try:
        return measure is not None and measure(data, limit)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        return False


def _stream(opener: Callable[[IO[bytes]], IO[bytes]]) -> Callable[[bytes, int], bool]:
    def is_longer(data: bytes, limit: int) -> bool:
        with opener(io.BytesIO(data)) as file:
            left = limit
            while left >= 0:
                count = len(file.read(_PIECE))
                if count == 0:
                    return False
                left -= count
        return True

    return is_longer


def _zlib(data: bytes, limit: int) -> bool:
    decoder = zlib.decompressobj()
    left, rest = limit, data
    while left >= 0 and not decoder.eof:
        count = len(decoder.decompress(rest, _PIECE))
        rest = decoder.unconsumed_tail
        if count == 0 and not rest:
            break
        left -= count
    return left < 0


def _lzma(data: bytes, limit: int) -> bool:
    decoder = lzma.LZMADecompressor(memlimit=_MOST_LZMA)
    left, rest = limit, data
    while left >= 0 and not decoder.eof:
        count = len(decoder.decompress(rest, _PIECE))
        rest = b""
        if count == 0 and decoder.needs_input:
            break
        left -= count
    return left < 0


def _zstd(data: bytes, limit: int) -> bool:
    """Read the size that the header of a frame declares, or decode a frame that does not say."""
    if data[:4] != b"\x28\xb5\x2f\xfd" or len(data) < 18:
        return False
    descriptor = data[4]
    single = bool(descriptor & 0x20)
    width = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    at = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    if width:
        return int.from_bytes(data[at : at + width], "little") + 256 * (width == 2) > limit
    from pyarrow import BufferReader, CompressedInputStream

    return _stream(lambda file: CompressedInputStream(BufferReader(file.read()), "zstd"))(data, limit)


def _lzf(data: bytes, limit: int) -> bool:
    """Add the lengths of literal runs and of copies; none is followed."""
    at = length = 0
    while at < len(data) and length <= limit:
        control = data[at]
        if control < 32:
            length += control + 1
            at += control + 2
        else:
            count = control >> 5
            if count == 7:
                count += data[at + 1] if at + 1 < len(data) else 0
                at += 1
            length += count + 2
            at += 2
    return length > limit


def _number(start: int, width: int) -> Callable[[bytes, int], bool]:
    """Return a function that compares the limit with the length that a header declares."""
    return lambda data, limit: int.from_bytes(data[start : start + width], "little") > limit


_MEASURES: dict[str, Callable[[bytes, int], bool]] = {
    "gzip": _stream(lambda file: gzip.GzipFile(fileobj=file)),  # type: ignore[arg-type, return-value]
    "bz2": _stream(lambda file: bz2.BZ2File(file)),
    "zlib": _zlib,
    "lzma": _lzma,
    "zstd": _zstd,
    "lzf": _lzf,
    "blosc": _number(4, 4),
    "lz4": _number(0, 4),
}
