"""Block coordinate descent against the dense solution of the whole system, in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Laplacian
from gyrfalcon.operators import feature_operator
from gyrfalcon.solvers import block_descent

KERNEL = Laplacian(0.5)


def problem(n=120, M=18, k=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    return X, X[:M], np.sin(X @ rng.standard_normal((2, k))), rng.integers(0, 4, size=n).astype(float)


def operators(X, Z, bounds):
    return [KernelOperator(KERNEL, X, Z[a:b], n_jobs=1) for a, b in pairwise(bounds)]


@pytest.mark.parametrize("bounds", [[0, 18], [0, 9, 18], [0, 5, 10, 15, 18], list(range(0, 19, 3))])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [1e-1, 1.0])
def test_it_comes_to_the_dense_solution(bounds, weighted, penalty):
    X, Z, Y, w = problem()
    w = w if weighted else np.ones(len(X))
    K, G = KERNEL(X, Z), KERNEL(Z, Z)
    expected = np.linalg.solve(K.T @ (w[:, None] * K) + penalty * len(X) * G, K.T @ (w[:, None] * Y))
    weight = w if weighted else None
    *_, last = block_descent(operators(X, Z, bounds), Y, G, penalty, max_iter=300, tol=1e-10, weight=weight, n_jobs=1)
    assert last.converged
    assert_allclose(last.coef(), expected, atol=1e-6 * np.abs(expected).max())
    if len(bounds) == 2:
        assert last.iteration == 2  # one solve, and one that finds nothing left to do


def test_a_sweep_is_the_textbook_one():
    X, Z, Y, _ = problem(k=1)
    K, G, mu = KERNEL(X, Z), KERNEL(Z, Z), 0.01 * len(X)
    alpha, A, b = np.zeros((18, 1)), K.T @ K + mu * G, K.T @ Y
    bounds = [0, 7, 14, 18]
    found = block_descent(operators(X, Z, bounds), Y, G, 0.01, max_iter=3, n_jobs=1)
    for iterate in found:
        before = []
        for start, stop in pairwise(bounds):
            at = slice(start, stop)
            before.append((b - A @ alpha)[at])
            alpha[at] += np.linalg.solve(A[at, at], before[-1])
        assert_allclose(iterate.coef(), alpha, rtol=1e-8, atol=1e-10)
        assert_allclose(iterate.residual, np.linalg.norm(np.vstack(before)) / np.linalg.norm(b), rtol=1e-6)
        assert iterate.passes == 2 * iterate.iteration


@pytest.mark.parametrize("penalty", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_error(penalty, weighted):
    """It is about the distance to the solution in the system's own norm, which that of fitted values is a part of."""
    X, Z, Y, w = problem(M=40)
    w = w if weighted else np.ones(len(X))
    K, G = KERNEL(X, Z), KERNEL(Z, Z)
    A = K.T @ (w[:, None] * K) + penalty * len(X) * G
    expected = np.linalg.solve(A, K.T @ (w[:, None] * Y))
    blocks = operators(X, Z, list(range(0, 41, 5)))
    weight = w if weighted else None
    for iterate in block_descent(blocks, Y, G, penalty, max_iter=60, tol=1e-6, weight=weight, n_jobs=1):
        e = iterate.coef() - expected
        off = np.sqrt((e * (A @ e)).sum(axis=0) / len(X))
        assert (iterate.error > off / 3).all()
        assert (iterate.error < 3 * off).all() or iterate.iteration == 1


def test_features():
    X, _, Y, _ = problem()
    features = KERNEL.random_features(20, 2, np.random.RandomState(0)) + Laplacian(2.0).random_features(
        7, 2, np.random.RandomState(1)
    )
    F = features(X)
    parts = [features.columns(start, min(start + 6, 27)) for start in range(0, 27, 6)]
    assert_allclose(np.hstack([part(X) for part in parts]), F)
    expected = np.linalg.solve(F.T @ F + 0.1 * len(X) * np.eye(27), F.T @ Y)
    *_, last = block_descent(
        [feature_operator(part, X, n_jobs=1) for part in parts], Y, None, 0.1, max_iter=300, tol=1e-12, n_jobs=1
    )
    assert_allclose(last.coef(), expected, atol=1e-8)


def test_duplicate_centers_and_y_of_zeros():
    X, Z, Y, _ = problem()
    Z = np.repeat(Z[:3], 6, axis=0)
    K, G = KERNEL(X, Z), KERNEL(Z, Z)
    *_, last = block_descent(operators(X, Z, [0, 9, 18]), Y, G, 1e-3, max_iter=200, tol=1e-10, n_jobs=1)
    distinct = KERNEL(X, Z[::6])
    system = distinct.T @ distinct + 1e-3 * len(X) * KERNEL(Z[::6], Z[::6])
    assert_allclose(K @ last.coef(), distinct @ np.linalg.solve(system, distinct.T @ Y), atol=1e-6)
    (last,) = block_descent(operators(X, Z, [0, 9, 18]), 0 * Y, G, 1e-3, max_iter=200, tol=1e-10, n_jobs=1)
    assert not last.coef().any()
