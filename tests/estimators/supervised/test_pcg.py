"""ExactRegressor(method="pcg") against method="ridge", which solves the same systems densely in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, TimeSeriesSplit
from variant_checks import parametrize_with_variant_checks

import gyrfalcon
from gyrfalcon import ExactRegressor, KernelOperator
from gyrfalcon._utils.compute import Compute
from gyrfalcon.fitting import exact_preconditioner
from gyrfalcon.kernels import ArcCosine, Gaussian, Laplacian, Linear, Matern, Polynomial, RationalQuadratic

pytestmark = pytest.mark.filterwarnings("error")

KERNELS = [
    Gaussian(1.2),
    Laplacian(2.0),
    Laplacian(2.0, norm=1),
    Matern(2.0),
    Matern(2.0, nu=2.5),
    RationalQuadratic(1.5),
    Linear(),
    Polynomial(degree=2),
    ArcCosine(),
    Linear() + 0.5 * Gaussian(1.0),
]
KERNEL = Laplacian(2.0)
PENALTIES = [1e-4, 1e-2, 1.0]


@parametrize_with_variant_checks(
    [
        ExactRegressor(method="pcg", tol=1e-10, dtype="float64"),
        ExactRegressor(method="pcg", tol=1e-10, dtype="float64", penalties=[1e-3, 1e-1], cv=2),
        ExactRegressor(method="pcg", tol=1e-10, dtype="float64", preconditioner="random_features"),
        ExactRegressor(method="pcg", tol=1e-10, dtype="float64", preconditioner="hierarchical"),
    ],
    expected_failed_checks=lambda estimator: (
        {"check_sample_weight_equivalence_on_dense_data": "a repeated row may land in several folds"}
        if estimator.penalties is not None
        else {}
    ),
)
def test_scikit_learn_checks_of_variants(estimator, check):
    check(estimator)


def data(n=160, d=3, k=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    return X, y if k is None else np.stack([y * 10.0**j + j for j in range(k)], axis=1)


def weights(n=160):
    return np.random.default_rng(5).integers(0, 4, size=n)


def pcg(kernel=KERNEL, **parameters):
    return plain(
        ExactRegressor, kernel, method="pcg", **{"n_centers": 40, "tol": 1e-10, "random_state": 0, **parameters}
    )


# ---- one penalty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_dense_solution(kernel, weighted):
    X, y = data(k=2)
    w = weights() if weighted else None
    model = pcg(kernel, penalty=1e-4, max_iter=500).fit(X, y, sample_weight=w)
    exact = plain(ExactRegressor, kernel, penalty=1e-4).fit(X, y, sample_weight=w)
    new = data(seed=1)[0]
    # the residual bounds fitted values, and mu times the coefficients
    assert_allclose(model.predict(X), exact.predict(X), rtol=1e-6, atol=1e-7)
    assert_allclose(model.predict(new), exact.predict(new), rtol=1e-5, atol=1e-6)
    assert_allclose(model.dual_coef_, exact.dual_coef_, rtol=1e-5, atol=1e-6 * np.abs(exact.dual_coef_).max())
    assert model.penalty_ == 1e-4
    assert model.history_[-1]["converged"]
    assert not hasattr(model, "cv_predictions_")


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_float32(kernel):
    X, y = data(400)
    model = pcg(kernel, penalty=1e-4, tol=None, max_iter=300).fit(X.astype(np.float32), y.astype(np.float32))
    exact = plain(ExactRegressor, kernel, penalty=1e-4).fit(X, y)
    assert model.predict(X.astype(np.float32)).dtype == np.float32
    # 1e-4 of the deviation by the tolerance, and rounding of products of numbers of the size of y / mu
    assert_allclose(model.predict(X.astype(np.float32)), exact.predict(X), atol=5e-3)


@pytest.mark.parametrize("kernel", [Gaussian(1.2), Laplacian(2.0), Matern(2.0, nu=2.5), Linear()], ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_features_as_the_preconditioner(kernel, weighted, dtype):
    X, y = data(k=2)
    w = weights() if weighted else None
    tol = 1e-10 if dtype == np.float64 else None
    model = pcg(kernel, penalty=1e-3, preconditioner="random_features", tol=tol, max_iter=500)
    model.fit(X.astype(dtype), y.astype(dtype), sample_weight=w)
    exact = plain(ExactRegressor, kernel, penalty=1e-3).fit(X, y, sample_weight=w)
    # float32: the tolerance times the deviation of y, which is 10, and rounding of products of the size of y / mu
    at = {"rtol": 1e-6, "atol": 1e-7} if dtype == np.float64 else {"atol": 1e-2}
    assert_allclose(model.predict(X.astype(dtype)), exact.predict(X), **at)


@pytest.mark.parametrize("kind", ["random_features", "hierarchical"])
@pytest.mark.parametrize("weighted", [False, True])
def test_preconditioners_serve_penalties_and_folds(kind, weighted, small_leaves):
    X, y = data()
    w = weights() if weighted else None
    nystrom, other = (
        pcg(penalties=PENALTIES, cv=4, max_iter=500, preconditioner=name).fit(X, y, sample_weight=w)
        for name in ("nystrom", kind)
    )
    assert other.penalty_ == nystrom.penalty_
    assert other.n_iter_ != nystrom.n_iter_
    assert_allclose(other.cv_predictions_, nystrom.cv_predictions_, atol=1e-6)


@pytest.fixture
def small_leaves(monkeypatch):
    monkeypatch.setattr(exact_preconditioner, "_LEAF_SIZES", (40, 20, 10))


@pytest.mark.parametrize("kernel", [Gaussian(1.2), Laplacian(2.0), Polynomial(degree=2)], ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_scales_as_the_preconditioner(kernel, weighted, dtype, small_leaves):
    X, y = data(k=2)
    w = weights() if weighted else None
    tol = 1e-10 if dtype == np.float64 else None
    model = pcg(kernel, penalty=1e-3, preconditioner="hierarchical", tol=tol, max_iter=500)
    model.fit(X.astype(dtype), y.astype(dtype), sample_weight=w)
    exact = plain(ExactRegressor, kernel, penalty=1e-3).fit(X, y, sample_weight=w)
    at = {"rtol": 1e-6, "atol": 1e-7} if dtype == np.float64 else {"atol": 1e-2}
    assert_allclose(model.predict(X.astype(dtype)), exact.predict(X), **at)


def test_two_scales_take_fewer_iterations(small_leaves):
    X, y = data(600)
    nystrom, two_scales = (
        sum(
            pcg(penalty=1e-5, preconditioner=kind, n_centers=60, random_state=seed).fit(X, y).n_iter_
            for seed in range(4)  # one draw of a tree says little
        )
        for kind in ("nystrom", "hierarchical")
    )
    assert two_scales < 0.75 * nystrom


def test_the_preconditioner_follows_the_number_of_rows_and_memory(monkeypatch, small_leaves):
    X = np.zeros((400, 3), dtype=np.float32)
    mu = np.array([0.1, 0.2])

    def planned(kind="auto", budget="1GB"):
        compute = Compute(n_jobs=1, memory_budget=budget)
        return exact_preconditioner.plan_guess(kind, 20, X, mu, 5, compute, held=1_000)

    assert planned().kind == "nystrom"
    assert planned("hierarchical").leaf_size == 40
    monkeypatch.setattr(exact_preconditioner, "TWO_SCALES", 400)
    assert planned().kind == "hierarchical"
    assert planned(budget=1_000).kind == "nystrom"
    needs = [sum(planned("hierarchical", budget).needs.values()) for budget in ("1GB", 1_000)]
    assert needs[1] < needs[0]
    assert planned("hierarchical", needs[0] + 999).leaf_size == 20
    assert planned("hierarchical", needs[0] + 1_000).leaf_size == 40


def test_two_scales_without_memory():
    X, y = data(2_000)
    with pytest.raises(MemoryError, match=r"for factors of leaves of 250 rows.*fewer penalties"):
        pcg(preconditioner="hierarchical", memory_budget="1MB").fit(X, y)


def test_two_scales_have_the_same_bits_for_any_number_of_threads(small_leaves):
    X, y = data(300)
    found = [
        pcg(penalties=PENALTIES, cv=2, preconditioner="hierarchical", n_jobs=n_jobs).fit(X, y).dual_coef_
        for n_jobs in (1, 3)
    ]
    assert_array_equal(found[0], found[1])


def test_more_random_features_take_fewer_iterations():
    X, y = data(500)
    counts = [
        pcg(Gaussian(2.0), penalty=1e-4, n_centers=M, preconditioner="random_features").fit(X, y).n_iter_
        for M in (20, 400)
    ]
    assert counts[1] < 0.7 * counts[0]


def test_preconditioners_that_are_not_there():
    X, y = data()
    with pytest.raises(ValueError, match="Polynomial has no random features"):
        pcg(Polynomial(), preconditioner="random_features").fit(X, y)
    with pytest.raises(ValueError, match="preconditioner='falkon' must be one of"):
        pcg(preconditioner="falkon").fit(X, y)


def test_rows_that_are_there_twice():
    X, y = data()
    X, y = np.vstack([X, X]), np.concatenate([y, y + 1])
    assert_allclose(
        pcg(penalty=1e-5, max_iter=500).fit(X, y).predict(X),
        plain(ExactRegressor, KERNEL, penalty=1e-5).fit(X, y).predict(X),
        rtol=1e-6,
        atol=1e-7,
    )


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows(n):
    X, y = data(n)
    exact = plain(ExactRegressor, KERNEL, penalty=1e-2).fit(X, y)
    assert_allclose(pcg(penalty=1e-2).fit(X, y).dual_coef_, exact.dual_coef_, rtol=1e-6)
    assert_allclose(pcg(penalty=1e-2, n_centers=None).fit(X, y).dual_coef_, exact.dual_coef_, rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e-8])
def test_constant_targets(value):
    X, _ = data()
    y = np.full(len(X), value)
    model = pcg(penalty=1e-3, tol=1e-8).fit(X, y)
    assert_allclose(model.predict(X), plain(ExactRegressor, KERNEL, penalty=1e-3).fit(X, y).predict(X), rtol=1e-6)


def test_the_same_bits_for_any_number_of_threads_and_no_matrix_of_all_rows():
    X, y = data(300)
    found = [clone(pcg(penalties=PENALTIES, memory_budget=0, n_jobs=n_jobs)).fit(X, y) for n_jobs in (1, 2, 3)]
    for other in found[1:]:
        assert_array_equal(other.dual_coef_, found[0].dual_coef_)
        assert_array_equal(other.cv_predictions_, found[0].cv_predictions_)


@pytest.mark.parametrize("budget", [0, "auto"])
def test_the_matrix_of_all_rows_is_kept_only_if_it_fits(budget, monkeypatch):
    X, y = data()
    kept = []

    class Watched(KernelOperator):
        def matmat(self, V):
            kept.append((self.shape, self.keeps))
            return super().matmat(V)

    monkeypatch.setattr("gyrfalcon.fitting.ridge.KernelOperator", Watched)
    pcg(penalty=1e-3, memory_budget=budget).fit(X, y)
    assert set(kept) == {((160, 160), budget == "auto"), ((160, 40), budget == "auto")}


# ---- several penalties, and folds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_validation_is_a_loop_over_folds(k, weighted, dtype):
    X, y = data(k=k)
    X = X.astype(dtype)
    w = weights() if weighted else np.ones(len(X))
    fold = np.random.default_rng(1).integers(3, 7, size=len(X))
    tight = dtype == np.float64
    model = pcg(penalties=PENALTIES, cv=fold, tol=1e-10 if tight else 1e-5)
    model.fit(X, y, sample_weight=w if weighted else None)
    expected = {penalty: np.full(y.shape, np.nan) for penalty in PENALTIES}
    for penalty, predictions in expected.items():
        for f in np.unique(fold):
            T, H = (fold != f) & (w > 0), (fold == f) & (w > 0)
            exact = plain(ExactRegressor, KERNEL, penalty=penalty).fit(X[T], y[T], sample_weight=w[T])
            predictions[H] = exact.predict(X[H])
    errors = []
    for predictions in expected.values():
        squares = np.square(predictions - y)[w > 0].reshape(np.count_nonzero(w), -1).mean(axis=1)
        errors.append(np.sqrt(np.average(squares, weights=w[w > 0])))
    assert_allclose(model.history_[-1]["cv_errors"], errors, rtol=1e-7 if tight else 1e-3)
    assert model.penalty_ == PENALTIES[np.argmin(errors)]
    assert model.cv_predictions_.shape == y.shape
    assert_array_equal(np.isnan(model.cv_predictions_), np.isnan(expected[model.penalty_]))
    tolerance = (1e-8 if tight else 1e-3) * np.std(y, axis=0).max()
    assert_allclose(model.cv_predictions_, expected[model.penalty_], atol=tolerance)
    refitted = plain(ExactRegressor, KERNEL, penalty=model.penalty_).fit(X, y, sample_weight=w)
    assert_allclose(model.predict(X), refitted.predict(X), atol=tolerance)


def test_one_penalty_can_be_cross_validated():
    X, y = data()
    model = pcg(penalty=1e-2, choose_by="cv", cv=4).fit(X, y)
    alone = pcg(penalty=1e-2).fit(X, y)
    assert_allclose(model.dual_coef_, alone.dual_coef_, rtol=1e-6, atol=1e-8)
    error = np.sqrt(np.mean((model.cv_predictions_ - y) ** 2))
    assert_allclose(error, model.history_[-1]["cv_errors"][0])
    assert error > np.sqrt(np.mean((model.predict(X) - y) ** 2))
    model.set_params(choose_by=None).fit(X, y)
    assert not hasattr(model, "cv_predictions_")


def test_splitters():
    X, y = data(90)
    splitter = KFold(3, shuffle=True, random_state=0)
    fold = np.empty(90, dtype=int)
    for f, (_, test) in enumerate(splitter.split(X)):
        fold[test] = f
    expected = pcg(penalties=PENALTIES, cv=fold).fit(X, y).cv_predictions_
    for cv in (splitter, list(splitter.split(X))):
        assert_array_equal(pcg(penalties=PENALTIES, cv=cv).fit(X, y).cv_predictions_, expected)
    labels = (y > 0).astype(float)
    assert np.isfinite(pcg(penalties=PENALTIES, cv=StratifiedKFold(3)).fit(X, labels).cv_predictions_).all()


@pytest.mark.parametrize(
    ("cv", "match"),
    [
        (ShuffleSplit(3), "every row must be in one fold"),
        (TimeSeriesSplit(3), "every fold must be predicted from all other rows"),
        (np.zeros(90, dtype=int), "only one fold .* give at least two"),
        (np.arange(80), r"cv has shape \(80,\)"),
        (91, "cv=91 folds are more than there are rows"),
        ("many", "cv='many' must be"),
    ],
    ids=str,
)
def test_folds_that_make_no_sense(cv, match):
    X, y = data(90)
    with pytest.raises(ValueError, match=match):
        pcg(penalties=PENALTIES, cv=cv).fit(X, y)


@pytest.mark.parametrize("given", [False, True])
def test_validation_chooses(given):
    X, y = data()
    X_val, y_val = data(seed=1)
    model = pcg(penalties=PENALTIES, choose_by=None if given else "validation")
    model.fit(X, y, **({"X_val": X_val, "y_val": y_val} if given else {}))
    assert len(model.centers_) == (160 if given else 128)
    errors = model.history_[-1]["validation_errors"]
    assert model.penalty_ == PENALTIES[np.argmin(errors)]
    if given:
        for penalty, error in zip(PENALTIES, errors, strict=True):
            exact = plain(ExactRegressor, KERNEL, penalty=penalty).fit(X, y, X_val=X_val, y_val=y_val)
            assert_allclose(error, exact.history_[0]["validation_error"], rtol=1e-6)


def test_the_validation_error_is_recorded():
    X, y = data()
    X_val, y_val = data(seed=1)
    model = pcg(penalty=1e-3).fit(X, y, X_val=X_val, y_val=y_val)
    error = np.sqrt(np.mean((model.predict(X_val) - y_val) ** 2))
    assert_allclose(model.history_[-1]["validation_error"], error)


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_too_few_iterations_are_told():
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="of their standard deviation after 2 iterations: raise max_iter=2"):
        pcg(penalty=1e-6, max_iter=2, tol=None, n_centers=2).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="above tol=1e-12: raise max_iter=12"):
        pcg(penalty=1e-4, max_iter=12, tol=1e-12).fit(X, y)
    with pytest.warns(ConvergenceWarning, match='above tol=1e-12: rounding allows no less.*dtype="float64"'):
        pcg(penalty=1e-4, tol=1e-12).fit(X.astype(np.float32), y)


def test_a_callback_stops_it():
    X, y = data()
    model = pcg(penalty=1e-6, callbacks=lambda record: record["iteration"] == 3).fit(X, y)
    assert model.n_iter_ == len(model.history_) == 3


def test_too_little_memory():
    X, y = data(2000)
    with pytest.raises(MemoryError, match=r'method="pcg" with 2000 rows takes .* \(.* for vectors of 18 columns.*1MB'):
        pcg(penalties=PENALTIES, memory_budget="1MB").fit(X, y)


def test_saved_and_loaded(tmp_path):
    X, y = data()
    model = pcg(penalties=PENALTIES, cv=3).fit(X, y)
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert_array_equal(loaded.cv_predictions_, model.cv_predictions_)
    assert loaded.history_ == model.history_
