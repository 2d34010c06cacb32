"""Where the files of tables are, and how they are opened: on this machine, or on a filesystem of pyarrow or fsspec."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .stored import FileState
from .table_reader import TableReader, arrow

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}  # names of pyarrow
_LOCAL_BUFFER, _REMOTE_BUFFER = 1 << 16, 1 << 20  # bytes that are read at once: each request of a store takes long


@dataclass(frozen=True)
class Location:
    """A file on this machine."""

    path: str

    read_buffer = _LOCAL_BUFFER

    @property
    def compression(self) -> str | None:
        """The name of the compression of the whole file, by its suffix; None if there is none."""
        return next((name for suffix, name in _COMPRESSIONS.items() if self.path.lower().endswith(suffix)), None)

    def state(self) -> FileState:
        """Look at the size and the time of the file."""
        return FileState.of(self.path)

    def file(self) -> Any:
        """Open the file for reading at any place; it is not memory-mapped, since a file may be cut short meanwhile."""
        return self._filesystem().open_input_file(self.path)

    def stream(self) -> Any:
        """Open the file for reading from its beginning to its end, decompressed."""
        return self._filesystem().open_input_stream(self.path, compression=self.compression)

    def binary(self) -> io.BufferedReader:
        """Open the same stream as a file of Python, which has lines."""
        return io.BufferedReader(self.stream())

    def text(self, encoding: str) -> io.TextIOWrapper:
        """Open the decompressed file as text, in which characters that cannot be decoded are replaced."""
        return io.TextIOWrapper(self.binary(), encoding=encoding, errors="replace", newline="")

    def _filesystem(self) -> Any:
        from pyarrow import fs

        return fs.LocalFileSystem()


@dataclass(frozen=True)
class RemoteLocation(Location):
    """A file on a filesystem of pyarrow."""

    filesystem: Any

    read_buffer = _REMOTE_BUFFER

    def state(self) -> FileState:
        from pyarrow import fs

        info = self.filesystem.get_file_info(self.path)
        if info.type != fs.FileType.File:
            raise FileNotFoundError(f"{self.path} does not exist")
        return FileState(info.size, info.mtime_ns or 0, 0)  # stores have no inodes, and some tell no times

    def _filesystem(self) -> Any:
        return self.filesystem


class LocatedReader(TableReader):
    """Reader of a table in a file that is at a location."""

    location: Location

    def state_now(self) -> FileState:
        return self.location.state()


def locations(paths: Sequence[str], filesystem: Any = None) -> list[Location]:
    """Return where files are: on this machine, or on a filesystem that `as_filesystem` has returned."""
    if filesystem is None:
        return [Location(path) for path in paths]
    return [RemoteLocation(path, filesystem) for path in paths]


def as_filesystem(filesystem: Any) -> Any:
    """Return a filesystem of pyarrow or fsspec as one of pyarrow."""
    arrow()
    from pyarrow import fs

    if isinstance(filesystem, fs.FileSystem):
        return filesystem
    kinds = [(kind.__module__.split(".")[0], kind.__name__) for kind in type(filesystem).__mro__]
    if ("fsspec", "AbstractFileSystem") in kinds:  # without importing fsspec
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem))
    raise TypeError(
        f"filesystem={type(filesystem).__name__} must be a pyarrow.fs.FileSystem, such as pyarrow.fs.S3FileSystem(), "
        "or a filesystem of fsspec, such as fsspec.filesystem('s3')"
    )
