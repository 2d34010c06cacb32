"""Kernel ridge regression with randomly sketched coefficients (Yang, Pilanci, Wainwright, 2015).

With alpha = S theta for a random S of shape (n, m), the function that minimises the penalised squared error satisfies

    (S'K W K S + penalty n S'K S) theta = S'K W y,

an m x m system that takes one product of the n x n kernel matrix with the m columns of S.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ..operators import Operator
from .base import Vectors

__all__ = ["SKETCHES", "random_sketch", "sketched_ridge"]


def _gaussian(n: int, m: int, random_state: np.random.RandomState) -> Vectors:
    return np.asarray(random_state.standard_normal((n, m)) / np.sqrt(m))


def _orthogonal(n: int, m: int, random_state: np.random.RandomState) -> Vectors:
    """Return columns of the orthonormal cosine transform, drawn without replacement, with random signs of the rows."""
    columns = random_state.choice(n, m, replace=False)
    signs = random_state.choice([-1.0, 1.0], n)
    cosines = np.cos(np.pi / n * np.outer(np.arange(n) + 0.5, columns)) * np.where(columns == 0, 1.0, np.sqrt(2))
    return np.asarray(signs[:, None] * cosines / np.sqrt(m))


SKETCHES: Mapping[str, Callable[[int, int, np.random.RandomState], Vectors]] = {
    "gaussian": _gaussian,
    "orthogonal": _orthogonal,
}


def random_sketch(kind: str, n: int, m: int, random_state: np.random.RandomState) -> Vectors:
    """Draw S, of shape (n, m), with E[S S'] = I.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers.sketched import random_sketch
    >>> S = random_sketch("orthogonal", 8, 8, np.random.RandomState(0))
    >>> bool(np.allclose(S @ S.T, np.eye(8)))
    True
    """
    return SKETCHES[kind](n, m, random_state)


def sketched_ridge(
    operator: Operator, y: NDArray[Any], S: Vectors, penalty: float, weight: NDArray[Any] | None = None
) -> Vectors:
    """Return alpha = S theta; `operator` is k(rows, rows), `penalty` positive, and the rest as in the formula above."""
    n = operator.shape[0]
    KS = operator.matmat(S).astype(np.float64)
    left = KS if weight is None else weight[:, None] * KS
    gram = S.T @ KS
    # Whitened by S'KS, so that the penalty is added to the identity: theta = R beta with R'(S'KS)R = I
    values, vectors = eigh((gram + gram.T) / 2)
    kept = values > len(values) * np.finfo(operator.dtype).eps * max(values[-1], np.finfo(np.float64).tiny)
    R = vectors[:, kept] / np.sqrt(values[kept])
    H = R.T @ (KS.T @ left) @ R
    H.flat[:: len(H) + 1] += penalty * n
    solution: Vectors = S @ (R @ np.linalg.solve(H, R.T @ (left.T @ y.astype(np.float64))))
    return solution
