"""Factorisations in tiles against NumPy's in float64, and their bits for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon._utils import linalg as _linalg
from gyrfalcon._utils.linalg import add_square, cholesky, solve_upper_transposed, square_lower

SIZES = [1, 7, 16, 17, 40, 63]


@pytest.fixture(params=[False, True], ids=["whole", "tiled"])
def tiled(request, monkeypatch):
    """Both ways of every routine on small matrices: tiles of 16."""
    monkeypatch.setattr(_linalg, "_TILE", 16)
    if request.param:
        monkeypatch.setattr(_linalg, "_SMALL", 0)
    return request.param


def matrix(M, dtype, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((M, 2 * M))
    return np.asfortranarray((A @ A.T / M + np.eye(M)).astype(dtype))


def tolerance(dtype, M):
    return 20 * M * np.finfo(dtype).eps


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_in_one_triangle(M, dtype, lower, tiled):
    given = matrix(M, dtype)
    A = given.copy(order="F")
    assert cholesky(A, lower=lower, n_threads=2)
    L = np.linalg.cholesky(given.astype(np.float64))
    mine, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    assert_allclose(mine(A), L if lower else L.T, atol=tolerance(dtype, M))
    assert_array_equal(other(A, 1 if lower else -1), other(given, 1 if lower else -1))


@pytest.mark.parametrize("at", [0, 20, 39])
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_of_what_is_not_positive(at, lower, tiled):
    A = matrix(40, np.float64)
    A[at, at] = -1.0
    assert not cholesky(A, lower=lower, n_threads=2)


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_square_of_the_lower_triangle(M, dtype, tiled):
    given = matrix(M, dtype)
    A = given.copy(order="F")
    square_lower(A, n_threads=2)
    L = np.tril(given.astype(np.float64))
    assert_allclose(np.tril(A), np.tril(L.T @ L), rtol=tolerance(dtype, M), atol=tolerance(dtype, M))
    assert_array_equal(np.triu(A, 1), np.triu(given, 1))


@pytest.mark.parametrize("M", SIZES)
def test_square_added_to_the_lower_triangle(M, tiled):
    given, S = matrix(M, np.float64), np.random.default_rng(1).standard_normal((11, M))
    A = given.copy(order="F")
    add_square(A, S, n_threads=2)
    assert_allclose(np.tril(A), np.tril(given + S.T @ S), atol=1e-12)
    assert_array_equal(np.triu(A, 1), np.triu(given, 1))


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("columns", [1, 5, 40])
def test_solve_with_the_transpose(M, columns, tiled):
    U, B = matrix(M, np.float64), np.random.default_rng(1).standard_normal((M, columns))
    X = B.copy()
    solve_upper_transposed(U, X, n_threads=2)
    assert_allclose(np.triu(U).T @ X, B, atol=1e-10)


def test_same_bits_for_any_threads(monkeypatch):
    monkeypatch.setattr(_linalg, "_SMALL", 0)
    monkeypatch.setattr(_linalg, "_TILE", 32)
    given, results = matrix(200, np.float32), []
    S = np.random.default_rng(1).standard_normal((50, 200)).astype(np.float32)
    for n_threads in (1, 2, 5):
        A = given.copy(order="F")
        add_square(A, S, n_threads=n_threads)
        square_lower(A, n_threads=n_threads)
        assert cholesky(A, lower=True, n_threads=n_threads)
        X = S.T.copy()
        solve_upper_transposed(A, X, n_threads=n_threads)
        results.append((A, X))
    for A, X in results[1:]:
        assert_array_equal(A, results[0][0])
        assert_array_equal(X, results[0][1])
