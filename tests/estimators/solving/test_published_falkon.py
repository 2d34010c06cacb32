"""FALKON to the letter of the paper, iterate by iterate, against its formulas written out in dense float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from plain import plain
from sklearn.datasets import make_regression

from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.centers import Given, LeverageScores, Selection
from gyrfalcon.kernels import Gaussian, Laplacian
from gyrfalcon.preconditioners import Preconditioner

PENALTIES = [1e-3, 1e-5, 1e-7]
T_MAX = 12


def problem(n=400, M=60, seed=0):
    """Rows whose K_MM is well conditioned, so that float64 leaves nine digits of the iterates."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 4 + 0.1 * rng.standard_normal(n), X[:M]


def coefficients(model, X, y, sample_weight=None):
    """The coefficients after each iteration, as a fit of that length has them."""
    return [model.set_params(max_iter=t).fit(X, y, sample_weight).dual_coef_ for t in range(1, T_MAX + 1)]


def published(X, y, C, penalty, kernel, D=None, draws=None, w=None):
    """B of Definition 3, H of equation (8) and z: B'HB beta = B'z."""
    n, M = len(X), len(C)
    D, draws = (np.ones(M) if D is None else D), draws or M
    w = np.ones(n) if w is None else w / w.mean()
    K, K_MM = kernel(X, C), kernel(C, C)
    at_centers = np.ones(M)
    for j, c in enumerate(C):
        (same,) = np.flatnonzero((c == X).all(axis=1))
        at_centers[j] = w[same]
    T = np.linalg.cholesky(D[:, None] * K_MM * D + np.finfo(float).eps * M * np.eye(M)).T
    A = np.linalg.cholesky(T * at_centers @ T.T / draws + penalty * np.eye(M)).T
    B = D[:, None] * np.linalg.inv(A @ T) / np.sqrt(n)
    return B, K.T * w @ K + penalty * n * K_MM, K.T * w @ y


def conjugate_gradient(B, H, z):
    W, r = B.T @ H @ B, B.T @ z
    p, beta, found = r, np.zeros(len(r)), []
    for _ in range(T_MAX):
        a = r @ r / (p @ W @ p)
        beta, before, r = beta + a * p, r, r - a * (W @ p)
        p = r + r @ r / (before @ before) * p
        found.append(B @ beta)
    return found


def gradient_descent(B, H, z, step):
    beta, found = np.zeros(B.shape[1]), []
    for _ in range(T_MAX):
        beta = beta - step * B.T @ (H @ (B @ beta) - z)
        found.append(B @ beta)
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.filterwarnings("ignore:predictions are still off")
def test_conjugate_gradient_is_algorithm_1(penalty, weighted):
    X, y, C = problem()
    w = np.random.default_rng(1).uniform(0.2, 2.0, len(X)) if weighted else None
    kernel = Laplacian(1.0)
    # given centers have no weights of their own, so that the rows' are given by a selector that knows the rows
    model = plain(FalkonRegressor, kernel, centers=First(len(C)), penalty=penalty, preconditioner="paper", tol=0)
    expected = conjugate_gradient(*published(X, y, C, penalty, kernel, w=w))
    found = coefficients(model, X, y, w)
    scale = np.abs(expected[-1]).max()
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-8 * scale)
    assert {record["preconditioner"] for record in model.history_} == {"paper"}
    if penalty == 1e-7:  # it is another algorithm than the default one there
        house = plain(FalkonRegressor, kernel, centers=First(len(C)), penalty=penalty, preconditioner="falkon", tol=0)
        house.set_params(max_iter=3).fit(X, y, w)
        assert np.abs(house.dual_coef_ - expected[2]).max() > 1e-3 * scale
        assert {record["preconditioner"] for record in house.history_} == {"falkon"}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("step", [0.3, None])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_gradient_descent_is_basic_falkon(penalty, step, weighted):
    """Equations (11) and (12), where step stands for tau / n."""
    X, y, C = problem()
    w = np.random.default_rng(1).uniform(0.2, 2.0, len(X)) if weighted else None
    kernel = Laplacian(1.0)
    model = plain(FalkonRegressor, kernel, centers=First(len(C)), penalty=penalty, solver="gd", step=step, tol=0)
    B, H, z = published(X, y, C, penalty, kernel, w=w)
    largest = np.linalg.eigvalsh(B.T @ H @ B)[-1]
    found = coefficients(model, X, y, w)
    used = step or 1 / largest
    expected = gradient_descent(B, H, z, used)
    # the largest eigenvalue is estimated, to within a percent here
    atol = (1e-8 if step else 0.05) * np.abs(expected[-1]).max()
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=atol)
    assert {record["preconditioner"] for record in model.history_} == {"paper"}


