"""Newton's method against a dense float64 Newton solve of the same penalised problem."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular
from sklearn.datasets import load_digits

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Linear, Matern
from gyrfalcon.losses import (
    Hinge,
    Huber,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from gyrfalcon.preconditioners import Preconditioner
from gyrfalcon.solvers import conjugate_gradient
from gyrfalcon.solvers.newton import newton


class Dense:
    """The problem in the orthonormal coordinates of the centers' functions, with full matrices."""

    def __init__(self, K, K_MM, y, loss, penalty, weight=None, offset=0.0):
        self.T = cholesky(K_MM)
        self.F = solve_triangular(self.T, K.T, trans=1).T
        self.y, self.loss, self.penalty, self.offset = y, loss, penalty, offset
        self.weight = np.ones(len(y)) if weight is None else weight

    def f(self, v):
        return self.F @ v + self.offset

    def objective(self, v):
        with np.errstate(over="ignore"):
            value = (self.weight[:, None] * self.loss.value(self.y, self.f(v))).sum() / len(self.y)
        return value + self.penalty / 2 * np.square(v).sum()

    def gradient(self, v):
        slopes = self.weight[:, None] * self.loss.gradient(self.y, self.f(v))
        return self.F.T @ slopes / len(self.y) + self.penalty * v

    def relative_gradient(self, alpha):
        v = self.T @ alpha
        return np.linalg.norm(self.gradient(v)) / np.linalg.norm(self.gradient(np.zeros_like(v)))

    def solve(self):
        """Damped Newton from 0, through larger penalties, with the whole Hessian."""
        k = self.y.shape[1]
        v, M = np.zeros((self.F.shape[1], k)), self.F.shape[1]
        wanted = self.penalty
        for self.penalty in [*np.geomspace(1, wanted, 12)[:-1], *[wanted] * 60]:
            H = np.empty((M, k, M, k))
            for b in range(k):
                column = self.loss.curvature(self.y, self.f(v), np.eye(k)[[b] * len(self.y)])
                for a in range(k):
                    H[:, a, :, b] = (self.F.T * (self.weight * column[:, a])) @ self.F / len(self.y)
            H = H.reshape(M * k, M * k) + self.penalty * np.eye(M * k)
            g = self.gradient(v)
            d = -np.linalg.solve(H, g.ravel()).reshape(M, k)
            t = 1.0
            while self.objective(v + t * d) > self.objective(v) + 1e-4 * t * (g * d).sum() and t > 1e-10:
                t /= 2
            v = v + t * d
            if self.penalty == wanted and np.linalg.norm(g) < 1e-11:
                break
        return solve_triangular(self.T, v)


