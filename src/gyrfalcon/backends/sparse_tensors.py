"""Sparse rows on PyTorch's devices: as CSR for kernels that need inner products alone, and otherwise as dense tensors.

Only the columns that the centers have are kept. What a row has elsewhere matters by its norm alone.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.devices import import_torch
from .._utils.precision import matmul_precision
from .._utils.sparse import canonical
from ..kernels import Kernel
from .base import check_indices

__all__ = ["CsrRows", "SparseColumns", "silence_warnings"]

Array = NDArray[Any]
Tensor = Any


class CsrRows:
    """A block of sparse rows on a device, in the columns that the centers have.

    Parameters
    ----------
    starts, columns, values : tensors
        The CSR arrays.
    beyond : tensor of shape (b,)
        Squared norms of what the rows have in all other columns.
    width : int
        Number of columns.
    """

    def __init__(self, starts: Tensor, columns: Tensor, values: Tensor, beyond: Tensor, width: int) -> None:
        self._starts, self._columns, self._values, self._beyond = starts, columns, values, beyond
        self.shape = (len(beyond), width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> CsrRows:
        starts = self._starts[part.start : part.stop + 1]
        first, last = int(starts[0]), int(starts[-1])
        inside = slice(first, last)
        return CsrRows(starts - first, self._columns[inside], self._values[inside], self._beyond[part], self.shape[1])

    def isfinite(self) -> Tensor:
        """Return whether each stored number is finite, and each norm of numbers that are not stored."""
        return import_torch().cat([self._values.isfinite(), self._beyond.isfinite()])

    def new_full(self, shape: tuple[int, ...], value: float) -> Tensor:
        """Return a dense tensor on the same device."""
        return self._values.new_full(shape, value)

    def product(self, Z: Tensor) -> Tensor:
        """Compute X Z for a dense Z of shape (width, M)."""
        return self._times(self._values, Z)

    def squares(self, squared_scale: Tensor, beyond_scale: float) -> Tensor:
        """Return the squared norms of the rows with scaled columns, of shape (b, 1)."""
        return self._times(self._values.square(), squared_scale[:, None]) + beyond_scale * self._beyond[:, None]

    def _times(self, values: Tensor, Z: Tensor) -> Tensor:
        torch = import_torch()
        X = torch.sparse_csr_tensor(self._starts, self._columns, values, size=self.shape, device=values.device)
        with matmul_precision():
            return X @ Z


def silence_warnings() -> None:
    """Let PyTorch give the warnings that it gives once, for the first CSR tensor of a process, to nobody."""
    torch = import_torch()
    nothing = (torch.zeros(1, dtype=torch.int64, device="cpu"), *2 * [torch.zeros(0, dtype=torch.int64, device="cpu")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.sparse_csr_tensor(*nothing, size=(0, 1), device="cpu")


class SparseColumns:
    """The columns of sparse rows that are copied to a device.

    They are the columns of CSR centers, or all columns, and as dense tensors have two more: the euclidean norm and the
    1-norm of a row's values elsewhere.

    Parameters
    ----------
    centers : CSR matrix
    all_columns : bool
        Whether all columns are kept.

    Attributes
    ----------
    stays_csr : bool
        Whether rows are used as `CsrRows`; otherwise they are made dense on the device.
    """

    def __init__(self, centers: Any, *, all_columns: bool) -> None:
        self.n_features = d = centers.shape[1]
        self.columns = np.arange(d) if all_columns else np.unique(centers.indices)
        self.width, self.stays_csr = len(self.columns) + 2, False
        self._seen = np.zeros(d, dtype=bool)
        self._seen[self.columns] = True

    def scaling(self, kernel: Kernel) -> Array:
        """Return the factor of each dense column for a kernel: of the norms only the one that it is a function of."""
        scale = kernel.scaling(self.n_features)
        beyond = np.array([0.0, scale[0]] if kernel.geometry == "manhattan" else [scale[0], 0.0])
        return np.concatenate([scale[self.columns], beyond])

    def csr(self, rows: Any) -> tuple[Array, Array, Array, Array]:
        """Return the arrays of CSR rows in these columns, and the squared norms of what they have elsewhere."""
        check_indices(rows)
        rows = canonical(rows)
        b = rows.shape[0]
        seen = self._seen[rows.indices]
        beyond = np.zeros(b, dtype=rows.dtype)
        starts, columns, values = rows.indptr, rows.indices, rows.data
        if not seen.all():
            of = np.repeat(np.arange(b), np.diff(rows.indptr))
            others = np.square(values[~seen], dtype=np.float64)
            beyond = np.bincount(of[~seen], weights=others, minlength=b).astype(rows.dtype)
            starts = np.concatenate([[0], np.cumsum(np.bincount(of[seen], minlength=b))])
            columns, values = columns[seen], values[seen]
        return starts.astype(np.int64), np.searchsorted(self.columns, columns), values, beyond

    def positions(self, rows: Any) -> tuple[Array, Array]:
        """Return distinct positions in a flattened array of shape (b, width), and the values of CSR rows there."""
        check_indices(rows)
        rows = canonical(rows)
        b = rows.shape[0]
        of = np.repeat(np.arange(b), np.diff(rows.indptr))
        seen = self._seen[rows.indices]
        at = of[seen] * self.width + np.searchsorted(self.columns, rows.indices[seen])
        values = rows.data[seen]
        if seen.all():
            return at, values
        others, of = rows.data[~seen].astype(np.float64), of[~seen]
        squares = np.sqrt(np.bincount(of, weights=np.square(others), minlength=b))
        sizes = np.bincount(of, weights=np.abs(others), minlength=b)
        ends = np.arange(b) * self.width + self.width
        norms = np.concatenate([squares, sizes]).astype(rows.dtype)
        return np.concatenate([at, ends - 2, ends - 1]), np.concatenate([values, norms])

    def dense(self, rows: Any) -> Array:
        """Return CSR rows as an array of shape (b, width)."""
        at, values = self.positions(rows)
        out = np.zeros((rows.shape[0], self.width), dtype=rows.dtype)
        out.reshape(-1)[at] = values
        return out
