"""The Nyström preconditioner is the inverse that it says it is, for all rows and without each fold."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Laplacian, Linear
from gyrfalcon.operators import feature_operator
from gyrfalcon.preconditioners import NystromPreconditioner

N, M = 120, 25


def rows(d=3):
    return np.random.default_rng(0).standard_normal((N, d))


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplacian(1.0), Linear()], ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_inverse(kernel, weighted):
    X, rng = rows(), np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, size=N) if weighted else None
    fold = rng.integers(0, 3, size=N)
    P = NystromPreconditioner(KernelOperator(kernel, X, X[:M]), 1e-6, weight=weight, fold=fold)
    left_out, s = np.array([-1, 0, 2, 0]), P.least_shift + np.array([0.5, 0.5, 3.0, 100.0])
    V = rng.standard_normal((N, 4))
    V[fold[:, None] == left_out] = 0
    K_MM, root = kernel(X[:M], X[:M]), np.ones(N) if weight is None else np.sqrt(weight)
    F2 = root[:, None] * kernel(X, X[:M]) @ np.linalg.pinv(K_MM, hermitian=True) @ kernel(X[:M], X) * root
    U = P.apply(V, s, left_out)
    for c, f in enumerate(left_out):
        T = np.flatnonzero(fold != f)
        expected = s[c] * np.linalg.solve(F2[np.ix_(T, T)] + s[c] * np.eye(len(T)), V[T, c])
        assert_allclose(U[T, c], expected, atol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_random_features_are_its_factor(weighted):
    X, rng = rows(), np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, size=N) if weighted else None
    features = Gaussian(1.0).random_features(M, 3, np.random.RandomState(0))
    P = NystromPreconditioner(feature_operator(features, X), 1e-9, weight=weight)
    V, s = rng.standard_normal((N, 2)), np.array([0.5, 3.0])
    F = features(X) if weight is None else np.sqrt(weight)[:, None] * features(X)
    for c in range(2):
        expected = s[c] * np.linalg.solve(F @ F.T + s[c] * np.eye(N), V[:, c])
        assert_allclose(P.apply(V, s, np.full(2, -1))[:, c], expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [Gaussian(5.0), Laplacian(1.0)], ids=repr)
def test_it_is_positive_for_every_shift(kernel, dtype):
    X = rows().astype(dtype)
    fold = np.arange(N) % 4
    P = NystromPreconditioner(KernelOperator(kernel, X, X[:M]), 1e-9, fold=fold)
    for f in (-1, 0, 3):
        T = fold != f
        eye = np.eye(N)[:, T]
        A = P.apply(eye, np.full(eye.shape[1], 1e-9), np.full(eye.shape[1], f))[T]
        # in float32 up to rounding of products with T^-1, which is at most 1 / sqrt(jitter): conjugate gradient takes
        # each step to the minimum along its direction and is not misled by that
        rounding = np.finfo(dtype).eps * np.sqrt(M / P.whitening.jitter) if P.whitening.jitter else 0.0
        assert np.linalg.eigvalsh((A + A.T) / 2).min() > -rounding


def test_a_kernel_of_zeros_leaves_vectors_as_they_are():
    P = NystromPreconditioner(KernelOperator(Linear(), np.zeros((5, 2)), np.zeros((3, 2))), 1.0)
    V = np.arange(10.0).reshape(5, 2)
    assert_array_equal(P.apply(V, np.ones(2), np.full(2, -1)), V)


def test_the_same_bits_for_any_number_of_threads():
    X = rows()
    V = np.random.default_rng(2).standard_normal((N, 2))
    found = []
    for n_jobs in (1, 3):
        few = KernelOperator(Laplacian(1.0), X, X[:M], n_jobs=n_jobs)
        P = NystromPreconditioner(few, 0.1, fold=np.arange(N) % 2, n_jobs=n_jobs)
        found.append(P.apply(V, np.full(2, 0.1), np.array([-1, 1])))
    assert_array_equal(found[0], found[1])
