"""The files of a path, a folder, a pattern or a list, and their common format."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Sequence
from functools import partial
from numbers import Number
from typing import Any

PathLike = str | os.PathLike[str]

SUFFIXES = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".csv": "CSV",
    ".csv.gz": "CSV",
    ".csv.zst": "CSV",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".zarr": "zarr",
    ".npy": "npy",
}
_STORE_MARKS = ("zarr.json", ".zarray", ".zgroup")


def find(path: PathLike | Sequence[PathLike], filesystem: Any = None) -> tuple[list[str], str]:
    """Find the files of a path, a folder, a pattern or a list, and their common format.

    They are on this machine, or on a filesystem of pyarrow.
    """
    expand = _expand if filesystem is None else partial(_expand_on, filesystem)
    if isinstance(path, str | os.PathLike):
        paths = expand(os.fspath(path))
    elif isinstance(path, Sequence) and all(isinstance(item, str | os.PathLike) for item in path):
        paths = [found for item in path for found in expand(os.fspath(item))]
    else:
        raise TypeError(
            f"path={_kind(path)} must be a path or a list of paths, a polars.LazyFrame or a pyarrow.dataset.Dataset; a "
            "table or an array in memory needs no opening: give it to the estimator, as in model.fit(table, y)"
        )
    if not paths:
        raise ValueError("path=[] names no file")
    formats = [_format(name, filesystem is None) for name in paths]
    for name, format in zip(paths, formats, strict=True):
        if format != formats[0]:
            raise ValueError(
                f"{paths[0]} is {formats[0]} and {name} is {format}: give files of one kind, such as by a pattern"
            )
        if filesystem is None and os.path.isfile(name) and os.path.getsize(name) == 0:
            raise ValueError(f"{name} is empty: it has 0 bytes")
    return paths, formats[0]


def _kind(path: Any) -> str:
    """Describe an object that is not a path: a number by its value, all else by its type, as it may be a long table."""
    if isinstance(path, Number) or path is None:
        return repr(path)
    if isinstance(path, list | tuple):
        return f"[{_kind(next(item for item in path if not isinstance(item, str | os.PathLike)))}, ...]"
    library = type(path).__module__.partition(".")[0]
    return f"<{type(path).__name__}>" if library == "builtins" else f"<{library}.{type(path).__name__}>"


def _expand(path: str) -> list[str]:
    if not isinstance(path, str):
        raise TypeError(f"path={path!r} must be text, not bytes")
    if "://" in path:
        raise ValueError(
            f"{path} is not on this machine: give the filesystem, such as filesystem=pyarrow.fs.S3FileSystem() and "
            f"path={path.partition('://')[2]!r}, or copy it to a disk"
        )
    path = os.path.expanduser(path)
    if _is_store(path) or os.path.isfile(path):
        return [os.path.abspath(path)]
    if os.path.isdir(path):
        return _in_folder(os.path.abspath(path))
    if os.path.exists(path):
        raise ValueError(f"{path} is neither a file nor a folder")
    if glob.has_magic(path):
        found = sorted(os.path.abspath(name) for name in glob.glob(path, recursive=True))
        found = [name for name in found if os.path.isfile(name) or _is_store(name)]
        if not found:
            raise FileNotFoundError(f"no file matches {path!r}")
        return found
    if os.path.lexists(path):
        raise FileNotFoundError(f"{path} is a link to a file that does not exist")
    parent = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(parent) and not os.access(parent, os.X_OK):
        raise PermissionError(f"{path} cannot be read: no permission")
    raise FileNotFoundError(f"{path} does not exist")


def _in_folder(path: str) -> list[str]:
    """List all files of known formats in a folder and its subfolders, sorted by name."""

    def fail(error: OSError) -> None:
        raise PermissionError(f"{error.filename} cannot be read: {error.strerror}") from error

    found: list[str] = []
    others: list[str] = []
    for folder, folders, names in os.walk(path, onerror=fail):
        stores = [name for name in folders if _is_store(os.path.join(folder, name))]
        folders[:] = [name for name in folders if not name.startswith((".", "_")) and name not in stores]
        for name in [*names, *stores]:
            if not name.startswith((".", "_")):
                known = _suffix(name) is not None or name in stores
                (found if known else others).append(os.path.join(folder, name))
    return _known_files(path, found, others)


def _known_files(path: str, found: list[str], others: list[str]) -> list[str]:
    """Return the files of a folder that can be read, sorted; raise ValueError if there are only others."""
    if not found:
        holds = f"it holds {os.path.basename(min(others))!r}" if others else "it is empty"
        raise ValueError(f"the folder {path} has no file to read ({holds}): {_KNOWN}")
    return sorted(found)


def _expand_on(filesystem: Any, path: str) -> list[str]:
    """Find the files of a path, a folder or a pattern on a filesystem of pyarrow."""
    from pyarrow import fs

    if not isinstance(path, str):
        raise TypeError(f"path={path!r} must be text, not bytes")
    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.File:
        return [_not_empty(info)]
    if info.type == fs.FileType.Directory:
        files = [(name, _suffix(name) is not None) for name in _files_below(filesystem, path)]
        return _known_files(
            path, [name for name, known in files if known], [name for name, known in files if not known]
        )
    if not glob.has_magic(path):
        raise FileNotFoundError(f"{path} does not exist on {filesystem.type_name}")
    parts = path.split("/")
    fixed = "/".join(parts[: next(at for at, part in enumerate(parts) if glob.has_magic(part))])
    found = sorted(name for name in _files_below(filesystem, fixed) if _matches(name.split("/"), parts))
    if not found:
        raise FileNotFoundError(f"no file matches {path!r} on {filesystem.type_name}")
    return found


def _files_below(filesystem: Any, folder: str) -> list[str]:
    """List the files below a folder; names that begin with a dot or an underscore are ignored."""
    from pyarrow import fs

    found = filesystem.get_file_info(fs.FileSelector(folder, recursive=True))
    files = (info for info in found if info.type == fs.FileType.File)
    below = folder.strip("/").count("/") + 1 if folder.strip("/") else 0
    hidden = (".", "_")
    return [
        _not_empty(info)
        for info in files
        if not any(part.startswith(hidden) for part in info.path.strip("/").split("/")[below:])
    ]


def _not_empty(info: Any) -> str:
    if info.size == 0 and _suffix(info.path) is not None:
        raise ValueError(f"{info.path} is empty: it has 0 bytes")
    return str(info.path)


def _matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a pattern, in which ``**`` stands for any number of folders."""
    if not pattern or not name:
        return not pattern and not name
    if pattern[0] == "**":
        return _matches(name, pattern[1:]) or _matches(name[1:], pattern)
    return fnmatch.fnmatchcase(name[0], pattern[0]) and _matches(name[1:], pattern[1:])


def _is_store(path: str) -> bool:
    return os.path.isdir(path) and (
        path.rstrip("/").endswith(".zarr") or any(os.path.exists(os.path.join(path, mark)) for mark in _STORE_MARKS)
    )


_KNOWN = f"files that can be read end in {', '.join(SUFFIXES)}"


def _suffix(path: str) -> str | None:
    return next((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), None)


def _format(path: str, local: bool) -> str:
    if local and _is_store(path):
        return "zarr"
    suffix = _suffix(path)
    if suffix is not None:
        return SUFFIXES[suffix]
    if path.lower().endswith(".npz"):
        raise ValueError(
            f"{path} is an archive, which cannot be read row by row: save its arrays with numpy.save as .npy files, or "
            "load it and pass the arrays"
        )
    raise ValueError(f"{path} is not of a known format: {_KNOWN}")
