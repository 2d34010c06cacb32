"""ExactRegressor(method="askotch"): block coordinate descent against dense solves."""

import sys
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gyrfalcon import ExactRegressor, KernelOperator
from gyrfalcon.kernels import Gaussian, Laplacian
from gyrfalcon.solvers import askotch


def _data(n=500, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 3)).astype(dtype)
    Y = np.stack([np.sin(2 * X[:, 0]), 30 + X[:, 1] * X[:, 2]], axis=1) + 0.1 * rng.standard_normal((n, 2))
    return X, Y.astype(dtype), rng.uniform(0.2, 3, size=n)


def _fit(kernel, **parameters):
    given = {"penalty": 2e-4, "n_centers": 80, "max_iter": 500, "tol": 1e-8, "random_state": 0, **parameters}
    return ExactRegressor(kernel, method="askotch", scale=False, **given)


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplacian(2.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_dense_solve_gives_the_same(kernel, weighted):
    X, Y, weight = _data()
    weight = weight if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = _fit(kernel).fit(X, Y, weight)
    assert model.history_[-1]["converged"]
    w = np.ones(len(X)) if weight is None else weight / weight.mean()
    K = KernelOperator(kernel, X, X, memory_budget=0).centers_gram(np.float64)
    mean = np.average(Y, axis=0, weights=w)
    alpha = np.linalg.solve(K + 2e-4 * len(X) * np.diag(1 / w), Y - mean)
    assert np.allclose(model.predict(X), K @ alpha + mean, atol=1e-6)
    assert np.allclose(model.predict(X), ExactRegressor(kernel, scale=False, penalty=2e-4).fit(X, Y, weight).predict(X))


def test_blocks_that_do_not_divide_the_rows_and_one_block():
    X, Y, _ = _data(101)
    expected = ExactRegressor(Gaussian(1.0), scale=False, penalty=1e-3).fit(X, Y[:, 0]).predict(X)
    for block in (30, 100, 101, 1_000):
        found = _fit(Gaussian(1.0), penalty=1e-3, n_centers=block, max_iter=3_000).fit(X, Y[:, 0])
        assert np.allclose(found.predict(X), expected, atol=1e-6)
    assert found.n_iter_ == 1  # one block is a direct solve


def test_momentum_saves_sweeps():
    X, Y, _ = _data()
    K = KernelOperator(Gaussian(1.0), X, X)
    size = np.sqrt(len(X)) * Y.std(axis=0)
    sweeps = {}
    for plain in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if plain:
                patch.setattr(sys.modules["gyrfalcon.solvers.askotch"], "_PLAIN", 10**9)
            *_, last = askotch(
                K, Y, 0.01, size, block_size=50, max_iter=300, tol=1e-4, random_state=np.random.RandomState(0)
            )
        sweeps[plain] = last.iteration
    assert sweeps[False] < 0.8 * sweeps[True]


def test_a_fit_that_has_not_converged_says_so():
    X, Y, _ = _data()
    with pytest.warns(ConvergenceWarning, match=r"after 2 sweeps.*raise max_iter=2"):
        model = _fit(Gaussian(1.0), penalty=1e-7, max_iter=2).fit(X, Y)
    assert not model.history_[-1]["converged"]
    # the residual of the last record is the true one
    K = KernelOperator(Gaussian(1.0), X, X, memory_budget=0).centers_gram(np.float64)
    alpha = model.dual_coef_
    left = np.linalg.norm(Y - Y.mean(axis=0) - K @ alpha - 1e-7 * len(X) * alpha, axis=0)
    expected = (left / (np.sqrt(len(X)) * Y.std(axis=0))).max()
    assert model.history_[-1]["residual"] == pytest.approx(expected, rel=1e-6)


def test_float32_ends_where_rounding_allows_no_less():
    X, Y, _ = _data(dtype=np.float32)
    with pytest.warns(ConvergenceWarning, match="above tol"):
        model = _fit(Gaussian(1.0), dtype="float32", tol=1e-12, max_iter=60).fit(X, Y)
    assert not model.history_[-1]["converged"]
    assert model.history_[-1]["residual"] < 1e-3


def test_same_bits_for_any_number_of_threads():
    X, Y, _ = _data(700, np.float32)
    one, two, other = (
        _fit(Laplacian(2.0), tol=1e-4, n_jobs=n, random_state=s).fit(X, Y) for n, s in ((1, 0), (2, 0), (2, 1))
    )
    assert np.array_equal(one.dual_coef_, two.dual_coef_)
    assert not np.array_equal(one.dual_coef_, other.dual_coef_)


def test_memory_does_not_grow_with_the_square_of_the_rows():
    X = np.random.default_rng(0).standard_normal((3_000, 2)).astype(np.float32)
    model = _fit(Laplacian(1.0), tol=1e-2, n_centers=100, memory_budget="2MB")  # a matrix would take 36 MB
    assert model.fit(X, X[:, 0]).score(X, X[:, 0]) > 0.9
    with pytest.raises(MemoryError, match=r"askotch.* with 3000 rows takes .*blocks of 1000 rows.*lower n_centers"):
        model.set_params(n_centers=1_000).fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"penalties": [0.1, 1.0]}, 'method="askotch" has one penalty'),
        ({"choose_by": "cv"}, 'choose_by="cv" is for method="pcg"'),
        ({"uncertainty": True}, 'uncertainty=True is for method="ridge"'),
    ],
)
def test_parameters_it_does_not_have(parameters, message):
    X, Y, _ = _data(50)
    with pytest.raises(ValueError, match=message):
        _fit(Gaussian(1.0), **parameters).fit(X, Y)


def test_penalty_auto_and_validation_rows():
    X, Y, _ = _data()
    model = ExactRegressor(Gaussian(1.0), method="askotch", random_state=0).fit(
        X[:400], Y[:400], None, X[400:], Y[400:]
    )
    assert model.penalty_ > 0
    errors = [record["validation_error"] for record in model.history_]
    assert errors[-1] < 0.2
    assert model.history_[-1]["passes"] == len(errors) + 1  # and the pass that proves it
