"""Random features of a kernel, F = scale * activation(X W' + offset): the expectation of F(x).F(z) is k(x, z).

Kernels draw them; operators and estimators use them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import special
from sklearn.base import BaseEstimator

from .._utils.registry import register
from .._utils.words import hint, listed

__all__ = ["FeatureMap", "check_activation", "directions", "normal_weights"]

Array = NDArray[Any]
Activation = str | Callable[[Array], ArrayLike]


def _identity(F: Array) -> Array:
    return F


# Each works in place.
_ACTIVATIONS: dict[str, Callable[[Array], Any]] = {
    "cos": lambda F: np.cos(F, out=F),
    "sin": lambda F: np.sin(F, out=F),
    "relu": lambda F: np.maximum(F, 0, out=F),
    "step": lambda F: np.greater(F, 0, out=F),
    "tanh": lambda F: np.tanh(F, out=F),
    "sigmoid": lambda F: special.expit(F, out=F),
    "softplus": lambda F: np.logaddexp(F, 0, out=F),
    "erf": lambda F: special.erf(F, out=F),
    "identity": _identity,
}


def check_activation(activation: Any) -> None:
    """Raise an error unless `activation` is the name of one or callable."""
    known = listed(_ACTIVATIONS, None, plain=True)
    if isinstance(activation, str) and activation not in _ACTIVATIONS:
        raise ValueError(
            f"activation={activation!r} is not known: use one of {known}, or a function of an array"
            f"{hint(activation, _ACTIVATIONS)}"
        )
    if not isinstance(activation, str) and (not callable(activation) or isinstance(activation, type)):
        raise TypeError(f"activation={activation!r} must be one of {known}, or a function of an array")


def _activate(activation: Activation, F: Array) -> None:
    """Replace numbers by the activation's values."""
    if isinstance(activation, str):
        _ACTIVATIONS[activation](F)
        return
    values = np.asarray(activation(F))
    if values.shape != F.shape or values.dtype.kind not in "fiub":
        raise ValueError(
            f"the activation {activation!r} gave an array of type {values.dtype} and shape {values.shape} for an array "
            f"of shape {F.shape}: it must give real numbers in the same shape"
        )
    F[:] = values


