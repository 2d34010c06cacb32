"""Names of folders that are values of columns, such as year=2024: partitions, as Hive and Spark write them."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np

from .paths import PathLike
from .table_reader import arrow

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark write for a missing value
_WHOLE, _DECIMAL = re.compile(r"[+-]?\d{1,18}"), re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class FolderColumns:
    """Columns that names of folders tell.

    values : for each file, the texts of its columns; None is a missing value
    types : the type of each column, by the values of all files
    optional : columns of folders above the one that was opened, which are read if they are asked for
    """

    values: Sequence[Mapping[str, str | None]]
    types: Mapping[str, Any]
    optional: frozenset[str]

    def is_narrow(self, name: str) -> bool:
        """Whether float32 holds all values of a column of numbers."""
        texts = [values[name] for values in self.values if values.get(name) is not None]
        numbers = np.array(texts, dtype=np.float64)
        with np.errstate(over="ignore"):
            return bool((numbers.astype(np.float32) == numbers).all())


NO_FOLDERS = FolderColumns([], {}, frozenset())


def folder_columns(asked: PathLike | Sequence[PathLike], paths: Sequence[str]) -> FolderColumns:
    """Find the columns that the folders of files tell; `asked` is what was opened, which `paths` were found for."""
    values = [_values(os.path.dirname(path)) for path in paths]
    base = _base(asked, paths)
    below = {name for path in paths for name in _values(os.path.dirname(path)[len(base) :])}
    names = {name: None for found in values for name in found}  # in the order of the folders
    return FolderColumns(values, {name: _type(name, values) for name in names}, frozenset(names) - below)


def _values(folder: str) -> dict[str, str | None]:
    parts = (part.partition("=") for part in folder.replace(os.sep, "/").split("/") if part.find("=") > 0)
    return {unquote(name): None if text == _NO_VALUE else unquote(text) for name, _, text in parts}


def _base(asked: PathLike | Sequence[PathLike], paths: Sequence[str]) -> str:
    """Return the folder below which names are columns: the one that was opened, or that all files have in common."""
    common = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""
    if not isinstance(asked, str | os.PathLike):
        return common
    parts = os.path.expanduser(os.fspath(asked)).replace(os.sep, "/").rstrip("/").split("/")
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    opened = "/".join(parts[:fixed])
    for folder in (os.path.abspath(opened) if opened else os.getcwd(), opened.strip("/")):
        if all(path.startswith(folder + "/" * (folder != "")) for path in paths):
            return folder
    return common


def _type(name: str, values: Sequence[Mapping[str, str | None]]) -> Any:
    """Return the type of a column: whole numbers or numbers if all of its values are, else text."""
    texts = [text for found in values if (text := found.get(name)) is not None]
    if texts and all(_WHOLE.fullmatch(text) for text in texts):
        return arrow().int64()
    if texts and all(_WHOLE.fullmatch(text) or _DECIMAL.fullmatch(text) for text in texts):
        return arrow().float64()
    return arrow().string()