def digits(n=600, M=40):
    X, labels = load_digits(return_X_y=True)
    X, labels = X[:n] / 16, labels[:n]
    return X, labels, np.arange(0, n, n // M)[:M]


def sums(n=500, M=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(2 * X[:, :1]) + X[:, 1:2], np.sort(rng.choice(n, M, replace=False))


def run(X, y, loss, rows, penalty, kernel=None, *, dtype=np.float64, max_iter=60, tol=1e-14, **options):
    kernel = Matern(2.0, nu=1.5) if kernel is None else kernel
    K = KernelOperator(kernel, X.astype(dtype), X[rows].astype(dtype), n_jobs=1)
    B = Preconditioner(K.centers_gram(np.float64), penalty, len(X), tile_dtype=dtype)
    return list(newton(K, y.astype(dtype), loss, B, penalty, max_iter=max_iter, tol=tol, center_rows=rows, **options))


def dense(X, y, loss, rows, penalty, kernel=None, **options):
    kernel = Matern(2.0, nu=1.5) if kernel is None else kernel
    return Dense(kernel(X, X[rows]), kernel(X[rows], X[rows]), y, loss, penalty, **options)


def agree(iterates, reference, loss, gradient=1e-6, objective=1e-6):
    alpha, best = iterates[-1].coef(), reference.solve()
    assert reference.relative_gradient(best) < 1e-8
    assert reference.relative_gradient(alpha) < gradient
    of_best = loss.value(reference.y, reference.f(reference.T @ best)).mean()
    assert loss.value(reference.y, reference.f(reference.T @ alpha)).mean() == pytest.approx(of_best, abs=objective)
    assert iterates[-1].objective == pytest.approx(reference.objective(reference.T @ best), rel=objective)


@pytest.mark.parametrize("penalty", [1e-3, 1e-6, 1e-9])
def test_binary_logistic(penalty):
    X, signal, rows = sums()
    y = np.where(signal + 0.5 * np.random.default_rng(1).standard_normal(signal.shape) > 0, 1.0, -1.0)
    iterates = run(X, y, Logistic(), rows, penalty)
    agree(iterates, dense(X, y, Logistic(), rows, penalty), Logistic())


@pytest.mark.parametrize("penalty", [1e-3, 1e-6])
def test_binary_logistic_on_digits(penalty):
    X, labels, rows = digits()
    y = np.where(labels % 2 == 1, 1.0, -1.0)[:, None]
    iterates = run(X, y, Logistic(), rows, penalty)
    agree(iterates, dense(X, y, Logistic(), rows, penalty), Logistic())


@pytest.mark.parametrize("loss", [SquaredHinge(), Hinge(0.02)], ids=repr)
@pytest.mark.parametrize("penalty", [1e-3, 1e-6])
def test_margins_with_weights(loss, penalty):
    X, signal, rows = sums()
    rng = np.random.default_rng(1)
    y = np.where(np.hstack([signal, X[:, 2:]]) + 0.5 * rng.standard_normal((len(X), 2)) > 0, 1.0, -1.0)
    weight = rng.uniform(0, 2, size=len(X))
    weight[:50] = 0
    weight /= weight.mean()
    iterates = run(X, y, loss, rows, penalty, weight=weight, max_iter=200)
    agree(iterates, dense(X, y, loss, rows, penalty, weight=weight), loss)


@pytest.mark.parametrize("penalty", [1e-3, 1e-6])
def test_squared_hinge_of_ten_classes(penalty):
    X, labels, rows = digits()
    y = 2 * np.eye(10)[labels] - 1
    iterates = run(X, y, SquaredHinge(), rows, penalty, max_iter=100)
    agree(iterates, dense(X, y, SquaredHinge(), rows, penalty), SquaredHinge())


@pytest.mark.parametrize("penalty", [1e-3, 1e-6])
def test_softmax_on_digits(penalty):
    X, labels, rows = digits(400, 20)
    y = np.eye(10)[labels]
    iterates = run(X, y, Softmax(), rows, penalty)
    agree(iterates, dense(X, y, Softmax(), rows, penalty), Softmax())


@pytest.mark.parametrize("penalty", [1e-6, 1e-9])
def test_softmax_with_noise_and_small_penalties(penalty):
    X, signal, rows = sums(M=30)
    scores = np.hstack([signal, -signal, X[:, 2:]]) + np.random.default_rng(1).gumbel(size=(len(X), 3))
    y = np.eye(3)[scores.argmax(axis=1)]
    iterates = run(X, y, Softmax(), rows, penalty)
    agree(iterates, dense(X, y, Softmax(), rows, penalty), Softmax())


@pytest.mark.parametrize(
    "loss",
    [
        Squared(),
        Huber(0.5),
        Quantile([0.1, 0.5, 0.9], 0.05),
        Quantile(0.3, 0.2),
        Poisson(),
        SquaredEpsilonInsensitive(0.5),
    ],
    ids=repr,
)
@pytest.mark.parametrize("penalty", [1e-4, 1e-8])
def test_losses_of_numbers_with_weights_and_offsets(loss, penalty):
    X, signal, rows = sums()
    rng = np.random.default_rng(2)
    y = rng.poisson(np.exp(signal)).astype(float) if isinstance(loss, Poisson) else signal + rng.laplace(size=(500, 1))
    y = np.hstack([y] * (3 if np.ndim(getattr(loss, "level", 0)) else 1))
    weight = rng.uniform(0, 2, size=len(X))
    weight[:50] = 0
    weight /= weight.mean()
    offset = loss.offset(y, weight)
    iterates = run(X, y, loss, rows, penalty, weight=weight, offset=offset)
    agree(iterates, dense(X, y, loss, rows, penalty, weight=weight, offset=offset), loss)


def test_squared_loss_is_falkon():
    X, y, rows = sums()
    alpha = run(X, y, Squared(), rows, 1e-5)[-1].coef()
    K = KernelOperator(Matern(2.0, nu=1.5), X, X[rows])
    B = Preconditioner(K.centers_gram(), 1e-5, len(X))
    *_, last = conjugate_gradient(K, y, B, 1e-5, max_iter=100, tol=1e-12)
    np.testing.assert_allclose(K.matmat(alpha), K.matmat(last.coef()), atol=1e-7)


def test_columns_that_are_not_coupled_do_not_change_each_other():
    X, signal, rows = sums()
    y = np.where(np.hstack([signal, X[:, :1] - 1, X[:, 1:2]]) > 0, 1.0, -1.0)
    together = run(X, y, Logistic(), rows, 1e-4)[-1].coef()
    for j in range(3):
        alone = run(X, y[:, [j]], Logistic(), rows, 1e-4)[-1].coef()
        K = Matern(2.0, nu=1.5)(X, X[rows])
        np.testing.assert_allclose(K @ together[:, [j]], K @ alone, atol=1e-5)


def test_a_row_of_weight_two_is_two_rows():
    X, signal, rows = sums(n=200, M=20)
    y = np.sign(signal + 0.3)
    weight = np.ones(200)
    weight[100:] = 2
    weighted = run(X, y, Logistic(), rows, 1e-4, weight=weight / weight.mean())[-1].coef()
    twice = np.r_[np.arange(200), np.arange(100, 200)]
    repeated = run(X[twice], y[twice], Logistic(), rows, 1e-4)[-1].coef()
    K = Matern(2.0, nu=1.5)(X, X[rows])
    np.testing.assert_allclose(K @ weighted, K @ repeated, atol=1e-5)


def test_what_an_iterate_says():
    X, signal, rows = sums()
    y = np.sign(signal + np.random.default_rng(0).standard_normal(signal.shape))
    iterates = run(X, y, Logistic(), rows, 1e-6, tol=1e-6)
    assert [i.iteration for i in iterates] == list(range(1, len(iterates) + 1))
    assert [i.passes for i in iterates] == np.cumsum([i.cg_steps + 1 for i in iterates]).tolist()
    assert all(a.penalty >= b.penalty for a, b in itertools.pairwise(iterates))
    assert iterates[0].penalty > 1e-3
    assert iterates[-1].penalty == 1e-6
    assert [i.converged for i in iterates] == [False] * (len(iterates) - 1) + [True]
    assert iterates[-1].residual <= 1e-6
    reference = dense(X, y, Logistic(), rows, 1e-6)
    for iterate in iterates:
        assert iterate.objective == pytest.approx(reference.objective(reference.T @ iterate.coef()), rel=1e-7)
        assert iterate.details["objective"] == iterate.objective
    at_last = [i.objective for i in iterates if i.penalty == 1e-6]
    assert (np.diff(at_last) <= 0).all()


def test_a_start_at_the_solution_is_done_at_once():
    X, signal, rows = sums()
    y = np.sign(signal + np.random.default_rng(0).standard_normal(signal.shape))
    first = run(X, y, Logistic(), rows, 1e-6, tol=1e-8)
    again = run(X, y, Logistic(), rows, 1e-6, tol=1e-7, start=first[-1].coef())
    assert len(again) == 1
    assert again[0].converged
    assert again[0].penalty == 1e-6


def test_given_penalties_and_steps():
    X, signal, rows = sums()
    y = np.sign(signal + np.random.default_rng(0).standard_normal(signal.shape))
    iterates = run(X, y, Logistic(), rows, 1e-6, path=[1e-1, 1e-3, 1e-9], cg_steps=[1, 2, 3], max_iter=6)
    np.testing.assert_allclose([i.penalty for i in iterates], [1e-1, 1e-3, 1e-6, 1e-6, 1e-6, 1e-6])
    assert [i.cg_steps for i in iterates] == [1, 2, 3, 3, 3, 3]
    assert {i.cg_steps for i in run(X, y, Logistic(), rows, 1e-6, cg_steps=2, max_iter=4)} == {2}


@pytest.mark.parametrize("penalty", [1e-6, 1e-12, 0.0])
def test_separable_data(penalty):
    X, signal, rows = sums()
    iterates = run(X, np.sign(signal), Logistic(), rows, penalty)
    f = Matern(2.0, nu=1.5)(X, X[rows]) @ iterates[-1].coef()
    assert np.isfinite(f).all()
    # without a penalty there is no least point, but nothing overflows on the way
    assert iterates[-1].objective < (0.15 if penalty else 0.05)


def test_float32_ends_at_its_own_precision():
    X, signal, rows = sums()
    y = np.sign(signal + np.random.default_rng(0).standard_normal(signal.shape))
    iterates = run(X, y, Logistic(), rows, 1e-6, dtype=np.float32, tol=0.0, max_iter=60)
    assert len(iterates) < 40
    reference = dense(X, y, Logistic(), rows, 1e-6)
    assert reference.relative_gradient(iterates[-1].coef()) < 1e-4
    best = reference.objective(reference.T @ reference.solve())
    assert reference.objective(reference.T @ iterates[-1].coef()) == pytest.approx(best, rel=1e-6)


def test_large_counts_and_a_start_far_away():
    X, signal, rows = sums()
    y = np.random.default_rng(0).poisson(1e4 * np.exp(signal)).astype(float)
    iterates = run(X, y, Poisson(), rows, 1e-6)  # from f = 0, where Newton's first step would overflow
    agree(iterates, dense(X, y, Poisson(), rows, 1e-6, offset=0.0), Poisson(), objective=1e-5)


class Concave(Loss):
    """Smooth, but with a negative second derivative far from y, as robust losses have."""

    def value(self, y, f):
        return np.log1p(np.square(f - y))

    def gradient(self, y, f):
        return 2 * (f - y) / (1 + np.square(f - y))

    def hessian(self, y, f):
        r2 = np.square(f - y)
        return 2 * (1 - r2) / np.square(1 + r2)


def test_a_loss_that_is_not_convex_goes_down_all_the_same():
    X, signal, rows = sums()
    y = 3 * signal
    iterates = run(X, y, Concave(), rows, 1e-6)
    objectives = [i.objective for i in iterates if i.penalty == iterates[-1].penalty]
    assert (np.diff(objectives) <= 1e-12).all()
    assert objectives[-1] < Concave().value(y, np.zeros_like(y)).mean() / 3
    assert np.isfinite(iterates[-1].coef()).all()


@pytest.mark.parametrize("kernel", [Linear(), Gaussian(100.0)], ids=repr)
def test_centers_that_depend_on_each_other(kernel):
    X, signal, rows = sums()
    y = np.sign(signal + np.random.default_rng(0).standard_normal(signal.shape))
    iterates = run(X, y, Logistic(), rows, 1e-6, kernel, tol=1e-8)
    f = kernel(X, X[rows]) @ iterates[-1].coef()
    assert Logistic().value(y, f).mean() < 0.65
    assert iterates[-1].converged


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_rows(n):
    X = np.linspace(0, 1, n)[:, None]
    y = np.where(np.arange(n) % 2, 1.0, -1.0)[:, None]
    iterates = run(X, y, Logistic(), np.arange(n), 1e-2, tol=1e-10)
    agree(iterates, dense(X, y, Logistic(), np.arange(n), 1e-2), Logistic())


def test_centers_that_are_no_rows():
    X, signal, rows = sums()
    y = np.sign(signal + np.random.default_rng(0).standard_normal(signal.shape))
    K = KernelOperator(Matern(2.0, nu=1.5), X, X[rows])
    B = Preconditioner(K.centers_gram(), 1e-6, len(X))
    iterates = list(newton(K, y, Logistic(), B, 1e-6, max_iter=60, tol=1e-14))
    agree(iterates, dense(X, y, Logistic(), rows, 1e-6), Logistic())


def test_operator_and_coordinates_must_belong_together():
    X, y, rows = sums()
    K = KernelOperator("gaussian", X, X[rows])
    B = Preconditioner(K.centers_gram(), 1e-6, 7)
    with pytest.raises(ValueError, match="made for"):
        next(newton(K, y, Squared(), B, 1e-6, max_iter=1, tol=0.0))
