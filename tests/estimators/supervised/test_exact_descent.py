"""Gradient descent with a penalty and the nu-method on all rows, against the polynomials that they are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from plain import plain
from scipy.special import eval_jacobi
from sklearn.exceptions import ConvergenceWarning

from gyrfalcon import ExactRegressor
from gyrfalcon.kernels import Gaussian, Laplacian
from gyrfalcon.operators import KernelOperator
from gyrfalcon.solvers import kernel_descent

KERNEL = Laplacian(1.0)


def problem(n=120, outputs=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)
    return X, y if outputs is None else np.column_stack([y, y**2])


def filtered(X, y, w, penalty, residual):
    """The coefficients with a given residual for each eigenvalue of W^(1/2) K W^(1/2) / n + lambda."""
    n = len(X)
    root = np.sqrt(w / w.mean())
    s, U = np.linalg.eigh(root[:, None] * KERNEL(X, X) * root / n)
    s = np.maximum(s, 0) + penalty
    c = (1 - residual(s)) / s / n
    flat = y.reshape(n, -1)
    return (root[:, None] * (U @ (c[:, None] * (U.T @ (root[:, None] * flat))))).reshape(y.shape)


def jacobi(t, nu):
    """The residual polynomial of the nu-method: Jacobi's, with the value 1 at 0 (Engl, Hanke, Neubauer, 6.3)."""

    def residual(s):
        a, b = 2 * nu - 0.5, -0.5
        return eval_jacobi(t, a, b, 1 - 2 * s) / eval_jacobi(t, a, b, 1.0)

    return residual


def run(X, y, w, penalty, t, nu=None, step=1.0, dtype=np.float64):
    operator = KernelOperator(KERNEL, X.astype(dtype), X.astype(dtype))
    weight = None if w is None else w / w.mean()
    iterates = list(kernel_descent(operator, y, penalty, step=step, max_iter=t, weight=weight, nu=nu))
    return [iterate.coef() for iterate in iterates]


WEIGHTS = {"equal": None, "weighted": np.random.default_rng(1).uniform(0.1, 3.0, 120)}


