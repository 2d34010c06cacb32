"""Principal components of Nyström features against dense eigenvectors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Constant, Gaussian, Laplacian
from gyrfalcon.preconditioners import Whitening
from gyrfalcon.solvers import (
    components_of_centers,
    features_of,
    largest_components,
    nystrom_features,
    principal_components,
    row_squares,
)


def problem(kernel, n=400, M=80):
    X = np.random.default_rng(0).standard_normal((n, 2))
    operator = KernelOperator(kernel, X, X[:M])
    whitening = Whitening(operator.centers_gram(), n)
    return operator, whitening, np.hstack([F for _, F in nystrom_features(operator, whitening)]).T


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplacian(1.0)], ids=["smooth", "rough"])
def test_both_solvers_have_the_eigenvectors_of_the_covariance(kernel):
    operator, whitening, F = problem(kernel)
    H = np.cov(F.T, bias=True)
    s, V = np.linalg.eigh(H)
    found = principal_components(operator, whitening)
    assert_allclose(found.eigenvalues, s[::-1], atol=1e-12)
    assert_allclose(found.mean, F.mean(axis=0), atol=1e-12)
    few = largest_components(operator, whitening, 5, tol=1e-9, random_state=np.random.RandomState(0))
    assert few.residual <= 1e-9
    assert_allclose(few.eigenvalues, s[::-1][:5], rtol=1e-8)
    assert_allclose(np.abs(few.vectors.T @ V[:, ::-1][:, :5]), np.eye(5), atol=1e-6)
    assert_allclose(H @ few.vectors, few.vectors * few.eigenvalues, atol=1e-8)


def test_directions_that_the_centers_hardly_tell():
    # nearly all centers are in one group and nearly all rows in another, and k is 0 between them
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((40, 2)), 1_000 + rng.standard_normal((2_000, 2))])
    operator = KernelOperator(Gaussian(1.0), X, X[:60])
    whitening = Whitening(operator.centers_gram(), len(X))
    expected = principal_components(operator, whitening)
    few = largest_components(operator, whitening, 3, tol=1e-8, random_state=np.random.RandomState(0))
    assert_allclose(few.eigenvalues, expected.eigenvalues[:3], rtol=1e-10)
    assert_allclose(few.mean, expected.mean, atol=1e-12)


def test_few_passes_and_one_of_them_for_the_mean():
    operator, whitening, _ = problem(Gaussian(1.0), n=2_000)
    before = operator.passes
    found = largest_components(operator, whitening, 4, tol=1e-4, random_state=np.random.RandomState(0))
    assert found.passes == operator.passes - before <= 4
    rough = components_of_centers(operator, whitening, 4, np.random.RandomState(0))
    assert operator.passes - before == found.passes
    # 80 of the rows are centers, so that their variances are those of all rows to some tenths
    assert_allclose(rough.eigenvalues, found.eigenvalues, rtol=0.5)


def test_every_component_and_none():
    operator, whitening, _ = problem(Gaussian(2.0), n=60, M=20)
    every = largest_components(operator, whitening, whitening.rank, tol=0.0, random_state=np.random.RandomState(0))
    assert_allclose(every.eigenvalues, principal_components(operator, whitening).eigenvalues, atol=1e-10)
    operator, whitening, _ = problem(Constant(1.0), n=60, M=20)
    found = largest_components(operator, whitening, 1, tol=1e-8, random_state=np.random.RandomState(0))
    assert_allclose(found.eigenvalues, 0, atol=1e-12)
    operator, whitening, _ = problem(Constant(0.0), n=60, M=20)
    assert principal_components(operator, whitening).eigenvalues.shape == (0,)


def test_features_of_a_few_rows_and_squares_of_products():
    operator, whitening, F = problem(Gaussian(1.0))
    X = operator.rows.take(np.arange(400))
    assert_allclose(features_of(operator, whitening, X[7:11]), F[7:11].T, atol=1e-8)
    V = np.random.default_rng(1).standard_normal((80, 6))
    K = Gaussian(1.0)(X, X[:80])
    assert_allclose(row_squares(operator, V, 2), np.square(K @ V).sum(axis=1), rtol=1e-10)
