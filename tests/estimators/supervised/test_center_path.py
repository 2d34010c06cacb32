"""The number of centers as the regulariser: one path for all of them, as separate fits have it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from variant_checks import parametrize_with_variant_checks

from gyrfalcon import KernelOperator, NystromRegressor, load
from gyrfalcon.kernels import Gaussian, Laplacian, Linear
from gyrfalcon.preconditioners import Whitening
from gyrfalcon.solvers import CenterPath

SIZES = [5, 20, 60, 100]


SPLITS = "rows that are repeated may land on both sides of the split that chooses, weighted ones cannot"


@parametrize_with_variant_checks(
    [NystromRegressor(n_centers=[5, 100])],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": SPLITS,
        "check_sample_weight_equivalence_on_sparse_data": SPLITS,
    },
)
def test_scikit_learn(estimator, check):
    check(estimator)


def problem(n=500, seed=0, noise=0.3, outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    y = np.column_stack([np.sin((i + 2) * X[:, 0]) + X[:, 1] for i in range(outputs)])
    y = y + noise * rng.standard_normal(y.shape)
    return X, y[:, 0] if outputs == 1 else y


def ridge(K, K_MM, y, w, mu):
    """Ridge regression on orthonormal functions: the normal equations would lose half the digits."""
    values, vectors = np.linalg.eigh(K_MM)
    kept = values > 1e-13 * values[-1]
    R = vectors[:, kept] / np.sqrt(values[kept])
    F, root = K @ R, np.sqrt(w)[:, None]
    stacked = np.vstack([root * F, np.sqrt(mu) * np.eye(F.shape[1])])
    right = np.vstack([root * y.reshape(len(y), -1), np.zeros((F.shape[1], y.size // len(y)))])
    return (R @ np.linalg.lstsq(stacked, right)[0]).reshape(-1, *y.shape[1:])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplacian(1.0)])
@pytest.mark.parametrize("penalty", [1e-2, 1e-5, 1e-8])
def test_solutions_are_those_of_dense_ridge_regression(kernel, penalty, outputs, weighted):
    X, y = problem(outputs=outputs)
    w = np.random.default_rng(1).uniform(0.1, 3.0, len(X)) if weighted else np.ones(len(X))
    K = KernelOperator(kernel, X, X[:100])
    path = CenterPath(K, y, Whitening(K.centers_gram(), len(X), nested=True), w if weighted else None)
    alpha = path.coefficients(penalty, SIZES)
    assert alpha.shape == (100, *y.shape[1:], len(SIZES))
    for i, m in enumerate(SIZES):
        assert not alpha[m:, ..., i].any()
        tall = kernel(X, X[:m])
        expected = tall @ ridge(tall, kernel(X[:m], X[:m]), y, w, penalty * len(X))
        assert_allclose(tall @ alpha[:m, ..., i], expected, atol=1e-6)


def test_centers_that_depend_on_others():
    """A linear kernel of two features: from the second center on, nothing is added."""
    X, y = problem()
    kernel = Linear()
    K = KernelOperator(kernel, X, X[:50])
    path = CenterPath(K, y, Whitening(K.centers_gram(), len(X), nested=True))
    alpha = path.coefficients(1e-4, [2, 10, 50])
    values = kernel(X, X[:50]) @ alpha
    assert_allclose(values[:, 1:], values[:, [0, 0]], atol=1e-6)
    for penalty in (0.0, 1e-18):  # where rounding alone is left of the penalty
        assert np.isfinite(path.coefficients(penalty, [2, 50])).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_is_that_of_each_number_of_centers(dtype, weighted):
    X, y = problem(700)
    X, X_val, y, y_val = X[:500].astype(dtype), X[500:].astype(dtype), y[:500], y[500:]
    w = np.random.default_rng(1).uniform(0.1, 3.0, 500) if weighted else None
    kernel, penalty = Gaussian(1.0), 1e-5
    path = plain(NystromRegressor, kernel, n_centers=[100, *SIZES], penalty=penalty, random_state=0)
    path.fit(X, y, w, X_val=X_val, y_val=y_val)
    assert [record["n_centers"] for record in path.history_] == SIZES
    errors = [record["validation_error"] for record in path.history_]
    # all centers in the order of the path: those of the best number come first
    every = plain(NystromRegressor, kernel, n_centers=[100], penalty=penalty, random_state=0)
    centers = every.fit(X, y, w, X_val=X_val, y_val=y_val).centers_
    best = SIZES[int(np.argmin(errors))]
    assert_array_equal(path.centers_, centers[:best])
    tolerance = 1e-6 if dtype == np.float64 else 1e-2  # rounding over the penalty
    for m, error in zip(SIZES, errors, strict=True):
        one = plain(NystromRegressor, kernel, centers=centers[:m], penalty=penalty).fit(X, y, w)
        assert np.sqrt(np.mean((one.predict(X_val) - y_val) ** 2)) == pytest.approx(error, abs=tolerance)
        if m == best:
            assert_allclose(path.predict(X_val), one.predict(X_val), atol=tolerance)
    assert {record["passes"] for record in path.history_} == {1}


def test_few_centers_regularise():
    """Without a penalty to speak of, noisy rows want few centers, and clean ones many."""
    chosen = []
    for noise in (3.0, 0.01):
        X, y = problem(400, noise=noise)
        model = plain(NystromRegressor, Gaussian(0.7), n_centers=[5, 20, 80, 250], penalty=1e-12, random_state=0)
        chosen.append(len(model.fit(X, y).centers_))
    assert chosen[0] < chosen[1]


def test_penalties_as_well():
    X, y = problem()
    model = plain(NystromRegressor, Gaussian(1.0), n_centers=SIZES, penalties=[1e-1, 1e-4, 1e-7], random_state=0)
    model.fit(X, y)
    assert len(model.history_) == 12 == model.n_iter_
    best = min(model.history_, key=lambda record: record["validation_error"])
    assert (best["penalty"], best["n_centers"]) == (model.penalty_, len(model.centers_))


def test_centers_come_in_random_order():
    """The first centers are not the first rows."""
    X = np.arange(1000.0)[:, None] / 100
    model = plain(NystromRegressor, Gaussian(1.0), n_centers=[10, 12], penalty=1e-6, random_state=0)
    model.fit(X, np.sin(X[:, 0]))
    assert model.centers_.max() > 5
    assert (np.diff(model.centers_[:, 0]) < 0).any()


def test_more_than_there_are_rows_and_given_points():
    X, y = problem(60)
    model = plain(NystromRegressor, Gaussian(1.0), n_centers=[10, 1000, 2000], random_state=0).fit(X, y)
    assert [record["n_centers"] for record in model.history_] == [10, 54]
    points = plain(NystromRegressor, Gaussian(1.0), n_centers=[3, 7], centers=X[:7], random_state=0).fit(X, y)
    assert_array_equal(points.centers_, X[: len(points.centers_)])


def test_saves_and_loads(tmp_path):
    X, y = problem()
    model = NystromRegressor(n_centers=SIZES, random_state=0).fit(X, y)
    model.save(tmp_path / "model.gyr")
    again = load(tmp_path / "model.gyr")
    assert again.n_centers == SIZES
    assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_centers": []}, "n_centers=\\[\\] must be None, an integer"),
        ({"n_centers": [10, 0]}, "n_centers=0 must be an integer of at least 1"),
        ({"n_centers": [10, 2.5]}, "n_centers=2.5"),
        ({"n_centers": [10], "solver": "cg"}, 'a list of n_centers is for solver="direct"'),
        ({"n_centers": [10], "choose_by": "loo"}, "not by choose_by='loo'"),
        ({"n_centers": [10], "uncertainty": True, "penalty": 1e-3}, "needs one number of centers"),
    ],
)
def test_errors(parameters, message):
    X, y = problem(50)
    with pytest.raises(ValueError, match=message):
        NystromRegressor(**parameters).fit(X, y)


def test_a_whitening_in_another_order_is_refused():
    X, y = problem(50)
    K = KernelOperator(Gaussian(1.0), X, X[:10])
    with pytest.raises(ValueError, match="nested=True"):
        CenterPath(K, y, Whitening(K.centers_gram(), 50))