@pytest.mark.parametrize("w", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("penalty", [0.0, 1e-3, 1e-1])
def test_gradient_descent_is_its_polynomial(penalty, outputs, w):
    """Residual (1 - step s)^t."""
    X, y = problem(outputs=outputs)
    step = 1 / (1 + penalty)
    of_each = np.ones(120) if w is None else w
    found = run(X, y, w, penalty, 40, step=step)
    for t in (1, 2, 7, 40):
        expected = filtered(X, y, of_each, penalty, lambda s, t=t: (1 - step * s) ** t)
        assert_allclose(found[t - 1], expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("w", WEIGHTS.values(), ids=WEIGHTS)
@pytest.mark.parametrize("nu", [0.5, 1.0, 2.0])
def test_the_nu_method_is_its_polynomial(nu, w):
    X, y = problem()
    of_each = np.ones(120) if w is None else w
    found = run(X, y, w, 0.0, 40, nu=nu)
    for t in (1, 2, 7, 40):
        expected = filtered(X, y, of_each, 0.0, jacobi(t, nu))
        assert_allclose(found[t - 1], expected, atol=1e-8 * np.abs(expected).max())


def test_the_nu_method_takes_the_root_of_as_many_steps():
    """The error of the residual in a direction s falls like (t^2 s)^-nu, and not like (1 - s)^t."""
    X, y = problem()
    K = KERNEL(X, X)
    accelerated = np.linalg.norm(y - K @ run(X, y, None, 0.0, 30, nu=1.0)[-1])
    plain_descent = [np.linalg.norm(y - K @ coef) for coef in run(X, y, None, 0.0, 900)]
    assert plain_descent[99] > accelerated


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_gd_ends_at_ridge_regression(weighted, dtype):
    X, y = problem()
    w = WEIGHTS["weighted"] if weighted else None
    model = plain(ExactRegressor, KERNEL, method="gd", penalty=1e-2, max_iter=3_000).fit(X.astype(dtype), y, w)
    direct = plain(ExactRegressor, KERNEL, penalty=1e-2).fit(X.astype(dtype), y, w)
    mean_one = np.ones(120) if w is None else w / w.mean()
    expected = np.linalg.solve(KERNEL(X, X) + 1e-2 * 120 * np.diag(1 / mean_one), y)
    tolerance = 1e-6 if dtype == np.float64 else 1e-4
    assert_allclose(model.dual_coef_, expected, atol=tolerance)
    assert_allclose(model.predict(X.astype(dtype)), direct.predict(X.astype(dtype)), atol=tolerance)
    assert model.penalty_ == 1e-2
    assert model.history_[-1]["converged"]
    assert model.n_iter_ < 3_000


def test_nu_ends_at_least_squares_and_stops_early():
    X, y = problem()
    model = plain(ExactRegressor, KERNEL, method="nu", early_stopping=False, max_iter=2_000, step="auto").fit(X, y)
    exact = plain(ExactRegressor, KERNEL, method="least_squares").fit(X, y)
    assert_allclose(model.predict(X), exact.predict(X), atol=1e-3)
    assert not hasattr(model, "penalty_")
    stopped = ExactRegressor(KERNEL, method="nu", random_state=0).fit(X, y)
    slow = ExactRegressor(KERNEL, method="early_stopping", random_state=0).fit(X, y)
    assert stopped.n_iter_ < slow.n_iter_ < 500
    errors = [min(record["validation_error"] for record in one.history_) for one in (stopped, slow)]
    assert errors[0] < 1.15 * errors[1]


@pytest.mark.parametrize("method", ["gd", "nu"])
def test_a_large_penalty_or_the_longest_step_is_stable(method):
    X, y = problem()
    for penalty in (1e-6, 10.0) if method == "gd" else ("auto",):
        model = plain(ExactRegressor, KERNEL, method=method, penalty=penalty, early_stopping=False, max_iter=100)
        assert np.isfinite(model.fit(X, y).dual_coef_).all()
        assert np.isfinite(model.set_params(step="auto").fit(X, y).dual_coef_).all()


@pytest.mark.parametrize(("method", "bound"), [("gd", 2.0), ("nu", 1.0)])
def test_a_step_that_is_too_long(method, bound):
    X, y = problem()
    largest = np.linalg.eigvalsh(KERNEL(X, X))[-1] / len(X)
    penalty = 1e-9 if method == "gd" else "auto"
    model = plain(ExactRegressor, KERNEL, method=method, penalty=penalty, early_stopping=False, max_iter=300)
    model.set_params(step=0.9 * bound / largest).fit(X, y)
    with pytest.raises(FloatingPointError, match="largest stable step is about"):
        model.set_params(step=1.2 * bound / largest).fit(X, y)


def test_gd_warns_if_it_does_not_converge():
    X, y = problem()
    model = plain(ExactRegressor, Gaussian(1.0), method="gd", penalty=1e-8, max_iter=5, tol=1e-6)
    with pytest.warns(ConvergenceWarning, match="above tol=1e-06: raise max_iter=5"):
        model.fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "gd", "penalties": [1e-3, 1e-2]}, 'method="gd" has one penalty'),
        ({"method": "gd", "choose_by": "cv"}, 'choose_by="cv" is for method="pcg"'),
        ({"method": "nu", "uncertainty": True}, 'is for method="ridge"'),
        ({"method": "nu", "step": -1.0}, "step=-1.0"),
        ({"method": "nu", "penalty": 1e-3}, r'penalty=0.001 is for methods with a penalty, and method="nu" has none'),
        ({"method": "early_stopping", "penalties": [1e-3]}, r'penalties=\[0.001\] is for .* leave penalty="auto"'),
        ({"method": "least_squares", "penalty": 0.0}, 'penalty=0.0 is for .* method="least_squares" has none'),
        ({"method": "ridge", "step": 0.5}, 'step=0.5 is for method="gd".* not for method="ridge": leave step=None'),
        ({"method": "gd", "penalty": -1.0}, "penalty=-1.0"),
        ({"method": "accelerated"}, "method='accelerated' must be one of"),
    ],
)
def test_errors(parameters, message):
    X, y = problem()
    with pytest.raises(ValueError, match=message):
        ExactRegressor(**parameters).fit(X, y)
