"""Sums over the rows of passes since the last state of the solver, so that a killed fit goes on within a pass."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._utils.atomic import remove_leftovers
from ..models import Format, read_file, write_file
from ..values import ModelFileError
from .parameter import CheckpointError

Array = NDArray[Any]

_FORMAT = Format("gyrfalcon-sums", 1, "sums")
_FILE = "sums.safetensors"
_SHARE = 0.02  # largest share of the time that writing may take
_MOST = 64  # sums of whole passes that are kept at most: a state of the solver is written before there are more


class Pace:
    """When a file is written again: after some seconds, and so that writing takes a small share of the time."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._written, self._took = time.perf_counter(), 0.0

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.perf_counter() - self._written >= max(self._every, self._took / _SHARE)

    def wrote(self, began: float) -> None:
        """Note that the file was written since `began`."""
        self._written = time.perf_counter()
        self._took = self._written - began


class KeptSums:
    """Sums in a file beside the checkpoint of the fit with this identity; see `gyrfalcon.operators.interrupted.Sums`.

    A file of another fit is ignored. Between two states of the solver all sums are kept, since a resumed fit makes the
    same products in the same order.
    """

    def __init__(self, folder: str, identity: Mapping[str, str], every: float) -> None:
        self._path = os.path.join(folder, _FILE)
        self._identity = dict(identity)
        self._pace = Pace(every)
        self._sums: dict[str, tuple[int, Array]] = {}
        remove_leftovers(self._path)
        if os.path.lexists(self._path):
            self._sums = self._read()

    def found(self, name: str) -> tuple[int, Array] | None:
        """Return how many rows were added and their sum, or None."""
        known = self._sums.get(name)
        return None if known is None else (known[0], known[1].copy())

    def add(self, name: str, rows: int, total: Array, *, is_last: bool) -> None:
        """Note the sum of the first `rows` rows, and write it if it is time."""
        if is_last or self._pace.due:
            if len(self._sums) >= _MOST and name not in self._sums:
                self._sums.clear()
            self._sums[name] = rows, total.copy()
        if self._pace.due:
            self._write()

    def clear(self) -> None:
        """Forget all sums: a state of the solver was written that comes after them."""
        self._sums.clear()
        with suppress(FileNotFoundError):
            os.remove(self._path)

    def _write(self) -> None:
        began = time.perf_counter()
        rows = {name: rows for name, (rows, _) in self._sums.items()}
        text = json.dumps({"identity": self._identity, "rows": rows}, separators=(",", ":"))
        write_file(self._path, _FORMAT, text, {name: total for name, (_, total) in self._sums.items()})
        self._pace.wrote(began)

    def _read(self) -> dict[str, tuple[int, Array]]:
        try:
            node, tensors = read_file(self._path, _FORMAT)
        except ModelFileError as error:
            raise CheckpointError(
                f"cannot resume from {self._path!r}: {error}. Delete this file: the pass over the rows in which the "
                "fit was interrupted is then made from its start"
            ) from error
        rows = node.get("rows") if isinstance(node, dict) and node.get("identity") == self._identity else None
        if not isinstance(rows, dict) or rows.keys() != tensors.keys():
            return {}
        return {
            name: (count, tensors[name].copy())
            for name, count in rows.items()
            if type(count) is int and count > 0 and tensors[name].dtype == np.float64
        }
