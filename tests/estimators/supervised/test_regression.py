"""FalkonRegressor: the solution it promises, whatever the rows come in, and a good citizen of scikit-learn."""

from __future__ import annotations

import io
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, make_friedman1, make_friedman2, make_friedman3
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gyrfalcon import EigenProRegressor, ExactRegressor, FalkonRegressor, NystromRegressor
from gyrfalcon.fitting.subspace import default_n_centers
from gyrfalcon.kernels import Gaussian, Laplacian, Linear, Matern, Polynomial, RationalQuadratic

pytestmark = pytest.mark.filterwarnings("error")

SQUARE = Polynomial(2, gamma=1.0)

# Kernel matrices with condition numbers up to about 1e5, so that a dense solve knows its own digits.
WELL_CONDITIONED = [
    pytest.param(Laplacian(1.0), 1e-3, id="laplacian"),
    pytest.param(Laplacian([1.0, 2.0, 0.5]), 1e-4, id="laplacian-per-feature"),
    pytest.param(Laplacian([1.0, 2.0, 0.5], norm=1), 1e-4, id="laplacian-1-norm"),
    pytest.param(Matern(1.0, nu=1.5), 1e-3, id="matern"),
    pytest.param(Gaussian(0.5), 1e-4, id="gaussian"),
    pytest.param(Gaussian(0.7) + 0.5 * Laplacian(2.0), 1e-3, id="sum"),
]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(400)
    return X, y


def dense_solve(model, X, y, weight=None):
    """alpha of (K'WK + lambda sum(w) K_MM) alpha = K'W y, in float64 and without any of the machinery."""
    X = np.asarray(X, dtype=np.float64)
    weight = np.ones(len(X)) if weight is None else weight
    K, gram = model.kernel_(X, model.centers_), model.kernel_(model.centers_, model.centers_)
    left = K.T @ (weight[:, None] * K) + model.penalty * weight.sum() * gram
    return scipy.linalg.solve(left, K.T @ (weight * y.T).T, assume_a="pos"), K


def relative(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


def regressor(**params):
    return plain(
        FalkonRegressor, **{"kernel": Laplacian(1.0), "penalty": 1e-3, "n_centers": 60, "random_state": 0, **params}
    )


# ---- the solution ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize(("kernel", "penalty"), WELL_CONDITIONED)
def test_float64_agrees_with_a_dense_solve(data, kernel, penalty, outputs, weighted):
    X, y = data
    y = y if outputs == 1 else np.column_stack([y, X[:, 0], np.cos(y), 1e4 * X[:, 1]])
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(X)) if weighted else None
    model = regressor(kernel=kernel, penalty=penalty, max_iter=200, tol=1e-12).fit(X, y, weight)
    alpha, K = dense_solve(model, X, y, weight)
    assert model.dual_coef_.shape == alpha.shape == ((60,) if outputs == 1 else (60, 4))
    for j in range(outputs):
        one = (slice(None), j) if outputs > 1 else slice(None)
        assert relative(model.dual_coef_[one], alpha[one]) < 1e-7
        assert relative(model.predict(X)[one], (K @ alpha)[one]) < 1e-7


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize(("kernel", "penalty"), WELL_CONDITIONED)
def test_float32_agrees_with_a_dense_solve(data, kernel, penalty, weighted):
    X, y = data[0].astype(np.float32), data[1].astype(np.float32)
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(X)) if weighted else None
    model = regressor(kernel=kernel, penalty=penalty, max_iter=100).fit(X, y, weight)
    alpha, K = dense_solve(model, X, y.astype(np.float64), weight)
    assert model.centers_.dtype == np.float32
    predictions = model.predict(X)
    assert predictions.dtype == np.float32
    assert relative(predictions, K @ alpha) < 1e-4


def test_defaults_reach_the_solution(data):
    X, y = data
    model = plain(FalkonRegressor, "laplacian", random_state=0).fit(X, y)
    alpha, K = dense_solve(model, X, y)
    assert relative(model.predict(X), K @ alpha) < 1e-7
    assert model.n_iter_ <= 20


