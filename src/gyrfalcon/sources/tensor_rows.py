"""Rows of a tensor that stays on its device: operators there take parts of it, and all others read blocks of it.

Changes of precision, standardisation and the choice of rows are computed there too, when a part is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._utils.copies import as_tensor
from .._utils.devices import has_float64, import_torch, round_to_tf32, torch_dtype
from .base import Cast, MappedRows, Rows
from .blocks import Block, Indices
from .scaling import Moments, Standardize

Array = NDArray[Any]
Tensor = Any
Step = Callable[[Tensor], Tensor]

_LOOKED_AT = 1 << 24  # numbers that are examined at a time


def stays(X: Tensor, devices: Sequence[Any]) -> bool:
    """Whether a tensor can stay on its device while `devices` compute."""
    if X.device.type not in {one.type for one in devices} or not has_float64(X.device):
        return False
    is_matrix = X.layout == import_torch().strided and X.ndim == 2 and X.numel() > 0
    if not is_matrix or X.is_complex() or X.requires_grad:
        return False
    return bool(np.isfinite(TensorRows(X).extremes()).all())


class TensorRows(Rows):
    """The rows of a dense tensor of PyTorch, which stays on its device.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Of any type of real numbers: floats of up to 32 bits become float32, and all else float64.
    index : Tensor of int64, optional
        The rows to use, in this order, on the same device; all by default.
    steps : tuple of functions
        Functions that are applied to a part of the rows, on the device.
    dtype : float32 or float64, optional
        The type of the rows after the last step.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> from gyrfalcon.sources.tensor_rows import TensorRows
    >>> rows = TensorRows(torch.arange(6.0).reshape(3, 2))  # doctest: +SKIP
    >>> [len(block) for block in rows.blocks(2)]  # doctest: +SKIP
    [2, 1]
    """

    is_sparse = False
    in_memory = True

    def __init__(
        self, X: Tensor, index: Tensor | None = None, steps: tuple[Step, ...] = (), dtype: DTypeLike | None = None
    ) -> None:
        self.X, self._index, self._steps = X.resolve_neg(), index, steps
        short = X.is_floating_point() and X.dtype.itemsize <= 4
        self._stored = np.dtype(np.float32 if short else np.float64)
        self.dtype = self._stored if dtype is None else np.dtype(dtype)
        self.shape = (len(X) if index is None else len(index), int(X.shape[1]))

    @property
    def device(self) -> Any:
        """The device of the rows."""
        return self.X.device

    def tensor(self, at: slice) -> Tensor:
        """Return a part of the rows on their device, contiguous; it may share the memory of the given tensor."""
        return self._made(at if self._index is None else self._index[at])

    def blocks(self, size: int) -> Iterator[Block]:
        return (self.tensor(slice(start, start + size)).cpu().numpy() for start in range(0, self.shape[0], size))

    def take(self, indices: Indices) -> Block:
        return np.asarray(self._made(self._positions(indices)).cpu().numpy())

    def subset(self, indices: Indices) -> TensorRows:
        """Return the rows at `indices`, in any order, which are copied on the device when they are read."""
        return TensorRows(self.X, self._positions(indices), self._steps, self.dtype)

    def map(self, function: Callable[[Block], Block], dtype: DTypeLike) -> Rows:
        """Apply a function to every block: on the device if the function is known there, else on the host."""
        known = _FORMULAS.get(function if function is round_to_tf32 else type(function))
        if known is None:
            return MappedRows(self, function, dtype)
        return TensorRows(self.X, self._index, (*self._steps, known(function, self.device)), dtype)

    def moments(self, weight: Array | None = None) -> Moments:
        total = Moments(0.0, np.zeros(self.shape[1]), np.zeros(self.shape[1]))
        for at in self._parts():
            total += _moments(self.tensor(at), None if weight is None else weight[at])
        return total

    def extremes(self) -> Array:
        """Return the smallest and the largest number; NaN if there is one."""
        ends = import_torch().stack([end for at in self._parts() for end in self.tensor(at).aminmax()])
        return np.asarray(import_torch().stack(ends.aminmax()).cpu().numpy())

    def _parts(self) -> Iterator[slice]:
        size = max(1, _LOOKED_AT // self.shape[1])
        return (slice(start, start + size) for start in range(0, self.shape[0], size))

    def _positions(self, indices: Indices) -> Tensor:
        at = as_tensor(np.asarray(indices, dtype=np.int64)).to(self.device)
        return at if self._index is None else self._index[at]

    def _made(self, at: Any) -> Tensor:
        part = self.X[at].to(torch_dtype(self._stored))
        for step in self._steps:
            part = step(part)
        return part.contiguous()


# ---- functions of blocks, on a device --------------------------------------------------------------------------------


def _standardize(function: Standardize, device: Any) -> Step:
    torch, dtype = import_torch(), torch_dtype(function.dtype)
    scale = torch.tensor(function.scale, device=device)
    if function.mean is None:
        return lambda X: (X / scale).to(dtype)
    mean = torch.tensor(function.mean, device=device)
    return lambda X: (X - mean).div_(scale).to(dtype)  # in float64, as the mean is


def _cast(function: Cast, device: Any) -> Step:
    dtype = torch_dtype(function.dtype)
    return lambda X: X.to(dtype)


_FORMULAS: dict[Any, Callable[[Any, Any], Step]] = {
    Standardize: _standardize,
    Cast: _cast,
    round_to_tf32: lambda function, device: round_to_tf32,
}


def _moments(X: Tensor, weight: Array | None) -> Moments:
    """Compute the moments of a part by the formulas of `Moments.of`."""
    torch, d = import_torch(), X.shape[1]
    X = X.to(torch.float64)
    if weight is None:
        w = torch.ones(len(X), dtype=torch.float64, device=X.device)
    else:
        w = as_tensor(np.asarray(weight, dtype=np.float64)).to(X.device)
    total = float(w.sum())
    if total == 0:
        return Moments(0.0, np.zeros(d), np.zeros(d))
    mean = w @ X / total
    mean += w @ (X - mean) / total
    squares = w @ (X - mean).square_()
    return Moments(total, mean.cpu().numpy(), squares.cpu().numpy())