@pytest.mark.parametrize("solver", ["cg", "gd"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_end_at_the_direct_solution(solver, dtype):
    X, y, C = problem()
    kernel, penalty = Laplacian(1.0), 1e-3
    model = plain(FalkonRegressor, kernel, centers=C, penalty=penalty, solver=solver, preconditioner="paper")
    model.set_params(max_iter=200).fit(X.astype(dtype), y)
    _, H, z = published(X, y, C, penalty, kernel)
    expected = kernel(X, C) @ np.linalg.solve(H, z)
    assert_allclose(model.predict(X.astype(dtype)), expected, atol=1e-6 if dtype == np.float64 else 2e-4)


@pytest.mark.filterwarnings("ignore:predictions are still off")
def test_leverage_scores_enter_by_D():
    """Definition 2: D is that of the draws, and M of Definition 3 their number."""
    X, y, _ = problem()
    kernel, penalty = Laplacian(1.0), 1e-5
    chosen = LeverageScores(penalty=1e-3).select(X, 60, kernel=kernel, penalty=penalty, random_state=0)
    model = plain(FalkonRegressor, kernel, centers=LeverageScores(penalty=1e-3), n_centers=60, penalty=penalty, tol=0)
    found = coefficients(model.set_params(preconditioner="paper", random_state=0), X, y)
    assert (model.centers_ == chosen.points).all()
    expected = conjugate_gradient(*published(X, y, chosen.points, penalty, kernel, chosen.D, chosen.n_draws))
    assert chosen.n_draws > 60
    for one, other in zip(found, expected, strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-8 * np.abs(expected[-1]).max())


@pytest.mark.filterwarnings("ignore:predictions are still off")
def test_centers_that_depend_on_others():
    """With a singular K_MM coefficients are not unique, and functions are those of Example 2, by eigenvectors."""
    X, y, C = problem()
    C, penalty, kernel = np.vstack([C, C]), 1e-4, Gaussian(2.0)
    model = plain(FalkonRegressor, kernel, centers=Given(C, sampled="uniform"), penalty=penalty, tol=0)
    model.set_params(preconditioner="paper", max_iter=5).fit(X, y)
    values, Q = np.linalg.eigh(kernel(C, C))
    kept = values > 1e-12 * values[-1]
    values, Q = values[kept], Q[:, kept]
    B = Q / np.sqrt(values * (values / len(C) + penalty) * len(X))
    K = kernel(X, C)
    expected = conjugate_gradient(B, K.T @ K + penalty * len(X) * kernel(C, C), K.T @ y)[4]
    assert_allclose(model.predict(X), K @ expected, atol=1e-6)


def test_preconditioner_as_published():
    X, _, C = problem()
    gram = Laplacian(1.0)(C, C)
    found = Preconditioner(np.asfortranarray(gram), 1e-9, len(X), as_published=True)
    assert found.ridge == 1e-9
    assert found.whitening.jitter == np.finfo(float).eps * len(C)
    assert Preconditioner(np.asfortranarray(gram), 1e-9, len(X)).ridge > 1e-6


def test_other_losses_and_labels_say_so():
    X, y, _ = problem()
    labels = y > 0
    for loss in ("squared", "logistic"):
        model = FalkonClassifier(loss=loss, n_centers=40, preconditioner="paper", random_state=0).fit(X, labels)
        assert {record["preconditioner"] for record in model.history_} == {"paper"}
    assert FalkonRegressor(loss="huber", n_centers=40).fit(X, y).history_[-1]["preconditioner"] == "falkon"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "newton"}, "solver='newton' must be one of"),
        ({"solver": "gd", "step": 0.0}, "step=0.0 must be"),
        ({"solver": "gd", "loss": "huber"}, 'solver="gd" is for the squared loss'),
        ({"solver": "gd", "preconditioner": "krill"}, "not 'krill'"),
        ({"solver": "gd", "checkpoint": "here"}, "cannot be resumed"),
        ({"preconditioner": "definition 3"}, "preconditioner="),
    ],
)
def test_errors(parameters, message):
    X, y = make_regression(50, 3, random_state=0)
    with pytest.raises(ValueError, match=message):
        FalkonRegressor(**parameters).fit(X, y)


def test_a_step_that_is_too_long():
    X, y, C = problem()
    with pytest.raises(FloatingPointError, match="largest stable step"):
        plain(FalkonRegressor, Laplacian(1.0), centers=C, penalty=1e-4, solver="gd", step=50.0).fit(X, y)


class First:
    """The first M rows, as if they had been drawn uniformly."""

    def __init__(self, M):
        self.M = M

    def select(self, rows, n_centers, **others):
        return Selection(rows.take(np.arange(self.M)), np.arange(self.M))