@pytest.mark.parametrize("kernel", [Laplacian(1.0), Matern(1.5, nu=2.5), Gaussian(0.8)])
def test_equals_kernel_ridge_when_every_row_is_a_center(data, kernel):
    X, y = data
    model = plain(FalkonRegressor, kernel, n_centers=len(X), penalty=1e-3, max_iter=300, tol=1e-12).fit(X, y)
    ridge = KernelRidge(kernel="precomputed", alpha=1e-3 * len(X)).fit(kernel(X, X), y)
    assert_array_equal(model.centers_, X)
    new = np.random.default_rng(2).standard_normal((50, 3))
    assert relative(model.predict(new), ridge.predict(kernel(new, X))) < 1e-7


def test_given_centers_are_the_centers(data):
    X, y = data
    Z = np.random.default_rng(3).standard_normal((20, 3))
    expected = regressor(centers=Z, max_iter=100).fit(X, y)
    assert_array_equal(expected.centers_, Z)
    alpha, _ = dense_solve(expected, X, y)
    assert relative(expected.dual_coef_, alpha) < 1e-7
    for given in (Z.tolist(), pd.DataFrame(Z), pl.DataFrame(Z), np.asfortranarray(Z)):
        assert_array_equal(regressor(centers=given, max_iter=100).fit(X, y).dual_coef_, expected.dual_coef_)


@pytest.mark.parametrize("kernel", ["laplacian", Gaussian(0.5)])
def test_weights_are_repetitions(data, kernel):
    X, y = data[0][:80], data[1][:80]
    times = np.random.default_rng(4).integers(0, 4, 80)
    params = {"kernel": kernel, "penalty": 1e-3, "max_iter": 200}
    weighted = plain(FalkonRegressor, **params).fit(X, y, 0.3 * times)
    repeated = plain(FalkonRegressor, **params).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert_allclose(weighted.kernel_.length_scale, repeated.kernel_.length_scale, rtol=1e-12)
    assert relative(weighted.predict(X), repeated.predict(X)) < 1e-7


def test_weights_only_their_ratios_matter(data):
    X, y = data
    weight = np.random.default_rng(5).uniform(0.5, 2.0, len(X))
    expected = regressor().fit(X, y, weight).predict(X)
    for factor in (1e-300, 1e-5, 1e300):
        assert_allclose(regressor().fit(X, y, factor * weight).predict(X), expected, rtol=1e-8, atol=1e-10)
    assert_allclose(regressor().fit(X, y, 7.0).predict(X), regressor().fit(X, y).predict(X), rtol=1e-8, atol=1e-10)


def test_inputs_are_left_alone(data):
    X, y = (np.array(a) for a in data)
    weight = np.full(len(X), 3.0)
    regressor().fit(X, y, weight, X_val=X, y_val=y)
    assert_array_equal(X, data[0])
    assert_array_equal(y, data[1])
    assert (weight == 3.0).all()


def test_columns_of_y_are_solved_as_if_alone(data):
    X, y = data
    Y = np.column_stack([y, np.zeros_like(y), 1e8 * X[:, 0], np.ones_like(y)])
    model = regressor(max_iter=100).fit(X, Y)
    for j in range(4):
        alone = regressor(max_iter=100).fit(X, Y[:, j])
        assert_allclose(model.predict(X)[:, j], alone.predict(X), rtol=1e-7, atol=1e-9 * np.abs(Y[:, j]).max())
    assert (model.predict(X)[:, 1] == 0).all()


# ---- what comes in ---------------------------------------------------------------------------------------------------


def _memmap(X, tmp_path):
    mapped = np.memmap(tmp_path / "X.bin", dtype=X.dtype, mode="w+", shape=X.shape)
    mapped[:] = X
    return np.memmap(tmp_path / "X.bin", dtype=X.dtype, mode="r", shape=X.shape)


def _readonly(X, tmp_path):
    X = X.copy()
    X.flags.writeable = False
    return X


