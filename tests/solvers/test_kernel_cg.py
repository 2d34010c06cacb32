"""Conjugate gradient on K_nn: every column against a dense solve of its own system in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Laplacian
from gyrfalcon.preconditioners import NystromPreconditioner
from gyrfalcon.solvers import KernelSystems, kernel_cg

N = 150


def problem(dtype=np.float64, weighted=True, folds=3, seed=0):
    """Two targets, three penalties, with and without folds: a column of each."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 3)).astype(dtype)
    y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2 - 1], axis=1) + 0.1 * rng.standard_normal((N, 2))
    mu, left_out, output = (a.ravel() for a in np.meshgrid([1e-2, 1.0, 30.0], range(-1, folds), [0, 1], indexing="ij"))
    return X, KernelSystems(
        targets=y,
        output=output,
        mu=mu,
        left_out=left_out,
        size=np.full(len(mu), np.sqrt(N)),
        fold=rng.integers(0, folds, size=N) if folds else None,
        weight=rng.uniform(0.1, 3.0, size=N) if weighted else None,
    )


def dense(kernel, X, systems):
    """Coefficients of each column, 0 in the rows that it leaves out."""
    K = kernel(X.astype(np.float64), X.astype(np.float64))
    w = np.ones(N) if systems.weight is None else systems.weight
    alpha = np.zeros((N, len(systems.mu)))
    for c, (mu, out, f) in enumerate(zip(systems.mu, systems.output, systems.left_out, strict=True)):
        T = np.arange(N) if systems.fold is None else np.flatnonzero(systems.fold != f)
        alpha[T, c] = np.linalg.solve(K[np.ix_(T, T)] + mu * np.diag(1 / w[T]), systems.targets[T, out])
    return alpha, K @ alpha


@pytest.mark.parametrize("M", [0, 5, 40, N])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("folds", [0, 3])
@pytest.mark.parametrize("kernel", [Gaussian(1.5), Laplacian(2.0)], ids=repr)
def test_every_column_is_its_dense_solution(kernel, folds, weighted, M):
    X, systems = problem(weighted=weighted, folds=folds)
    operator = KernelOperator(kernel, X, X, memory_budget=0)
    P = None
    if M:
        few = KernelOperator(kernel, X, X[:M])
        P = NystromPreconditioner(few, 1e-2, weight=systems.weight, fold=systems.fold)
    *_, last = kernel_cg(operator, systems, P, max_iter=1000, tol=1e-11)
    alpha, values = dense(kernel, X, systems)
    assert last.converged
    # |alpha - alpha*| <= |residual| max(w)^(1/2) / mu, and fitted values are off by no more than the residual
    assert_allclose(last.coef(), alpha, atol=1e-11 * np.sqrt(N) * np.sqrt(3) / 1e-2)
    assert_allclose(last.values, values, atol=1e-8)
    assert last.passes <= last.iteration + 2


def test_more_centers_take_fewer_iterations():
    X, systems = problem(folds=0)
    operator = KernelOperator(Gaussian(1.5), X, X)
    needed = []
    for M in (5, 20, 100):
        P = NystromPreconditioner(KernelOperator(Gaussian(1.5), X, X[:M]), 1e-2, weight=systems.weight)
        needed.append([it.iteration for it in kernel_cg(operator, systems, P, max_iter=500, tol=1e-8)][-1])
    assert needed[0] > needed[1] > needed[2]


def test_residuals_are_true_and_bound_what_is_missing():
    X, systems = problem()
    kernel = Laplacian(2.0)
    operator = KernelOperator(kernel, X, X)
    _, values = dense(kernel, X, systems)
    K = kernel(X, X)
    for iterate in kernel_cg(operator, systems, None, max_iter=30, tol=1e-6):
        T = systems.fold[:, None] != systems.left_out
        w = systems.weight[:, None]
        residual = T * np.sqrt(w) * (systems.targets[:, systems.output] - K @ iterate.coef()) - systems.mu * (
            iterate.coef() / np.sqrt(w)
        )
        assert_allclose(iterate.residuals, np.linalg.norm(residual, axis=0) / systems.size, rtol=1e-6)
        off = np.linalg.norm(T * np.sqrt(w) * (K @ iterate.coef() - values), axis=0)
        assert (off <= iterate.residuals * systems.size * (1 + 1e-6)).all()


def test_columns_that_are_done_leave_the_product():
    X, systems = problem()
    operator = KernelOperator(Laplacian(2.0), X, X)
    active = [iterate.n_active for iterate in kernel_cg(operator, systems, None, max_iter=500, tol=1e-6)]
    assert active[0] == len(systems.mu)
    assert active == sorted(active, reverse=True)
    assert active[-1] < len(systems.mu) / 2


def test_float32_comes_as_far_as_it_can_and_stops():
    X, systems = problem(np.float32)
    kernel = Gaussian(1.5)
    P = NystromPreconditioner(KernelOperator(kernel, X, X[:40]), 1e-2, weight=systems.weight, fold=systems.fold)
    operator = KernelOperator(kernel, X, X)
    *_, last = kernel_cg(operator, systems, P, max_iter=1000, tol=1e-14)
    assert not last.converged
    assert last.iteration < 200
    values = dense(kernel, X, systems)[1]
    # rounding of K alpha with |alpha| up to y / mu, over the rows
    assert_allclose(last.values, values, atol=1e-3)


def test_iterates_stay_as_they_were():
    X, systems = problem()
    operator = KernelOperator(Laplacian(2.0), X, X)
    solver = kernel_cg(operator, systems, None, max_iter=20, tol=0.0)
    early = next(solver)
    coef, values = early.coef().copy(), early.values.copy()
    for _ in solver:
        pass
    assert_array_equal(early.coef(), coef)
    assert_array_equal(early.values, values)


def test_nothing_to_do():
    X, systems = problem(folds=0)
    operator = KernelOperator(Gaussian(1.5), X, X)
    (only,) = kernel_cg(operator, systems, None, max_iter=10, tol=1e9)
    assert only.iteration == 0
    assert only.converged
    assert_array_equal(only.coef(), 0)
    with pytest.raises(ValueError, match="every row as a center"):
        next(kernel_cg(KernelOperator(Gaussian(1.5), X, X[:9]), systems, None, max_iter=1, tol=1.0))
