"""Predictions that are kept in parts beside the file they belong to: a run that was killed is continued.

A part is a Parquet file of some blocks, which appears under its name when it is complete and on disk. When all parts
are there, the file is made of them, and they are removed. Parts begin at the same rows in every run, so that the file
has the same bits, wherever a run was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.atomic import check_replaceable, replacing, try_lock

Array = NDArray[Any]

PART_ROWS = 1 << 20  # least number of rows of a part

_IDENTITY, _LOCK = "identity.json", "lock"


class Parts:
    """The parts of predictions that are written to `path`; `identity` is everything they depend on, in words."""

    def __init__(self, path: str, identity: Mapping[str, str]) -> None:
        check_replaceable(path)
        self.path = path
        self.folder = folder_of(path)
        self.identity = dict(identity)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder of the parts; it is made if it does not exist, and is compared with `identity` if it does."""
        os.makedirs(self.folder, exist_ok=True)
        descriptor = os.open(os.path.join(self.folder, _LOCK), os.O_CREAT | os.O_RDWR)
        try:
            if try_lock(descriptor) is False:
                raise FileExistsError(f"another process is writing predictions to {self.path}: wait for it, or end it")
            self._check()
            yield
        finally:
            os.close(descriptor)

    def _check(self) -> None:
        name = os.path.join(self.folder, _IDENTITY)
        try:
            with open(name, encoding="utf-8") as file:
                was = json.load(file)
        except FileNotFoundError:
            with replacing(name) as partial, open(partial, "w", encoding="utf-8") as file:
                json.dump(self.identity, file)
            return
        except ValueError as error:
            raise ValueError(f"{name} is damaged: remove {self.folder}, and begin again") from error
        was = was if isinstance(was, dict) else {}
        for key, value in self.identity.items():
            if was.get(key) != value:
                raise ValueError(
                    f"{self.folder} has parts of other predictions for {self.path}: {key} was {was.get(key)}, and is "
                    f"{value} now. Give what it was, or remove the folder to begin again (--restart does this)"
                )

    def count(self) -> int:
        """Return how many parts there are, one after another from the first."""
        count = 0
        while os.path.isfile(self._name(count)):
            count += 1
        return count

    def _name(self, number: int) -> str:
        return os.path.join(self.folder, f"{number:06}.parquet")

    def add(self, number: int, names: Sequence[str], values: Array) -> None:
        """Write a part."""
        import pyarrow
        from pyarrow import parquet

        with replacing(self._name(number)) as partial:
            table = pyarrow.table(dict(zip(names, values.reshape(len(values), -1).T, strict=True)))
            parquet.write_table(table, partial, use_dictionary=False, write_page_checksum=True)

    def read(self, number: int) -> Array:
        """Read a part as an array with one column for each name."""
        from pyarrow import parquet

        name = self._name(number)
        try:
            with parquet.ParquetFile(name, page_checksum_verification=True) as file:
                columns = file.read().columns
            return np.column_stack([column.to_numpy() for column in columns])
        except (OSError, ValueError) as error:  # of the system, or of pyarrow
            raise ValueError(
                f"{name} cannot be read ({error}): remove it, and run once more to make it again"
            ) from error

    def remove(self) -> None:
        """Remove the folder, after the file is complete or to begin again."""
        remove_parts(self.path)


def folder_of(path: str) -> str:
    """Return the folder of the parts of a file."""
    folder, name = os.path.split(os.path.realpath(path))
    return os.path.join(folder, f".{name}.parts")


def remove_parts(path: str) -> None:
    """Remove the parts that an earlier run has left; nothing happens if there are none."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder_of(path))
