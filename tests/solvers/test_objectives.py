"""Objectives for tuning: values against dense formulas, derivatives against finite differences, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from gyrfalcon.kernels import Gaussian, Laplacian, Matern, RationalQuadratic
from gyrfalcon.solvers.objectives import TuningProblem, _inverse, slopes_of, validation_slopes

SCALES = np.array([0.8, 1.3, 2.0])
KERNELS = [
    Gaussian(SCALES),
    Laplacian(SCALES),
    Laplacian(SCALES, norm=1),
    Matern(SCALES, nu=0.5),
    Matern(SCALES, nu=1.5),
    Matern(SCALES, nu=2.5),
    RationalQuadratic(SCALES, alpha=0.7),
    1.5 * Gaussian(SCALES) + 0.5 * Matern(2 * SCALES, nu=1.5),
    Gaussian(SCALES) * Laplacian(3.0, norm=1),
]


def data(n=40, k=1, weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    Y = np.stack([np.sin(2 * X[:, 0] + j) + 0.3 * rng.standard_normal(n) for j in range(k)], axis=1)
    weight = rng.uniform(0.5, 2, n) if weighted else None
    return TuningProblem(X, Y - Y.mean(axis=0), None if weight is None else weight / weight.mean(), 1)


def dense(objective, kernel, Z, mu, problem):
    """The objective by matrices of n x n."""
    n, k = problem.Y.shape
    root = np.ones(n) if problem.weight is None else np.sqrt(problem.weight)
    K, KZ = kernel(problem.X, problem.X) * np.outer(root, root), kernel(problem.X, Z) * root[:, None]
    Q = KZ @ np.linalg.solve(kernel(Z, Z), KZ.T)
    A, Y = Q + mu * np.eye(n), problem.Y * root[:, None]
    missed = np.trace(K) - np.trace(Q)
    quad = [y @ np.linalg.solve(A, y) for y in Y.T]
    if objective == "complexity":
        return k * np.trace(Q @ np.linalg.inv(A)) + (mu + missed / n) * sum(quad)
    logs = [multivariate_normal(cov=q / n * A).logpdf(y) for q, y in zip(quad, Y.T, strict=True)]
    return -sum(logs) + k * missed / (2 * mu)


@pytest.mark.parametrize("objective", ["evidence", "complexity"])
@pytest.mark.parametrize(("k", "weighted"), [(1, False), (2, True)])
def test_values_are_those_of_dense_formulas(objective, k, weighted):
    problem = data(k=k, weighted=weighted)
    kernel, Z = Gaussian(SCALES), problem.X[:8] + 0.01
    assert_allclose(slopes_of(objective, kernel, Z, 0.4, problem).value, dense(objective, kernel, Z, 0.4, problem))


def check(evaluate, kernel, Z, mu):
    """Compare derivatives with central differences, whose error is of the order 1e-10 relative to the value."""
    d, step = Z.shape[1], 1e-5
    found, theta = evaluate(kernel, Z, mu), kernel.log_parameters(d)
    unit = max(1.0, abs(found.value))

    def difference(up, down):
        return (up.value - down.value) / (2 * step)

    for j in range(len(theta)):
        move = step * np.eye(len(theta))[j]
        up, down = (kernel.with_log_parameters(theta + sign * move, d) for sign in (1, -1))
        expected = difference(evaluate(up, Z, mu), evaluate(down, Z, mu))
        assert_allclose(found.theta[j], expected, rtol=1e-6, atol=1e-6 * unit)
    expected = difference(evaluate(kernel, Z, mu * np.exp(step)), evaluate(kernel, Z, mu * np.exp(-step)))
    assert_allclose(found.log_mu, expected, rtol=1e-6, atol=1e-6 * unit)
    for at in [(0, 0), (3, 2)]:
        move = np.zeros_like(Z)
        move[at] = step
        expected = difference(evaluate(kernel, Z + move, mu), evaluate(kernel, Z - move, mu))
        assert_allclose(found.centers[at], expected, rtol=1e-6, atol=1e-6 * unit)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("objective", ["evidence", "complexity"])
def test_derivatives(objective, kernel):
    problem = data(k=2, weighted=True)
    Z = problem.X[:8] + 0.05
    check(lambda *at: slopes_of(objective, *at, problem, of_centers=True), kernel, Z, 0.4)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_derivatives_of_the_validation_error(kernel):
    problem, held = data(k=2, weighted=True), data(k=2, weighted=True, seed=1)
    Z = problem.X[:8] + 0.05
    check(lambda *at: validation_slopes(*at, problem, held, of_centers=True), kernel, Z, 0.4)


def test_several_blocks_give_the_same(monkeypatch):
    problem = data(k=2, weighted=True)
    kernel, Z = Matern(SCALES), problem.X[:8]
    whole = slopes_of("evidence", kernel, Z, 0.4, problem)
    monkeypatch.setattr("gyrfalcon.solvers.objectives._BLOCK", 7)
    parts = slopes_of("evidence", kernel, Z, 0.4, problem)
    assert_allclose(parts.value, whole.value, rtol=1e-12)
    assert_allclose(parts.theta, whole.theta, rtol=1e-9)


@pytest.mark.parametrize("objective", ["evidence", "complexity"])
def test_sums_of_products_and_whitened_rows_give_the_same(objective, monkeypatch):
    problem = data(n=200, k=2, weighted=True)
    kernel, Z = Matern(SCALES), problem.X[:30]
    found = []
    for share in (np.inf, 0.0):  # always L^-1 (K'K) L^-T, and never
        monkeypatch.setattr("gyrfalcon.solvers.objectives._ROUNDED", share)
        found.append(slopes_of(objective, kernel, Z, 0.4, problem, of_centers=True))
    assert_allclose(found[0].value, found[1].value, rtol=1e-10)
    assert_allclose(found[0].theta, found[1].theta, rtol=1e-7)
    assert_allclose(found[0].centers, found[1].centers, rtol=1e-6, atol=1e-8)


def test_triangular_factors_are_inverted_by_blocks():
    L = np.tril(np.random.default_rng(0).standard_normal((301, 301))) / 20 + 2 * np.eye(301)
    assert_allclose(_inverse(L) @ L, np.eye(301), rtol=0, atol=1e-10)
    assert (np.triu(_inverse(L), 1) == 0).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_products_in_float32_keep_the_value_and_nearly_the_derivatives(kernel, weighted):
    problem = data(n=200, k=2, weighted=weighted)
    Z = problem.X[:20] + 0.05
    exact, fast = (slopes_of("evidence", kernel, Z, 0.4, problem, of_centers=True, fast=fast) for fast in (False, True))
    assert fast.value == exact.value
    assert fast.log_mu == exact.log_mu
    assert not np.array_equal(fast.centers, exact.centers)
    # the products may have errors of 1e-3, which the sums over rows do not add up
    for found, expected in ((fast.theta, exact.theta), (fast.centers, exact.centers)):
        assert np.linalg.norm(found - expected) < 1e-3 * np.linalg.norm(expected)


def test_products_are_made_in_float64_where_float32_would_not_do():
    problem = data(n=200)
    kernel, Z = Gaussian(30.0), problem.X[:40]  # K_MM is close to singular: C has large entries, which cancel
    exact, fast = (slopes_of("evidence", kernel, Z, 1e-4, problem, of_centers=True, fast=how) for how in (False, True))
    assert np.array_equal(fast.theta, exact.theta)
    assert np.array_equal(fast.centers, exact.centers)
