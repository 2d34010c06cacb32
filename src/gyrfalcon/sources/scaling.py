"""Standardization of features while rows are read, without a second copy of the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike, NDArray

from .blocks import Block

Array = NDArray[np.float64]


class Standardize:
    """The function (x - mean) / scale of the features of a block, with a result of type `dtype`.

    A mean of None keeps zeros, as for sparse rows. The difference is computed in the precision of the rows: large
    numbers that differ little, such as times in seconds, would be equal in float32.
    """

    def __init__(self, mean: Array | None, scale: Array, dtype: DTypeLike) -> None:
        self.mean, self.scale = mean, scale
        self.dtype = np.dtype(cast(Any, dtype))

    def __call__(self, block: Block) -> Block:
        if scipy.sparse.issparse(block) and self.mean is not None:
            block = block.toarray()  # subtracting the mean of dense rows changes zeros
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
    """Means and sums of squared deviations of the features of some rows."""

    total: float  # sum of the weights of the rows
    mean: Array  # weighted, of shape (d,)
    squares: Array  # weighted sum of the squared differences from the mean, of shape (d,)
    sparse: bool = False  # whether some of the rows are sparse

    @classmethod
    def of(cls, block: Block, weight: NDArray[Any] | None = None) -> Moments:
        """Compute the moments of a block."""
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
            # correct the mean by the mean deviation from it, which removes most of the first sum's rounding
            mean += (np.bincount(at, each * (data - mean[at]), minlength=d) - (total - stored) * mean) / total
            about = np.bincount(at, each * np.square(data - mean[at]), minlength=d)
            return cls(total, mean, about + np.maximum(total - stored, 0.0) * mean**2, sparse=True)
        wide = block.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):  # refused in `mean_and_scale`
            mean = w @ wide / total
            mean += w @ (wide - mean) / total  # remove rounding: the mean of a constant feature must be exact
            return cls(total, mean, w @ np.square(wide - mean))

    def __add__(self, other: Moments) -> Moments:
        """Combine the moments of two sets of rows without cancellation (Chan, Golub, LeVeque 1983)."""
        total = self.total + other.total
        if total == 0:
            return other
        with np.errstate(over="ignore", invalid="ignore"):
            step = other.mean - self.mean
            mean = self.mean + step * (other.total / total)
            squares = self.squares + other.squares + np.square(step) * (self.total * other.total / total)
        return Moments(total, mean, squares, self.sparse or other.sparse)

    def mean_and_scale(self, feature_names: Sequence[str] | None = None) -> tuple[Array | None, Array]:
        """Return the mean, None for sparse rows, and the scale for `Standardize`.

        The scale is the standard deviation, or 1 for features that do not vary. Error messages use `feature_names`.
        """
        bad = np.flatnonzero(~(np.isfinite(self.mean) & np.isfinite(self.squares)))
        if len(bad):
            which = bad[0] if feature_names is None else repr(feature_names[bad[0]])
            raise ValueError(
                f"feature {which} has NaN, infinity, or numbers too large to scale, whose squares overflow: remove, "
                "impute or rescale them"
            )
        variance = np.maximum(self.squares, 0.0) / self.total
        # combining blocks leaves a constant feature a variance of rounding errors
        varies = variance > np.square(32 * np.finfo(np.float64).eps * np.abs(self.mean))
        return None if self.sparse else self.mean, np.where(varies, np.sqrt(variance), 1.0)
