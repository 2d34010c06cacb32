"""Features with mean 0 and deviation 1, inside the stream: no second copy of the rows is made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike, NDArray

from .base import Block, Rows, feature_names

Array = NDArray[np.float64]

_BLOCK = 16_384


class Standardize:
    """(x - mean) / scale for every feature of a block.

    Parameters
    ----------
    mean : array of shape (d,), or None
        None where zeros are to stay zeros, as for sparse rows.
    scale : array of shape (d,)
    dtype : float32 or float64
        Of the result. The difference is taken in the precision that the rows came in: of large numbers that differ
        little, such as times in seconds, float32 would leave nothing.
    """

    def __init__(self, mean: Array | None, scale: Array, dtype: DTypeLike) -> None:
        self.mean, self.scale = mean, scale
        self.dtype = np.dtype(cast(Any, dtype))

    def __call__(self, block: Block) -> Block:
        if scipy.sparse.issparse(block) and self.mean is not None:
            block = block.toarray()  # the mean of dense rows makes other numbers of zeros
        if scipy.sparse.issparse(block):
            data = (block.data / self.scale[block.indices]).astype(self.dtype)
            return type(block)((data, block.indices, block.indptr), shape=block.shape)
        scaled = block - self.mean if self.mean is not None else block.astype(np.float64)
        scaled /= self.scale
        return np.ascontiguousarray(scaled, dtype=self.dtype)

    def __repr__(self) -> str:
        parts = (self.mean, self.scale) if self.mean is not None else (self.scale,)
        digest = hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=8).hexdigest()
        return f"Standardize({digest}, {self.dtype.name})"


@dataclass(frozen=True)
class Moments:
    """Mean and squares about it of the features of some rows; `total` is the sum of their weights."""

    total: float
    mean: Array
    squares: Array
    sparse: bool = False

    @classmethod
    def of(cls, block: Block, weight: NDArray[Any] | None = None) -> Moments:
        """Those of a block."""
        b, d = block.shape
        w = np.ones(b) if weight is None else np.asarray(weight, dtype=np.float64)
        total = float(w.sum())
        if total == 0:
            return cls(0.0, np.zeros(d), np.zeros(d), scipy.sparse.issparse(block))
        if scipy.sparse.issparse(block):
            each, at = np.repeat(w, np.diff(block.indptr)), block.indices
            data = block.data.astype(np.float64)
            mean = np.bincount(at, each * data, minlength=d) / total
            stored = np.bincount(at, each, minlength=d)
            # a second time, about a mean that is known: then the first sum's rounding hardly matters
            mean += (np.bincount(at, each * (data - mean[at]), minlength=d) - (total - stored) * mean) / total
            about = np.bincount(at, each * np.square(data - mean[at]), minlength=d)
            return cls(total, mean, about + np.maximum(total - stored, 0.0) * mean**2, sparse=True)
        wide = block.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused at the end
            mean = w @ wide / total
            mean += w @ (wide - mean) / total  # what rounding has left: a constant feature must have its very number
            return cls(total, mean, w @ np.square(wide - mean))

    def __add__(self, other: Moments) -> Moments:
        """Both together, without the cancellation of sums of squares (Chan, Golub, LeVeque 1983)."""
        total = self.total + other.total
        if total == 0:
            return other
        with np.errstate(over="ignore", invalid="ignore"):
            step = other.mean - self.mean
            mean = self.mean + step * (other.total / total)
            squares = self.squares + other.squares + np.square(step) * (self.total * other.total / total)
        return Moments(total, mean, squares, self.sparse or other.sparse)

    def finish(self, names: Sequence[str] | None = None) -> tuple[Array | None, Array]:
        """What to subtract, None for sparse rows, and what to divide by."""
        bad = np.flatnonzero(~(np.isfinite(self.mean) & np.isfinite(self.squares)))
        if len(bad):
            which = bad[0] if names is None else repr(names[bad[0]])
            raise ValueError(
                f"feature {which} has NaN, infinity, or numbers too large to scale, whose squares overflow: remove, "
                "impute or rescale them"
            )
        variance = np.maximum(self.squares, 0.0) / self.total
        # a constant feature has a variance of rounding only, even where blocks are put together
        varies = variance > np.square(32 * np.finfo(np.float64).eps * np.abs(self.mean))
        return None if self.sparse else self.mean, np.where(varies, np.sqrt(variance), 1.0)


def moments(rows: Rows, weight: NDArray[Any] | None = None) -> tuple[Array | None, Array]:
    """Mean and standard deviation of every feature, in one pass; the mean is None for sparse rows.

    Parameters
    ----------
    rows : source
        Which may have a method ``moments(weight)`` of its own, that gives `Moments`.
    weight : array of shape (n,), optional
        How much each row counts; some must.

    Returns
    -------
    mean : array of shape (d,), or None
    scale : array of shape (d,)
        1 for features that do not vary.
    """
    own: Callable[..., Moments] | None = getattr(rows, "moments", None)
    if own is not None:
        return own(weight).finish(feature_names(rows))
    start, d = 0, rows.shape[1]
    whole = Moments(0.0, np.zeros(d), np.zeros(d))
    for block in rows.blocks(_BLOCK):
        stop = start + block.shape[0]
        whole += Moments.of(block, None if weight is None else weight[start:stop])
        start = stop
    return whole.finish(feature_names(rows))
