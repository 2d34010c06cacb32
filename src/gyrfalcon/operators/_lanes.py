"""The state of one device during a pass: prepared centers, buffers for rows, and partial sums.

     host                                            device
     rows --> two buffers, pinned --- copy stream --> X --> K = k(X, centers) --> T = K V
     a weight's arrays  ------------------------------------------------> U = W T, where it is arithmetic
     out, or a weight that is not  <------------------------------------------------ T
     U  ------------------------------------------------------------------------> K' U, added in float64

Only `Fetched.array`, `Lane.total` and blocks of rows that need a buffer in use wait for a device, so that one block is
copied while another is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._utils.copies import as_tensor, copies_to, upload
from .._utils.devices import has_float64, import_torch
from .._utils.precision import matmul_precision
from ..backends.sparse_tensors import CsrRows, SparseColumns
from ..backends.torch_tiles import MakeTile
from ..backends.triton_tiles import MOST_COLUMNS, MakeFusedTile

Array = NDArray[Any]
Tensor = Any

# Rows of K whose products are summed in the tile's precision: in float32 a sum over 30,000 rows would lose two digits
SUMMED_ROWS = 256


class Sums:
    """Sums in float64 on the device."""

    def __init__(self, shape: tuple[int, int], device: Any) -> None:
        torch = import_torch()
        self._total = torch.zeros(shape, dtype=torch.float64, device=device)

    def add(self, parts: Tensor) -> None:
        """Add tensors that are stacked along the first axis."""
        self._total += parts.sum(dim=0, dtype=self._total.dtype)

    def array(self) -> Array:
        """Return the sum."""
        return np.asarray(self._total.cpu().numpy())


class CompensatedSums:
    """Sums in float32 and what they have lost to rounding, for devices without float64 (Knuth's two-sum)."""

    def __init__(self, shape: tuple[int, int], device: Any) -> None:
        torch = import_torch()
        self._total = torch.zeros(shape, dtype=torch.float32, device=device)
        self._lost = torch.zeros_like(self._total)

    def add(self, parts: Tensor) -> None:
        """Add tensors that are stacked along the first axis."""
        total, lost = self._total, self._lost
        for part in parts:
            grown = total + part
            of_part = grown - total
            lost = lost + ((total - (grown - of_part)) + (part - of_part))
            total = grown
        self._total, self._lost = total, lost  # all or nothing: where memory runs out, the parts are added again

    def array(self) -> Array:
        """Return the sum in float64."""
        total, lost = (np.asarray(one.cpu().numpy(), dtype=np.float64) for one in (self._total, self._lost))
        return total + lost


def chunked_products(K: Tensor, U: Tensor) -> Tensor:
    """Compute K' U over chunks of rows, as a tensor of shape (chunks, M, k)."""
    torch = import_torch()
    (b, M), k, size = K.shape, U.shape[1], SUMMED_ROWS
    if K.dtype == torch.float64 or b <= size:
        return (K.T @ U)[None]
    if K.device.type == "cpu":  # one thread has a product of its own in cache, and batches of narrow ones are slow
        return torch.stack([K[i : i + size].T @ U[i : i + size] for i in range(0, b, size)])
    whole = b // size * size
    parts = torch.bmm(K[:whole].view(-1, size, M).transpose(1, 2), U[:whole].reshape(-1, size, k))
    return parts if whole == b else torch.cat([parts, (K[whole:].T @ U[whole:])[None]])


def chunked_image(K: Tensor, V: Tensor) -> Tensor:
    """Compute K V over chunks of columns of K, which are summed in float64 where the device has it."""
    torch = import_torch()
    (b, M), k, size = K.shape, V.shape[1], SUMMED_ROWS
    if K.dtype == torch.float64 or size >= M:
        return K @ V
    wide = torch.float64 if has_float64(K.device) else K.dtype
    total = K.new_zeros((b, k), dtype=wide)
    # on a CPU batches of narrow products are slow; elsewhere their results may take a quarter of the memory of K
    step = size if K.device.type == "cpu" else size * max(1, M // (4 * k))
    for start in range(0, M, step):
        left, right = K[:, start : start + step], V[start : start + step]
        whole = left.shape[1] // size * size
        if whole > size:
            parts = torch.bmm(left[:, :whole].unflatten(1, (-1, size)).transpose(0, 1), right[:whole].view(-1, size, k))
            total += parts.sum(dim=0, dtype=wide)
            left, right = left[:, whole:], right[whole:]
        total += left @ right
    return total.to(K.dtype)


class Lane:
    """A device's part in the passes of one operator.

    `tile` makes a tile of rows on the device, and `columns` says how sparse rows are copied there. `fused`, if given,
    makes tiles that provide products only, and is used in passes with few columns.
    """

    def __init__(
        self, device: Any, tile: MakeTile, columns: SparseColumns | None, fused: MakeFusedTile | None = None
    ) -> None:
        self.device, self._columns = device, columns
        self._rows = copies_to(device)
        self.waiting: Any = None  # a block whose product is on its way to the host
        self.V: Tensor = None
        self._sums: Any = None
        self._finite: Tensor = None
        self._whole, self._fused, self._fuses = tile, fused, False
        self.tile: MakeTile | MakeFusedTile = tile

    def fuses(self, columns: int) -> bool:
        """Whether products with a number of columns are made without entries of K in memory; 0 is for whole tiles."""
        return self._fused is not None and 0 < columns <= MOST_COLUMNS

    def begin(
        self, V: Array | None = None, shape: tuple[int, int] | None = None, sums: Callable[[Any], Any] | None = None
    ) -> None:
        """Begin a pass: upload what K is multiplied with, and start a sum of the given shape, or one of another kind.

        Parameters
        ----------
        V : array of shape (M, k), optional
        shape : tuple of int, optional
            That of K' U.
        sums : callable, optional
            Makes the sums on a device; they get whole tiles.
        """
        self.V = None if V is None else self.upload(V)
        self._finite = import_torch().ones((), dtype=import_torch().bool, device=self.device)
        k = shape[1] if shape is not None else V.shape[1] if V is not None and sums is None else 0
        self._fuses = self.fuses(k)
        self.tile = self._fused if self._fuses and self._fused is not None else self._whole
        if sums is not None:
            self._sums = sums(self.device)
        elif shape is not None:
            self._sums = (Sums if has_float64(self.device) else CompensatedSums)(shape, self.device)

    def end(self) -> None:
        """Let go of what belongs to a pass."""
        self.waiting = self.V = self._sums = self._finite = None

    def upload(self, array: Array) -> Tensor:
        """Copy an array to the device, without waiting for it."""
        return upload(as_tensor(array), self.device)

    def upload_rows(self, rows: Any) -> Tensor:
        """Copy a block of rows to the device, as a dense tensor or CSR; nothing is copied if it is one there."""
        torch = import_torch()
        if isinstance(rows, torch.Tensor):
            X = rows.to(self.device)
        elif not sp.issparse(rows):
            X = self._rows.upload(as_tensor(rows))
        elif self._columns is not None and self._columns.stays_csr:
            starts, columns, values, beyond = (self.upload(part) for part in self._columns.csr(rows))
            X = CsrRows(starts, columns, values, beyond, self._columns.width - 2)
        else:
            assert self._columns is not None
            at, values = (self.upload(part) for part in self._columns.positions(rows))
            X = torch.zeros(rows.shape[0] * self._columns.width, dtype=values.dtype, device=self.device)
            X[at] = values
            X = X.view(rows.shape[0], self._columns.width)
        # collected where it is made: asking would wait for the device
        self._finite = self._finite & X.isfinite().all()
        return X

    def mark(self) -> None:
        """Record that a block of rows has been launched."""
        self._rows.mark()

    def image(self, K: Any) -> Tensor:
        """Compute K V."""
        with matmul_precision():
            return K @ self.V if self._fuses else chunked_image(K, self.V)

    def add(self, K: Any, U: Tensor) -> None:
        """Add K' U to the sum."""
        with matmul_precision():
            parts = K.chunked_products(U) if self._fuses else chunked_products(K, U)
        self._sums.add(parts)

    def add_block(self, at: slice, K: Tensor) -> None:
        """Add a whole tile to sums that need it."""
        with matmul_precision():
            self._sums.add(at, K)

    def saw_finite_rows(self) -> bool:
        """Return whether all rows of the pass were finite."""
        return bool(self._finite)

    def total(self) -> Any:
        """Return the sum of the pass, in float64."""
        return self._sums.array()