@register
class FeatureMap(BaseEstimator):  # type: ignore[misc]
    """Random features of a kernel: scale * activation(X W' + offset), one column for each row of W.

    It is a function of rows and weights as a kernel is a function of rows and centers, so that
    ``KernelOperator(features, rows, features.weights)`` computes products with the matrix F.

    Parameters
    ----------
    weights : array of shape (M, d)
        W.
    offset : array of shape (M,)
        Added before the activation.
    scale : array of shape (M,)
        Factors applied after the activation.
    activations : sequence of (name, count)
        The name of an activation of `RandomLayer`, or a function of an array, and the number of columns that have it.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> features = Gaussian(1.0).random_features(20_000, 2, np.random.RandomState(0))
    >>> x, z = np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]])
    >>> bool(abs(features(x) @ features(z).T - np.exp(-0.5)) < 0.02)
    True
    """

    def __init__(self, weights: Array, offset: Array, scale: Array, activations: Sequence[Sequence[Any]]) -> None:
        self.weights = weights
        self.offset = offset
        self.scale = scale
        self.activations = activations

    @classmethod
    def layer(cls, activation: Activation, weights: Array, offset: ArrayLike, scale: float) -> FeatureMap:
        """Make features that share one activation and one scale."""
        M = len(weights)
        return cls(weights, np.broadcast_to(offset, M).astype(np.float64), np.full(M, scale), ((activation, M),))

    def __len__(self) -> int:
        return len(self.weights)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        names = "+".join(f"{count} {name}" for name, count in self.activations)
        return f"FeatureMap({names} of {self.weights.shape[1]} features)"

    def __add__(self, other: FeatureMap) -> FeatureMap:
        """Join the columns of both: features of the sum of their kernels."""
        return FeatureMap(
            np.vstack([self.weights, other.weights]),
            np.concatenate([self.offset, other.offset]),
            np.concatenate([self.scale, other.scale]),
            (*self.activations, *other.activations),
        )

    def times(self, factor: float) -> FeatureMap:
        """Multiply every column by `factor`: features of the kernel times factor^2."""
        return FeatureMap(self.weights, self.offset, factor * self.scale, self.activations)

    def columns(self, start: int, stop: int) -> FeatureMap:
        """Return the features from one column up to another."""
        ends = np.cumsum([0, *(count for _, count in self.activations)])
        runs = [
            (name, int(min(stop, end) - max(start, begin)))
            for (name, _), begin, end in zip(self.activations, ends, ends[1:], strict=False)
        ]
        at = slice(start, stop)
        kept = tuple((name, count) for name, count in runs if count > 0)
        return FeatureMap(self.weights[at], self.offset[at], self.scale[at], kept)

    def take(self, indices: NDArray[np.intp]) -> FeatureMap:
        """Return the features at some positions."""
        names = [name for name, count in self.activations for _ in range(count)]
        runs = tuple((name, len(list(run))) for name, run in groupby(names[at] for at in indices))
        return FeatureMap(self.weights[indices], self.offset[indices], self.scale[indices], runs)

    def __call__(self, X: Array, weights: Array | None = None) -> Array:
        """Compute F for a block of rows `X`, in their precision; `weights` is W in that precision, if known."""
        W = self.weights.astype(X.dtype, copy=False) if weights is None else weights
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
            F: Array = X @ W.T
            F += self.offset.astype(F.dtype, copy=False)
            start = 0
            for name, count in self.activations:
                _activate(name, F[:, start : start + count])
                start += count
            F *= self.scale.astype(F.dtype, copy=False)
        return F

    def astype(self, dtype: DTypeLike) -> FeatureMap:
        """Return a copy in another precision."""
        weights, offset, scale = (part.astype(dtype, copy=False) for part in (self.weights, self.offset, self.scale))
        return FeatureMap(weights, offset, scale, self.activations)

    def check(self, n_features: int) -> None:
        """Raise ValueError if the arrays are inconsistent, as in a damaged model file."""
        M, arrays = len(self.offset), (self.weights, self.offset, self.scale)
        dtypes = {part.dtype for part in arrays}
        if len(dtypes) > 1 or not dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}:
            raise ValueError(f"the arrays of a FeatureMap must be all float32 or all float64, not {dtypes}")
        if [part.shape for part in arrays] != [(M, n_features), (M,), (M,)] or M == 0:
            raise ValueError(
                f"a FeatureMap of {n_features} features cannot have weights of shape {self.weights.shape}, offset of "
                f"{self.offset.shape} and scale of {self.scale.shape}"
            )
        if not all(np.isfinite(part).all() for part in arrays):
            raise ValueError("the arrays of a FeatureMap must be finite")
        names = [name for name, _ in self.activations]
        counts = [count for _, count in self.activations]
        if not set(names) <= set(_ACTIVATIONS):
            raise ValueError(f"activations {names} are not known: use {listed(_ACTIVATIONS, None, plain=True)}")
        if not all(type(count) is int and count > 0 for count in counts) or sum(counts) != M:
            raise ValueError(f"activations of {counts} columns do not make {M} columns")


def normal_weights(n: int, d: int, random_state: np.random.RandomState, orthogonal: bool) -> Array:
    """Draw `n` vectors of d normal numbers; see `directions` for `orthogonal`."""
    weights = directions(n, d, random_state, orthogonal)
    weights *= np.sqrt(random_state.chisquare(d, n))[:, None]
    return weights


def directions(n: int, d: int, random_state: np.random.RandomState, orthogonal: bool) -> Array:
    """Draw `n` random directions in d dimensions, each uniform on the unit sphere.

    With `orthogonal` they are orthogonal in groups of d (Yu et al., "Orthogonal Random Features", 2016). Each is still
    uniform, but together they cover the sphere more evenly, which lowers the variance of averages.
    """
    if not orthogonal:
        G = random_state.standard_normal((n, d))
        return G / np.linalg.norm(G, axis=1, keepdims=True)
    groups = []
    for start in range(0, n, d):
        Q, R = np.linalg.qr(random_state.standard_normal((d, min(d, n - start))))
        # LAPACK prefers some signs; without this correction the directions would not be uniform
        groups.append((Q * np.where(np.diag(R) < 0, -1.0, 1.0)).T)
    return np.concatenate(groups)
