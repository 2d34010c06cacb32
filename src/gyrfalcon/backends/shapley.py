"""Integrals of products of factors, of which exact Shapley values consist: native, and in NumPy."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float64]


def shapley_sums(z: Vectors, b: Vectors, nodes: Vectors, weights: Vectors) -> Vectors:
    """Integrate products from background rows to rows: sum_b (z - b)_g sum_q w_q prod_{h != g} (b + t_q (z - b))_h.

    Parameters
    ----------
    z : array of shape (n, n_groups, M)
        Factors of the rows.
    b : array of shape (m, n_groups, M)
        Factors of the background rows.
    nodes, weights : array of shape (n_nodes,)
        Of a quadrature rule on [0, 1].

    Returns
    -------
    array of the shape of z
    """
    if os.environ.get("GYRFALCON_BACKEND") == "reference":
        return reference_sums(z, b, nodes, weights)
    try:
        from .native import shapley_sums as native_sums
    except ImportError:
        return reference_sums(z, b, nodes, weights)
    return native_sums(z, b, nodes, weights)


def reference_sums(z: Vectors, b: Vectors, nodes: Vectors, weights: Vectors) -> Vectors:
    """Compute `shapley_sums` in NumPy, one row at a time."""
    out = np.zeros_like(z)
    for row, total in zip(z, out, strict=True):
        for t, weight in zip(nodes, weights, strict=True):
            F = b + t * (row - b)
            before, after = np.ones_like(F), np.ones_like(F)
            np.cumprod(F[:, :-1], axis=1, out=before[:, 1:])
            np.cumprod(F[:, :0:-1], axis=1, out=after[:, -2::-1])
            total += weight * ((row - b) * before * after).sum(axis=0)
    return out