def _spaced(X, tmp_path):
    wide = np.full((2 * X.shape[0], 2 * X.shape[1]), np.nan, dtype=X.dtype)
    wide[::2, ::2] = X
    return wide[::2, ::2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "form",
    [lambda X, _: np.asfortranarray(X), _readonly, _spaced, _memmap, lambda X, _: X[::-1][::-1]],
    ids=["fortran", "readonly", "spaced", "memmap", "reversed"],
)
def test_any_memory_layout_gives_the_same_bits(data, dtype, form, tmp_path):
    X, y = data[0].astype(dtype), data[1]
    expected = regressor().fit(X, y)
    model = regressor().fit(form(X, tmp_path), y)
    assert_array_equal(model.dual_coef_, expected.dual_coef_)
    assert_array_equal(model.predict(form(X, tmp_path)), expected.predict(X))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, bool, np.float16, ">f8", np.longdouble, object])
def test_other_numbers_are_computed_in_float64(dtype):
    X = np.random.default_rng(0).integers(0, 2 if dtype is bool else 9, size=(100, 4)).astype(dtype)
    y = X.astype(np.float64).sum(axis=1)
    expected = regressor().fit(X.astype(np.float64), y)
    model = regressor().fit(X, y)
    assert model.centers_.dtype == np.float64
    assert_array_equal(model.predict(X), expected.predict(X.astype(np.float64)))


def test_dtype_says_the_precision(data):
    X, y = data
    assert regressor(dtype="float32").fit(X, y).predict(X).dtype == np.float32
    assert regressor(dtype=np.float64).fit(X.astype(np.float32), y).predict(X).dtype == np.float64
    low, high = regressor(dtype="float32").fit(X, y), regressor().fit(X.astype(np.float32), y)
    assert_array_equal(low.predict(X), high.predict(X.astype(np.float32)))


def _arrow(X):
    return pa.table({name: X[:, j] for j, name in enumerate("abc")})


