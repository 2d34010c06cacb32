"""The files of a path, a folder, a pattern or a list, and their common format."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from numbers import Number
from typing import Any

PathLike = str | os.PathLike[str]

SUFFIXES = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".csv": "CSV",
    ".csv.gz": "CSV",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".zarr": "zarr",
    ".npy": "npy",
}
_STORE_MARKS = ("zarr.json", ".zarray", ".zgroup")


def find(path: PathLike | Sequence[PathLike]) -> tuple[list[str], str]:
    """Find the files of a path, a folder, a pattern or a list, and their common format."""
    if isinstance(path, str | os.PathLike):
        paths = _expand(os.fspath(path))
    elif isinstance(path, Sequence) and all(isinstance(item, str | os.PathLike) for item in path):
        paths = [found for item in path for found in _expand(os.fspath(item))]
    else:
        raise TypeError(
            f"path={_kind(path)} must be a path or a list of paths, a polars.LazyFrame or a pyarrow.dataset.Dataset; a "
            "table or an array in memory needs no opening: give it to the estimator, as in model.fit(table, y)"
        )
    if not paths:
        raise ValueError("path=[] names no file")
    formats = [_format(name) for name in paths]
    for name, format in zip(paths, formats, strict=True):
        if format != formats[0]:
            raise ValueError(
                f"{paths[0]} is {formats[0]} and {name} is {format}: give files of one kind, such as by a pattern"
            )
        if os.path.isfile(name) and os.path.getsize(name) == 0:
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
        raise ValueError(f"{path} is not on this machine: copy it to a disk, or read it with Dask")
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
    if not found:
        holds = f"it holds {os.path.basename(min(others))!r}" if others else "it is empty"
        raise ValueError(f"the folder {path} has no file to read ({holds}): {_KNOWN}")
    return sorted(found)


def _is_store(path: str) -> bool:
    return os.path.isdir(path) and (
        path.rstrip("/").endswith(".zarr") or any(os.path.exists(os.path.join(path, mark)) for mark in _STORE_MARKS)
    )


_KNOWN = f"files that can be read end in {', '.join(SUFFIXES)}"


def _suffix(path: str) -> str | None:
    return next((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), None)


def _format(path: str) -> str:
    if _is_store(path):
        return "zarr"
    suffix = _suffix(path)
    if suffix is not None:
        return SUFFIXES[suffix]
    if path.lower().endswith(".npz"):
        raise ValueError(
            f"{path} is an archive, which cannot be read row by row: save its arrays with numpy.save as .npy files, or "
            "load it and pass the arrays"
        )
    raise ValueError(f"{path} is of no known kind: {_KNOWN}")
