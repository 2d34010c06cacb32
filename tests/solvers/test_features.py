"""Ridge regression on features against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import CallableKernel, Gaussian, Laplacian
from gyrfalcon.preconditioners import FeatureCoordinates
from gyrfalcon.solvers import conjugate_gradient, normal_equations, solve_ridge


def operator_of(features, X, **options):
    return KernelOperator(CallableKernel(features), X, features.weights, **{"memory_budget": 0, **options})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(1, 5), (40, 300), (1000, 7), (700, 130)], ids=str)
def test_normal_equations(shape, weighted):
    n, M = shape
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, 3)), rng.standard_normal((n, 2))
    w = rng.uniform(0, 2, n) if weighted else None
    features = Gaussian(1.0).random_features(M, 3, np.random.RandomState(0))
    F = features(X)
    W = np.eye(n) if w is None else np.diag(w)
    operator = operator_of(features, X)
    G, c = normal_equations(operator, y, w)
    assert operator.passes == 1
    assert_allclose(G, F.T @ W @ F, atol=1e-11)
    assert_allclose(c, F.T @ W @ y, atol=1e-11)
    assert_array_equal(G, G.T)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_threads_gives_the_same_bits(dtype):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1500, 6)).astype(dtype), rng.standard_normal((1500, 1))
    features = Laplacian(1.0).random_features(150, 6, np.random.RandomState(0))

    def run(n_jobs):
        return normal_equations(operator_of(features, X, n_jobs=n_jobs), y, n_jobs=n_jobs)

    for one, other in zip(run(1), run(3), strict=True):
        assert_array_equal(one, other)


def test_normal_equations_leave_a_kept_matrix_alone():
    X, y = np.random.default_rng(0).standard_normal((300, 3)), np.ones((300, 1))
    features = Gaussian(1.0).random_features(20, 3, np.random.RandomState(0))
    operator = operator_of(features, X, memory_budget="1MB")
    first = normal_equations(operator, y, np.full(300, 4.0))
    again = normal_equations(operator, y, np.full(300, 4.0))
    assert operator.keeps
    assert_array_equal(first[0], again[0])


def test_solve_ridge():
    rng = np.random.default_rng(0)
    A, y = rng.standard_normal((30, 12)), rng.standard_normal((30, 3))
    expected = np.linalg.solve(A.T @ A + 0.5 * np.eye(12), A.T @ y)
    assert_allclose(solve_ridge(A.T @ A, A.T @ y, 0.5), expected, rtol=1e-10)
    # more features than rows, and no penalty: the shortest of the solutions
    B, z = rng.standard_normal((5, 12)), rng.standard_normal((5, 1))
    assert_allclose(solve_ridge(B.T @ B, B.T @ z, 0.0), np.linalg.pinv(B) @ z, rtol=1e-8, atol=1e-10)
    assert_allclose(solve_ridge(B.T @ B, B.T @ z, 1e-30), np.linalg.pinv(B) @ z, rtol=1e-8, atol=1e-10)
    assert_array_equal(solve_ridge(np.zeros((3, 3)), np.zeros((3, 1)), 0.0), np.zeros((3, 1)))


def test_coordinates_are_those_of_features():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 3)), rng.standard_normal((200, 2))
    features = Gaussian(1.0).random_features(30, 3, np.random.RandomState(0))
    F = features(X)
    operator = operator_of(features, X)
    *_, last = conjugate_gradient(operator, y, FeatureCoordinates(200, 30), 1e-2, max_iter=200, tol=1e-12)
    assert_allclose(last.coef(), np.linalg.solve(F.T @ F + 2.0 * np.eye(30), F.T @ y), rtol=1e-8)
