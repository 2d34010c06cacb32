"""Gradients of f(x) = sum_j coef_j k(x, center_j) with respect to x, and their mean squares over rows.

The gradient of a kernel is a sum of parts -factor psi(x, z) (x - z), psi a kernel too (`Kernel.slopes`), so that of f
takes one product of psi with the columns [coef, coef * centers]. Kernels of the 1-norm have the signs of x - z instead;
their tiles are multiplied with the signs, feature by feature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._utils.threads import effective_n_jobs, share, single_threaded_blas
from ..backends import check_centers, prepare
from ..kernels import Kernel, KernelFunction, Slope, as_kernel
from ..kernels.base import Evaluate
from ..sources import Rows, as_rows
from .base import as_columns
from .dense import KernelOperator

__all__ = ["gradients", "mean_square_gradient"]

Array = NDArray[Any]
BlockGradient = Callable[[Array], Array]

_BLOCK_NUMBERS = 1 << 22  # largest number of derivatives in a block
_COLUMNS = 1024  # largest number of columns of a product; more outputs take several products
_SIGNED = 96  # rows of a tile whose entries are multiplied with signs, so that it stays in cache


def gradients(
    kernel: Kernel | str | KernelFunction,
    rows: Rows | ArrayLike,
    centers: ArrayLike,
    coef: ArrayLike,
    *,
    n_jobs: int | None = None,
) -> Iterator[tuple[slice, Array]]:
    """Compute the gradient of sum_j coef_j k(x, center_j) at each row x, a block of rows at a time.

    Where x is a center itself, rough kernels (Laplacian) have no gradient, and the term of that center counts as 0.

    Parameters
    ----------
    kernel : Kernel, str or callable
        With `slopes`: Gaussian, Laplacian, Matern, RationalQuadratic, or sums and products of these and of constants.
    rows : array of shape (n, d), or a source of dense rows
        The gradient is taken in their units, whatever the kernel's length scales, and in their precision.
    centers : array of shape (M, d)
    coef : array of shape (M,) or (M, k)
    n_jobs : int or None
        Threads; None is every core. Results have the same bits for any number.

    Yields
    ------
    at : slice
        The rows of the block.
    gradient : array of shape (b, d) or (b, d, k)

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators import gradients
    >>> [(at, gradient)] = gradients(Gaussian(1.0), [[1.0, 0.0]], [[0.0, 0.0]], [2.0])
    >>> gradient.round(4)  # -2 x exp(-|x|^2 / 2)
    array([[-1.2131,  0.    ]])
    """
    rows = as_rows(rows)
    if rows.is_sparse:
        raise ValueError("rows are sparse: gradients have a number for each feature, so give dense rows")
    points = check_centers(centers, rows.dtype)
    (n, d), M = rows.shape, len(points)
    if points.shape[1] != d:
        raise ValueError(f"rows have {d} features and centers {points.shape[1]}: they must have the same")
    columns, _ = as_columns(coef, M, points.dtype, "coef")
    shape = (d, *np.shape(coef)[1:])
    resolved = as_kernel(kernel).resolve(points)
    parts = [
        (_from_signs if slope.signs else _from_differences)(slope, points, columns, n_jobs)
        for slope in resolved.slopes(d)
    ]
    size = max(96, min(n, _BLOCK_NUMBERS // (d * columns.shape[1])))
    start = 0
    for X in rows.blocks(size):
        total = np.zeros((len(X), d, columns.shape[1]), dtype=points.dtype)
        for part in parts:
            total += part(np.asarray(X))
        yield slice(start, start + len(X)), total.reshape(len(X), *shape)
        start += len(X)


def mean_square_gradient(
    kernel: Kernel | str | KernelFunction,
    rows: Rows | ArrayLike,
    centers: ArrayLike,
    coef: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    full: bool = False,
    n_jobs: int | None = None,
) -> Array:
    """Compute the mean square of each partial derivative of f(x) = sum_j coef_j k(x, center_j), in float64.

    It says how much f depends on each feature: the average gradient outer product of Radhakrishnan et al. (Science,
    2024), or its diagonal. Leave rows out that are centers: there f follows the noise of its own targets.

    Parameters
    ----------
    kernel, rows, centers, coef, n_jobs
        As for `gradients`; the mean is over rows and outputs.
    weight : array of shape (n,), optional
        Weights of the rows, not all zero.
    full : bool
        Whether to compute the mean products of all pairs of derivatives, too.

    Returns
    -------
    array of shape (d,), or (d, d) if `full`

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators import mean_square_gradient
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> mean_square_gradient(Gaussian([1.0, 1.0, 1e6]), X, X[:1], [1.0]).round(2)
    array([0.12, 0.1 , 0.  ])
    """
    rows = as_rows(rows)
    n, d = rows.shape
    w = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    if w.shape != (n,) or not (w >= 0).all() or not 0 < w.sum() < np.inf:
        raise ValueError(f"weight has shape {w.shape}: it must have {n} finite numbers, none negative and not all zero")
    total = np.zeros((d, d) if full else d)
    k = 1 if np.ndim(coef) == 1 else np.shape(coef)[1]
    with single_threaded_blas():  # whose threads would decide the last bits
        for at, gradient in gradients(kernel, rows, centers, coef, n_jobs=n_jobs):
            G = gradient.astype(np.float64).reshape(-1, d, k)
            G *= np.sqrt(w[at])[:, None, None]
            if full:
                flat = np.moveaxis(G, 1, 2).reshape(-1, d)
                total += flat.T @ flat
            else:
                total += np.square(G).sum(axis=(0, 2))
    return total / (w.sum() * k)


def _from_differences(slope: Slope, centers: Array, coef: Array, n_jobs: int | None) -> BlockGradient:
    """Return the function that gives -factor sum_j coef_j psi(x, z_j) (x - z_j) for a block of rows x."""
    dtype = centers.dtype
    # x psi - (psi z) cancels where x and z are near each other and far from 0: measure both from the centers' mean
    shift = centers.mean(axis=0, dtype=np.float64).astype(dtype)
    Z = centers - shift
    operator = KernelOperator(slope.psi, Z, Z, n_jobs=n_jobs, memory_budget=0)
    factor = slope.factor.astype(dtype)[:, None]
    (M, d), k = Z.shape, coef.shape[1]
    step = max(1, _COLUMNS // (d + 1))

    def gradient(X: Array) -> Array:
        X = X - shift
        product = operator.on(X)
        out = np.empty((len(X), d, k), dtype=dtype)
        for start in range(0, k, step):
            C = coef[:, start : start + step]
            CZ = (Z[:, :, None] * C[:, None, :]).reshape(M, -1)
            P = product.matmat(np.hstack([C, CZ]))
            first, second = P[:, None, : C.shape[1]], P[:, C.shape[1] :].reshape(len(X), d, -1)
            out[:, :, start : start + step] = factor * (second - X[:, :, None] * first)
        return out

    return gradient


def _from_signs(slope: Slope, centers: Array, coef: Array, n_jobs: int | None) -> BlockGradient:
    """Return the function that gives -factor sum_j coef_j psi(x, z_j) sign(x - z_j) for a block of rows x."""
    operator = KernelOperator(slope.psi, centers, centers, n_jobs=n_jobs, memory_budget=0)
    tiles = prepare(operator.kernel, centers)
    factor = slope.factor.astype(centers.dtype)[:, None]
    n_threads = effective_n_jobs(n_jobs)
    Z, C = np.ascontiguousarray(centers.T), np.ascontiguousarray(coef.T)

    def gradient(rows: Array) -> Array:
        X = np.ascontiguousarray(rows, dtype=centers.dtype)
        out = np.empty((*X.shape, coef.shape[1]), dtype=centers.dtype)

        def run(part: tuple[int, Array]) -> None:
            start, K = part
            at = slice(start, start + len(K))
            out[at] = tiles.signed_sums(K, X[at], Z, C) * -factor

        for at, K in operator.on(X).blocks():
            share(run, ((at.start + i, K[i : i + _SIGNED]) for i in range(0, len(K), _SIGNED)), n_threads)
        return out

    return gradient


def center_gradient(kernel: Kernel, A: Array, B: Array, P: Array, evaluate: Evaluate) -> Array:
    """Compute sum_i P_ij dk(a_i, b_j)/db_j, of shape (M, d), for the centers b_j.

    Parameters
    ----------
    kernel : Kernel
        Resolved, with `slopes`.
    A : array of shape (n, d)
    B : array of shape (M, d)
    P : array of shape (n, M)
    evaluate : callable
        ``evaluate(kernel, A, B)`` returns a kernel matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian, Kernel
    >>> from gyrfalcon.operators.derivatives import center_gradient
    >>> A, B = np.array([[1.0]]), np.array([[0.0]])
    >>> center_gradient(Gaussian(1.0), A, B, np.ones((1, 1)), Kernel.__call__).round(4)  # exp(-1/2)
    array([[0.6065]])
    """
    total = np.zeros_like(B)
    for slope in kernel.slopes(A.shape[1]):
        T = P * evaluate(slope.psi, A, B)
        if slope.signs:
            signed = [np.einsum("ij,ij->j", T, np.sign(a[:, None] - b)) for a, b in zip(A.T, B.T, strict=True)]
            total += slope.factor * np.stack(signed, axis=1)
        else:
            total += slope.factor * (T.T @ A - T.sum(axis=0)[:, None] * B)
    return total
