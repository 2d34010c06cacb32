"""Exact Shapley values of f(x) = sum_i coef_i k(x, center_i) for kernels that are sums of products over the features.

With z_ij = k_j(x_j, c_ij) and b_ij the same factors of a background row, the value of feature j is sum_i coef_i
(z_ij - b_ij) integral_0^1 prod_{h != j} [(1 - t) b_ih + t z_ih] dt. The integrand is a polynomial of degree d - 1, for
which ceil(d / 2) nodes of Gauss and Legendre are exact. Features of a group have one factor, the product of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.threads import effective_n_jobs, share
from ..backends.shapley import shapley_sums
from ..kernels import Kernel, ProductTerm

__all__ = ["Expansion", "expansion_interactions", "expansion_shapley_values", "split_factors"]

Array = NDArray[Any]
Vectors = NDArray[np.float64]

_ROWS = 32  # rows of a block, which one thread computes: less than a second
_CENTERS = 512  # largest number of centers whose factors are computed at once
_BLOCK_NUMBERS = 1 << 23  # largest number of factors of the background rows at these centers


@dataclass(frozen=True, eq=False)
class Expansion:
    """A function sum_i coef_i k(x, center_i).

    Attributes
    ----------
    kernel : Kernel
        Resolved.
    centers : array of shape (M, d)
    coef : array of shape (M, k)

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators.shapley import Expansion
    >>> Expansion(Gaussian(1.0), np.zeros((3, 2)), np.ones((3, 1))).product_terms is None
    False
    """

    kernel: Kernel
    centers: Array
    coef: Array

    @property
    def product_terms(self) -> list[ProductTerm] | None:
        """The terms of the kernel; None if it is no sum of products over the features."""
        return self.kernel.product_terms(self.centers.shape[1])

    def times(self, factor: Any) -> Expansion:
        """Return the function times a number, or times one for each output."""
        return Expansion(self.kernel, self.centers, np.asarray(self.coef, dtype=np.float64) * factor)


def expansion_shapley_values(
    expansion: Expansion, rows: Vectors, background: Vectors | None, groups: Array, n_jobs: int | None = None
) -> tuple[Vectors, Vectors]:
    """Compute Shapley values of an expansion, and the value that they are measured from.

    Parameters
    ----------
    expansion : Expansion
        With a kernel that has `product_terms`.
    rows : array of shape (n, d)
    background : array of shape (m, d), or None
        Rows over which an absent feature is averaged. None removes the factor of an absent feature instead.
    groups : array of int of shape (d,)
        The group of each feature, numbered from 0.
    n_jobs : int or None
        Threads; None is every core. Results have the same bits for any number.

    Returns
    -------
    values : array of shape (n, n_groups, k)
    base : array of shape (k,)
        The mean of the function over the background, or the sum of its coefficients if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators.shapley import Expansion, expansion_shapley_values
    >>> f = Expansion(Gaussian(1.0), np.zeros((1, 2)), np.ones((1, 1)))
    >>> values, base = expansion_shapley_values(f, np.array([[1.0, 0.0]]), np.zeros((1, 2)), np.arange(2))
    >>> values[:, :, 0].round(4), base  # f(x) - f(0) = exp(-1/2) - 1 is due to the first feature alone
    (array([[-0.3935,  0.    ]]), array([1.]))
    """
    n_groups, k = int(groups.max()) + 1, expansion.coef.shape[1]
    values, base = np.zeros((len(rows), n_groups, k)), np.zeros(k)
    nodes, weights = _quadrature(n_groups)
    for part in _parts(expansion, rows, background, groups):
        base += part.absent.prod(axis=1).sum(axis=0) @ part.coef

        def run(block: slice, part: _Part = part) -> None:
            values[block] += part.summed(shapley_sums(part.factors(rows[block]), part.absent, nodes, weights))

        share(run, _blocks(len(rows)), effective_n_jobs(n_jobs))
    return values, base


def expansion_interactions(
    expansion: Expansion, rows: Vectors, background: Vectors | None, groups: Array, n_jobs: int | None = None
) -> tuple[Vectors, Vectors, Vectors]:
    """Compute Shapley interaction indices of all pairs of groups of an expansion.

    The index of the groups i and j is the Shapley value of j if i is known, minus its value if i is absent. These are
    integrals of the same kind: with the factor of i replaced by 1, times that of the row, and with (1 - t) b_i, whose
    first factor is divided out of the weights.

    Parameters
    ----------
    expansion, rows, background, groups, n_jobs
        As for `expansion_shapley_values`.

    Returns
    -------
    interactions : array of shape (n, n_groups, n_groups, k)
        Symmetric, with zeros on the diagonal.
    values : array of shape (n, n_groups, k)
        Shapley values.
    base : array of shape (k,)

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators.shapley import Expansion, expansion_interactions
    >>> f = Expansion(Gaussian(1.0), np.zeros((1, 2)), np.ones((1, 1)))
    >>> found, _, _ = expansion_interactions(f, np.array([[1.0, 1.0]]), np.zeros((1, 2)), np.arange(2))
    >>> found[0, 0, 1].round(4)  # (exp(-1/2) - 1)^2
    array([0.1548])
    """
    values, base = expansion_shapley_values(expansion, rows, background, groups, n_jobs)
    n_groups = int(groups.max()) + 1
    found = np.zeros((len(rows), n_groups, n_groups, expansion.coef.shape[1]))
    nodes, weights = _quadrature(n_groups)
    for part in _parts(expansion, rows, background, groups):
        for i in range(n_groups - 1):
            without = part.absent.copy()
            without[:, i] = 1.0

            def run(block: slice, i: int = i, part: _Part = part, without: Vectors = without) -> None:
                factors = part.factors(rows[block])
                mine = factors[:, i].copy()
                factors[:, i] = 1.0
                sums = shapley_sums(factors, without, nodes, weights) * mine[:, None]
                factors[:, i] = 0.0
                sums -= shapley_sums(factors, part.absent, nodes, weights / (1 - nodes))
                found[block, i, i + 1 :] += part.summed(sums[:, i + 1 :])  # the others are known by symmetry

            share(run, _blocks(len(rows)), effective_n_jobs(n_jobs))
    return found + np.swapaxes(found, 1, 2), values, base


def split_factors(expansion: Expansion, rows: Vectors, chosen: Array) -> list[tuple[float, Vectors, Vectors]]:
    """Return each term of the kernel as a product of two kernels, of the chosen features and of the others.

    Parameters
    ----------
    expansion : Expansion
        With a kernel that has `product_terms`.
    rows : array of shape (n, d)
    chosen : array of bool of shape (d,)

    Returns
    -------
    list of (constant, factors of chosen features of shape (n, M), factors of the others of shape (n, M))

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.kernels import Gaussian
    >>> from gyrfalcon.operators.shapley import Expansion, split_factors
    >>> f = Expansion(Gaussian(1.0), np.zeros((1, 2)), np.ones((1, 1)))
    >>> split_factors(f, np.array([[1.0, 0.0]]), np.array([True, False]))[0][1].round(4)
    array([[0.6065]])
    """
    terms, groups = _checked_terms(expansion, rows, None), np.where(chosen, 0, 1)
    centers = np.asarray(expansion.centers, dtype=np.float64)
    found = []
    for term in terms:
        factors = _factors(term, rows, centers, groups, 2)
        found.append((float(term.constant), factors[:, 0], factors[:, 1]))
    return found


def _checked_terms(expansion: Expansion, rows: Vectors, background: Vectors | None) -> list[ProductTerm]:
    """Return the terms of the kernel; raise ValueError if it has none, or if rows have missing values."""
    terms = expansion.product_terms
    if terms is None:
        raise ValueError(f"{expansion.kernel!r} is no sum of products over the features: sample permutations instead")
    for name, numbers in (("X", rows), ("background", background)):
        if numbers is not None and not np.isfinite(numbers).all():
            raise ValueError(f"{name} holds NaN or infinity: remove or impute those values")
    return terms


@dataclass(frozen=True, eq=False)
class _Part:
    """A term of the kernel at some of the centers.

    `coef` are their coefficients, divided by the number of background rows, and `absent` the factors of the background.
    """

    term: ProductTerm
    centers: Vectors
    groups: Array
    coef: Vectors
    absent: Vectors

    def factors(self, rows: Vectors) -> Vectors:
        return _factors(self.term, rows, self.centers, self.groups, self.absent.shape[1])

    def summed(self, sums: Vectors) -> Vectors:
        """Return numbers of rows, groups and centers, summed over the centers with their coefficients."""
        return np.asarray((sums.reshape(-1, len(self.coef)) @ self.coef).reshape(*sums.shape[:2], -1))


def _parts(expansion: Expansion, rows: Vectors, background: Vectors | None, groups: Array) -> Iterator[_Part]:
    """Yield each term with each range of centers whose factors fit the memory of a block."""
    terms, n_groups = _checked_terms(expansion, rows, background), int(groups.max()) + 1
    coef, M = np.asarray(expansion.coef, dtype=np.float64), len(expansion.coef)
    n_background = 1 if background is None else len(background)
    size = max(1, min(_CENTERS, _BLOCK_NUMBERS // (n_background * n_groups)))
    for term in terms:
        for start in range(0, M, size):
            centers = np.asarray(expansion.centers[start : start + size], dtype=np.float64)
            A = np.ascontiguousarray(coef[start : start + size]) * (term.constant / n_background)
            if background is None:
                absent = np.ones((1, n_groups, len(centers)))
            else:
                absent = _factors(term, background, centers, groups, n_groups)
            yield _Part(term, centers, groups, A, absent)


def _quadrature(n_groups: int) -> tuple[Vectors, Vectors]:
    """Return nodes in [0, 1] and weights that integrate a polynomial of degree n_groups - 1 exactly."""
    x, w = np.polynomial.legendre.leggauss(-(-n_groups // 2))
    return (x + 1) / 2, w / 2


def _blocks(n: int) -> list[slice]:
    return [slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS)]


def _factors(term: ProductTerm, rows: Vectors, centers: Vectors, groups: Array, n_groups: int) -> Vectors:
    """Compute the factor of each group for each row and center, of shape (n, n_groups, M)."""
    exponent = np.zeros((len(rows), n_groups, len(centers)))
    for j in np.flatnonzero((term.squares > 0) | (term.sizes > 0)):
        difference = rows[:, j, None] - centers[:, j]
        if term.squares[j] > 0:
            exponent[:, groups[j]] -= term.squares[j] * np.square(difference)
        if term.sizes[j] > 0:
            exponent[:, groups[j]] -= term.sizes[j] * np.abs(difference)
    return np.exp(exponent, out=exponent)