TABLES = {
    "pandas": lambda X: pd.DataFrame(X, columns=list("abc"), index=range(len(X), 0, -1)),
    "polars": lambda X: pl.DataFrame(X, schema=list("abc")),
    "pyarrow": _arrow,
}
COLUMNS = {
    "pandas": lambda y: pd.Series(y, index=np.arange(len(y))[::-1] % 7),
    "polars": pl.Series,
    "pyarrow": pa.array,
    "chunks": lambda y: pa.chunked_array([y[:100], y[100:]]),
    "list": list,
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("column", COLUMNS)
def test_tables(data, table, column):
    X, y = data
    weight = np.linspace(1, 2, len(y))
    expected = regressor().fit(X, y, weight, X_val=X[:50], y_val=y[:50])
    model = regressor()
    make, make_y = TABLES[table], COLUMNS[column]
    model.fit(make(X), make_y(y), make_y(weight), X_val=make(X[:50]), y_val=make_y(np.tile(y[:50], 3))[:50])
    assert_array_equal(model.dual_coef_, expected.dual_coef_)
    assert_array_equal(model.feature_names_in_, ["a", "b", "c"])
    assert_array_equal(model.predict(make(X)), expected.predict(X))
    assert model.history_[-1]["validation_error"] == expected.history_[-1]["validation_error"]


@pytest.mark.parametrize("table", TABLES)
def test_y_may_be_a_table(data, table):
    X, y = data
    Y = np.column_stack([y, X[:, 0], X[:, 1]])
    assert_array_equal(regressor().fit(X, TABLES[table](Y)).dual_coef_, regressor().fit(X, Y).dual_coef_)


def test_lists(data):
    X, y = data
    model = regressor().fit(X.tolist(), y.tolist())
    assert_array_equal(model.predict(X.tolist()), regressor().fit(X, y).predict(X))


def test_a_column_of_y_stays_a_column(data):
    X, y = data
    model = regressor().fit(X, y[:, None])
    assert model.dual_coef_.shape == (60, 1)
    assert model.predict(X).shape == (400, 1)
    assert_array_equal(model.predict(X)[:, 0], regressor().fit(X, y).predict(X))


def test_feature_names_are_checked(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abc"))
    model = regressor().fit(frame, y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    with pytest.raises(ValueError, match="feature names should match"):
        regressor().fit(frame, y, X_val=frame.rename(columns={"a": "z"}), y_val=y)


# ---- the record of a fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["cold", "warm"])
@pytest.mark.parametrize("budget", [0, "auto"])
def test_t_iterations_cost_t_plus_one_passes(data, budget, start):
    X, y = data
    model = regressor(max_iter=7, tol=0.0, memory_budget=budget, warm_start=True).fit(X, y)
    if start == "warm":
        model.fit(X, y)
    assert model.n_iter_ == len(model.history_) == 7
    assert [record["iteration"] for record in model.history_] == list(range(1, 8))
    assert [record["passes"] for record in model.history_] == list(range(2, 9))
    seconds = [record["seconds"] for record in model.history_]
    assert seconds == sorted(seconds)


def test_residuals_fall_until_the_tolerance(data):
    X, y = data
    model = regressor(tol=1e-9, max_iter=100).fit(X, y)
    residuals = [record["residual"] for record in model.history_]
    assert residuals[-1] <= 1e-9 < residuals[-2]
    assert residuals[0] < 1
    assert [record["converged"] for record in model.history_] == [False] * (model.n_iter_ - 1) + [True]
    # conjugate gradient minimises the energy, not the residual: it falls, but not at every step
    assert all(later < earlier for earlier, later in zip(residuals, residuals[4:], strict=False))


def test_tolerance_is_relative(data):
    X, y = data
    iterations = {regressor(tol=1e-6, max_iter=50).fit(X, scale * y).n_iter_ for scale in (1e-12, 1.0, 1e12)}
    assert len(iterations) == 1


def test_warns_of_a_tolerance_that_was_not_reached(data):
    X, y = data
    with pytest.warns(
        ConvergenceWarning, match=r"residual is .* after 5 iterations, above tol=1e-10: raise max_iter=5"
    ):
        regressor(max_iter=5, tol=1e-10).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor(max_iter=5).fit(X, y)
        regressor(max_iter=5, tol=0.0).fit(X, y)
        regressor(max_iter=50, tol=1e-3).fit(X, y)
        regressor(max_iter=10, tol=1e-12, callbacks=lambda record: True).fit(X, y)


@pytest.mark.parametrize("tol", [None, 0.0, 1e-9])
def test_warns_of_predictions_that_would_still_move(data, tol):
    X, y = data
    with pytest.warns(
        ConvergenceWarning, match=r"still off by about 0\.\d+ of their standard .* after 1 .*raise max_iter=1, "
    ) as caught:
        regressor(max_iter=1, tol=tol).fit(X, y)
    assert caught[0].filename == __file__


def far_from_zero(n=4000):
    """Targets whose mean is a hundred times their deviation, for a kernel with a constant."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5))
    return X, 100 + np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_of_targets_far_from_zero_converges_or_says_that_it_did_not(dtype):
    """After 20 iterations R2 was -12 and nothing said so; with KRILL from the fifth iteration on 40 are enough."""
    X, y = far_from_zero()
    model = plain(FalkonRegressor, Gaussian(2.0) + 1.0, n_centers=300, random_state=0, dtype=dtype)
    with pytest.warns(
        ConvergenceWarning,
        match=r"still off by .* raise max_iter=6, .* fit_intercept=True helps",
    ):
        assert model.set_params(max_iter=6).fit(X, y).score(X, y) < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.set_params(max_iter=40).fit(X, y).score(X, y) > 0.98


# ---- warm start ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
def test_warm_start_goes_on_where_it_stopped(data, outputs):
    X, y = data
    y = y if outputs == 1 else np.column_stack([y, X[:, 0], np.cos(y)])
    model = regressor(max_iter=5, tol=0.0, warm_start=True).fit(X, y)
    alpha, K = dense_solve(model, X, y)
    after_5 = relative(model.predict(X), K @ alpha)
    after_10 = relative(regressor(max_iter=10, tol=0.0).fit(X, y).predict(X), K @ alpha)
    model.fit(X, y)
    again = relative(model.predict(X), K @ alpha)
    assert again < 0.1 * after_5
    # a restart forgets the directions it has searched, and loses a little by it
    assert again < 20 * after_10
    for _ in range(5):
        model.fit(X, y)
    assert relative(model.predict(X), K @ alpha) < 1e-9


def test_warm_start_keeps_its_centers(data):
    X, y = data
    model = regressor(warm_start=True).fit(X, y)
    centers = model.centers_
    model.set_params(random_state=99).fit(X, y)
    assert_array_equal(model.centers_, centers)
    more = np.vstack([X, X + 0.1])
    model.fit(more, np.hstack([y, y]))
    assert_array_equal(model.centers_, centers)
    assert len(model.set_params(n_centers=30).fit(X, y).centers_) == 30
    cold = regressor(warm_start=False).fit(X, y)
    assert not np.array_equal(cold.set_params(random_state=99).fit(X, y).centers_, centers)


@pytest.mark.parametrize(
    ("n", "M"), [(1, 1), (1_500, 1_500), (50_000, 2_000), (1_000_000, 2_000), (4_000_000, 4_000), (10**9, 10_000)]
)
def test_the_default_number_of_centers(n, M):
    assert default_n_centers(n) == M


def test_warm_start_with_the_default_number_of_centers(data):
    X, y = data
    model = plain(FalkonRegressor, "laplacian", warm_start=True, random_state=0).fit(X, y)
    centers = model.centers_
    model.set_params(random_state=1).fit(X, y)
    assert_array_equal(model.centers_, centers)


def test_warm_start_with_weights_keeps_its_centers_and_kernel(data):
    X, y = data
    weight = np.random.default_rng(0).uniform(0, 2, len(X)) * (X[:, 0] > -1)
    model = regressor(kernel="laplacian", n_centers=390, warm_start=True, max_iter=100).fit(X, y, weight)
    kernel, centers, first = model.kernel_, model.centers_, model.predict(X)
    model.set_params(random_state=1).fit(X, y, weight)
    assert_array_equal(model.centers_, centers)
    assert model.kernel_.length_scale == kernel.length_scale
    assert model.n_iter_ == 0
    assert_allclose(model.predict(X), first, atol=1e-8)


def test_warm_start_takes_up_a_change_of_the_problem(data):
    X, y = data
    model = regressor(warm_start=True, max_iter=100).fit(X, y)
    narrow = X[:, :2]
    for params, rows, targets in (
        ({"penalty": 1e-2}, X, y),
        ({"kernel": Laplacian(2.0)}, X, y),
        ({}, X, np.column_stack([y, y**2])),
        ({}, X, y),
        ({}, X.astype(np.float32), y),
        ({}, narrow, y),
        ({"centers": narrow[:10]}, narrow, y),
        ({"centers": narrow[10:30]}, narrow, y),
        ({"centers": "uniform"}, narrow, y),
    ):
        model.set_params(**params).fit(rows, targets)
        fresh = clone(model).set_params(warm_start=False, centers=model.centers_).fit(rows, targets)
        tolerance = 2e-4 if rows.dtype == np.float32 else 1e-7
        assert_allclose(model.predict(rows), fresh.predict(rows), atol=tolerance)
        if "centers" in params and not isinstance(params["centers"], str):
            assert_array_equal(model.centers_, params["centers"])


def test_a_warm_start_at_the_solution_stays_there(data):
    X, y = data
    model = regressor(warm_start=True, max_iter=100, tol=1e-8).fit(X, y)
    before = model.predict(X)
    model.fit(X, y)
    assert model.n_iter_ <= 1
    assert_allclose(model.predict(X), before, atol=1e-7)


# ---- scikit-learn ----------------------------------------------------------------------------------------------------


def test_set_params_is_honoured(data):
    X, y = data
    model = plain(FalkonRegressor, n_centers=10, random_state=0).fit(X, y)
    assert model.set_params(n_centers=25).fit(X, y).centers_.shape == (25, 3)
    model.set_params(kernel=Gaussian(1.0), kernel__length_scale=3.0).fit(X, y)
    assert model.kernel_.length_scale == 3.0
    assert clone(model).get_params()["n_centers"] == 25
    assert clone(model).fit(X, y).predict(X).tolist() == model.predict(X).tolist()


def test_fit_does_not_touch_parameters(data):
    X, y = data
    kernel = Gaussian()
    model = plain(FalkonRegressor, kernel, n_centers=None, random_state=0).fit(X, y)
    assert model.kernel is kernel
    assert kernel.length_scale == "scale"
    assert isinstance(model.kernel_.length_scale, float)
    assert model.n_centers is None
    assert len(model.centers_) == len(X)  # few enough to have them all


def test_repr_and_clone_with_an_array_of_centers(data):
    X, _ = data
    model = plain(FalkonRegressor, centers=X[:5])
    assert "FalkonRegressor" in repr(model)
    assert_array_equal(clone(model).centers, X[:5])


def test_not_fitted(data):
    with pytest.raises(NotFittedError):
        plain(FalkonRegressor).predict(data[0])


def test_pickle_and_joblib(data, tmp_path):
    X, y = data
    model = regressor(n_centers=300).fit(X, y)
    data_bytes = pickle.dumps(model)
    # the centers, the coefficients and the history: not the M x M factors (720 kB), nor K (960 kB), nor X
    assert len(data_bytes) < model.centers_.nbytes + model.dual_coef_.nbytes + 8_000
    assert_array_equal(pickle.loads(data_bytes).predict(X), model.predict(X))
    joblib.dump(model, tmp_path / "model.joblib")
    assert_array_equal(joblib.load(tmp_path / "model.joblib").predict(X), model.predict(X))
    again = pickle.load(io.BytesIO(data_bytes)).set_params(warm_start=True).fit(X, y)
    assert_array_equal(again.centers_, model.centers_)


def test_grid_search_and_pipeline(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), plain(FalkonRegressor, Gaussian(), n_centers=50, random_state=0))
    grid = {
        "falkonregressor__kernel__length_scale": [0.01, 1.0],
        "falkonregressor__penalty": [1e-6, 1e-3],
        "falkonregressor__n_centers": [20, 100],
    }
    search = GridSearchCV(pipeline, grid, cv=3).fit(1000 * X + 5, y)
    assert search.best_params_["falkonregressor__kernel__length_scale"] == 1.0
    assert search.best_params_["falkonregressor__n_centers"] == 100
    assert search.best_estimator_[-1].centers_.shape == (100, 3)
    assert search.best_score_ > 0.8


def test_cross_validation_in_processes(data):
    X, y = data
    model = regressor(max_iter=100)
    assert_allclose(cross_val_score(model, X, y, n_jobs=2, cv=4), cross_val_score(model, X, y, cv=4), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_threads_gives_the_same_bits(dtype):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 4)).astype(dtype)
    Y = np.column_stack([X[:, 0], X[:, 1] ** 2])
    for y in (Y, Y[:, 1]):
        models = [regressor(n_jobs=n_jobs, max_iter=5).fit(X, y, X_val=X, y_val=y) for n_jobs in (1, 2, 3, -1, None)]
        for model in models[1:]:
            assert_array_equal(model.dual_coef_, models[0].dual_coef_)
            assert_array_equal(model.predict(X), models[0].predict(X))
            assert model.history_[-1]["validation_error"] == models[0].history_[-1]["validation_error"]


def test_seeds(data):
    X, y = data
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, same = regressor(random_state=7).fit(X, y), regressor(random_state=7).fit(X, y)
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert_array_equal(first.dual_coef_, same.dual_coef_)
    assert_array_equal(first.centers_, same.centers_)
    other = regressor(random_state=8).fit(X, y)
    assert not np.array_equal(first.centers_, other.centers_)
    generator = np.random.RandomState(7)
    one, two = regressor(random_state=generator).fit(X, y), regressor(random_state=generator).fit(X, y)
    assert_array_equal(one.centers_, first.centers_)
    assert not np.array_equal(one.centers_, two.centers_)
    free = [regressor(random_state=None).fit(X, y).centers_ for _ in range(2)]
    assert not np.array_equal(*free)


@pytest.mark.parametrize("kernel", ["gaussian", "rbf", "laplacian", "matern", "rational_quadratic", "polynomial"])
def test_named_kernels_learn(data, kernel):
    X, y = data
    least = 0.3 if kernel == "polynomial" else 0.7  # a cubic cannot follow the sine
    assert plain(FalkonRegressor, kernel, n_centers=150, penalty=1e-5, random_state=0).fit(X, y).score(X, y) > least


def test_a_function_is_a_kernel(data):
    X, y = data
    kernel = Laplacian(1.0)
    model = regressor(kernel=lambda A, B: kernel(A, B)).fit(X, y)
    assert_allclose(model.predict(X), regressor().fit(X, y).predict(X), rtol=1e-9, atol=1e-9)


# ---- defaults on data ------------------------------------------------------------------------------------------------


def test_defaults_on_friedman1():
    X, y = make_friedman1(2000, noise=1.0, random_state=0)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    score = plain(FalkonRegressor, random_state=0).fit(X, y).score(X_test, y_test)
    assert score > 0.85
    assert score > Ridge().fit(X, y).score(X_test, y_test) + 0.1


def test_defaults_on_housing_like_data():
    """Eight standardised features, a smooth trend, a bump and noise: what California housing looks like."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 8))
    y = X[:, 0] + np.tanh(X[:, 1] * X[:, 2]) + 2 * np.exp(-(X[:, 6] ** 2) - X[:, 7] ** 2)
    y += 0.3 * rng.standard_normal(len(y))
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    score = plain(FalkonRegressor, random_state=0).fit(X, y).score(X_test, y_test)
    exact = KernelRidge(kernel="rbf", gamma=1 / 8, alpha=1e-6 * len(X)).fit(X, y).score(X_test, y_test)
    assert score > 0.7
    assert score > exact - 0.05


def test_penalty_tuned_on_diabetes():
    X, y = load_diabetes(return_X_y=True)
    y = y - y.mean()
    model = plain(FalkonRegressor, random_state=0, n_centers=100)
    search = GridSearchCV(model, {"penalty": [1e-4, 1e-3, 1e-2]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.45


def test_linear_kernel_is_ridge_regression(data):
    X, y = data
    model = plain(FalkonRegressor, Linear() + 1.0, n_centers=50, penalty=1e-4, max_iter=50).fit(X, y)
    ones = np.column_stack([X, np.ones(len(X))])
    ridge = Ridge(alpha=1e-4 * len(X), fit_intercept=False).fit(ones, y)
    assert relative(model.predict(X), ridge.predict(ones)) < 1e-6


def test_kernels_of_low_rank(data):
    """More centers than dimensions of the feature space: ten for a quadratic in three features."""
    X, _ = data
    y = 1 + X[:, 0] * X[:, 1] - X[:, 2] ** 2
    model = plain(FalkonRegressor, Polynomial(degree=2), n_centers=200, penalty=1e-12, max_iter=50).fit(X, y)
    assert model.score(X, y) > 1 - 1e-9
    assert plain(FalkonRegressor, RationalQuadratic(50.0), penalty=1e-9, max_iter=50).fit(X, y).score(X, y) > 0.99


LOST = [(Linear() + 1.0, 3e3), (2.0 * (Linear() + 1.0), 3e3), (SQUARE, 1e2)]


def of_size(size):
    X = (size * np.random.default_rng(0).standard_normal((300, 3))).astype(np.float32)
    return X, 100 + X[:, 0] / size


@pytest.mark.parametrize("Estimator", [FalkonRegressor, NystromRegressor, ExactRegressor, EigenProRegressor])
@pytest.mark.parametrize(("kernel", "size"), LOST)
def test_a_term_that_float32_would_lose_is_refused_there(Estimator, kernel, size):
    """The constant was rounded away, and R2 was -24 with a residual of nearly zero."""
    X, y = of_size(size)
    model = plain(Estimator, kernel, random_state=0, dtype="float32")
    with pytest.raises(ValueError, match=r"sum of terms of about .* in float32 the smaller would be lost .*scale=True"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"or use dtype=\"float64\"$"):
        model.fit(X, y)


@pytest.mark.parametrize("Estimator", [FalkonRegressor, NystromRegressor])
@pytest.mark.parametrize(("kernel", "size"), [*LOST, (Linear() + 1.0, 3e2), (SQUARE, 1e1)])
def test_a_term_that_float32_would_lose_is_there_in_float64(Estimator, kernel, size):
    X, y = of_size(size)
    for options in ({}, {"dtype": "float64"}, {"scale": True}):
        model = plain(Estimator, kernel, random_state=0, **options).fit(X, y)
        assert model.score(X, y) > 0.99
        assert model.centers_.dtype == (np.float32 if "scale" in options else np.float64)
    assert plain(Estimator, Linear() + 0.0, random_state=0).fit(X, y).centers_.dtype == np.float32  # zeros are no term


def test_terms_that_are_small_are_no_reason_to_refuse():
    X, y = load_digits(return_X_y=True)
    X, y = X.astype(np.float32), (y > 4).astype(float)
    for kernel in (Polynomial(3, gamma=1.0), Gaussian() + 1e-6, 1e-6 * Gaussian() + Linear(), Polynomial(2, 1.0, 1e-3)):
        assert plain(FalkonRegressor, kernel, n_centers=200, random_state=0, max_iter=60).fit(X, y).score(X, y) > 0.4


@pytest.mark.parametrize("mean", [0.0, 100.0, 1e4])
def test_the_warning_tells_how_far_predictions_are_off(mean):
    X, y = far_from_zero()
    y = y - 100 + mean
    model = plain(FalkonRegressor, Gaussian(2.0) + 1.0, n_centers=300, random_state=0, max_iter=8)
    with pytest.warns(ConvergenceWarning, match="still off by about") as caught:
        found = model.fit(X, y).predict(X)
    said = float(str(caught[0].message).split("off by about ")[1].split()[0])
    truth = clone(model).set_params(max_iter=300).fit(X, y).predict(X)
    assert 1 / 6 < said / (np.sqrt(np.mean(np.square(found - truth))) / np.std(y)) < 6


@pytest.mark.parametrize("make", [make_friedman1, make_friedman2, make_friedman3])
@pytest.mark.parametrize("options", [{}, {"loss": "huber"}, {"loss": "quantile"}], ids=str)
def test_ordinary_fits_give_no_warning(make, options):
    X, y = make(1000, noise=0.1, random_state=0)
    plain(FalkonRegressor, scale=True, random_state=0, **options).fit(X, y)  # warnings are errors here


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("length_scale", [2.0, 20.0])
def test_a_penalty_below_the_precision_of_float32(length_scale, weighted):
    """float32 rows with penalty=1e-12: predictions were off by 0.2 to 0.8 deviations, without a word."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 4)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(1000)
    weight = 10.0 ** rng.uniform(-6, 6, 1000) if weighted else None
    model = plain(FalkonRegressor, Gaussian(length_scale), n_centers=100, penalty=1e-12, random_state=0, max_iter=60)
    model.fit(X, y, sample_weight=weight)
    assert model.centers_.dtype == np.float64
    wide = X.astype(np.float64)
    K, (values, vectors) = (
        model.kernel_(wide, model.centers_),
        np.linalg.eigh(model.kernel_(model.centers_, model.centers_)),
    )
    kept = values > 3e-16 * len(values) * values[-1]
    F = K @ vectors[:, kept] / np.sqrt(values[kept])
    root = np.ones(1000) if weight is None else np.sqrt(weight / weight.mean())
    ridge = np.sqrt(1e-12 * 1000) * np.eye(F.shape[1])
    beta = np.linalg.lstsq(np.vstack([root[:, None] * F, ridge]), np.append(root * y, np.zeros(len(ridge))))[0]
    assert np.sqrt(np.mean(np.square(root * (model.predict(X) - F @ beta)))) < 1e-2 * np.std(y)
    with pytest.warns(
        ConvergenceWarning, match=r"penalty=1e-12 is below the rounding errors of float32.*float64"
    ) as caught:
        assert clone(model).set_params(dtype="float32").fit(X, y).centers_.dtype == np.float32
    assert caught[0].filename == __file__


def test_precision_goes_by_the_size_of_the_kernel():
    """R2 was 0.43 in float32 and 0.87 in float64, with the default penalty."""
    X, y = far_from_zero()
    y = y - 100
    for dtype in (np.float32, np.float64):
        model = plain(FalkonRegressor, 1e4 * Gaussian(5.0), n_centers=300, random_state=0, max_iter=100)
        assert model.fit(X.astype(dtype), y).score(X, y) > 0.8
    model.set_params(kernel=Gaussian(5.0), penalty=1e-4)  # the same, but that k(x, x) is 1 and float32 loses nothing
    assert model.fit(X.astype(np.float32), y).centers_.dtype == np.float32
