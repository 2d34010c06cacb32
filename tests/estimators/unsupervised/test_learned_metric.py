"""A metric learnt from the gradient of a fit: what it finds, what it does for the fit that follows, and its input."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import (
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    LearnedMetric,
    ModelFileError,
    NystromRegressor,
    RandomFeaturesRegressor,
)
from gyrfalcon.kernels import Gaussian, Laplacian, Linear, Matern
from gyrfalcon.operators import mean_square_gradient
from gyrfalcon.sources import Rows


def falkon(kernel="gaussian", **options):
    return FalkonRegressor(kernel, **{"n_centers": 300, "penalty": 1e-5, "scale": False, "random_state": 0, **options})


@pytest.fixture(scope="module")
def friedman():
    """Five features that matter, ten that do not."""
    X, y = make_friedman1(2000, n_features=15, noise=0.1, random_state=0)
    return X, y - y.mean()


@pytest.fixture(scope="module")
def fitted(friedman):
    X, y = friedman
    return LearnedMetric(falkon(), random_state=0).fit(X[:1000], y[:1000])


def rmse(model, X, y):
    return np.sqrt(np.mean(np.square(model.fit(X[:1000], y[:1000]).predict(X[1000:]) - y[1000:])))


@parametrize_with_checks(
    [LearnedMetric(random_state=0), LearnedMetric(kind="full", random_state=0)],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "rows that are repeated may land on both sides of the split"
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ---- what it learns --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Gaussian(), Matern(), Laplacian(), Laplacian(norm=1)], ids=repr)
def test_features_that_do_not_matter_are_switched_off(kernel, friedman):
    X, y = friedman
    model = falkon(kernel, n_centers=600)  # rough kernels need many
    pipeline = make_pipeline(LearnedMetric(model, random_state=0), model)
    assert rmse(pipeline, X, y) < 0.5 * rmse(model, X, y)
    importances = pipeline[0].feature_importances_
    assert set(importances.argsort()[-5:]) == {0, 1, 2, 3, 4}
    assert importances[:5].sum() > 0.98
    assert_allclose(importances.sum(), 1)


def test_the_default_estimator(friedman):
    X, y = friedman
    pipeline = make_pipeline(LearnedMetric(random_state=0), FalkonRegressor(scale=False, random_state=0))
    assert rmse(pipeline, X, y) < 0.7 * rmse(FalkonRegressor(random_state=0), X, y)
    assert set(pipeline[0].feature_importances_.argsort()[-5:]) == {0, 1, 2, 3, 4}


def test_rounds_are_kept_by_their_validation_error(fitted):
    errors = [record["validation_error"] for record in fitted.history_]
    assert [record["iteration"] for record in fitted.history_] == list(range(fitted.n_rounds_ + 1))
    assert fitted.best_round_ == np.argmin(errors) > 0
    assert (fitted.scales_.max(), fitted.matrix_) == (1.0, None)
    assert (fitted.scales_ >= 1e-3).all()


def test_one_round_by_hand(friedman):
    """The first round is a fit of standardised features, and the root of the mean squares of its derivatives."""
    X, y = friedman[0][:1000], friedman[1][:1000]
    X_val, y_val = friedman[0][1000:1500], friedman[1][1000:1500]
    metric = LearnedMetric(falkon(), n_rounds=1, n_gradients=10_000, random_state=0).fit(X, y, None, X_val, y_val)
    U, U_val = ((part - X.mean(axis=0)) / X.std(axis=0) for part in (X, X_val))
    model = falkon().fit(U, y)
    errors = [np.sqrt(np.mean(np.square(model.predict(U_val) - y_val))) / y.std()]
    centers = {center.tobytes() for center in model.centers_}
    points = np.array([row for row in np.concatenate([U, U_val]) if row.tobytes() not in centers])
    assert len(points) == 1200
    G = mean_square_gradient(model.kernel_, points, model.centers_, model.dual_coef_)
    scales = np.maximum(np.sqrt(G / G.max()), 1e-3)
    assert_allclose(metric.scales_, scales, rtol=1e-6)
    errors.append(np.sqrt(np.mean(np.square(falkon().fit(U * scales, y).predict(U_val * scales) - y_val))) / y.std())
    assert_allclose([record["validation_error"] for record in metric.history_], errors, rtol=1e-6)
    assert_allclose(metric.transform(X), U * scales, rtol=1e-6)


def test_the_metric_of_a_round_is_that_of_the_features_themselves(friedman):
    """Features that come in other units and are not standardised have scales in those units."""
    X, y = friedman
    units = np.linspace(0.5, 2.0, X.shape[1])
    kernel = Laplacian(1.0, norm=1)
    plain, other = (
        LearnedMetric(falkon(k), scale=False, n_rounds=1, random_state=0).fit(rows[:1000], y[:1000])
        for k, rows in ((kernel, X), (Laplacian(units, norm=1), X * units))
    )
    ratio = plain.scales_ / (other.scales_ * units)
    assert_allclose(ratio, ratio[0], rtol=1e-6)


def test_a_direction_that_is_no_feature():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 8))
    direction = np.ones(8) / np.sqrt(8)
    y = np.sin(3 * X @ direction)
    full, diagonal = (LearnedMetric(falkon(), kind=kind, random_state=0) for kind in ("full", "diagonal"))
    assert rmse(make_pipeline(full, falkon()), X, y) < 0.2 * rmse(make_pipeline(diagonal, falkon()), X, y)
    full.fit(X[:1000], y[:1000])
    assert full.scales_ is None
    assert_allclose(full.matrix_, full.matrix_.T, atol=1e-12)
    values, vectors = np.linalg.eigh(full.matrix_)
    assert_allclose(values[-1], 1)
    assert values[0] >= 1e-3 * (1 - 1e-9)
    assert np.abs(vectors[:, -1] @ (direction / full.scale_ / np.linalg.norm(direction / full.scale_))) > 0.99
    assert_allclose(full.transform(X[:5]), (X[:5] - full.mean_) / full.scale_ @ full.matrix_)


def test_a_metric_that_does_not_help_is_not_used():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 5)), rng.standard_normal(200)
    metric = LearnedMetric(falkon(penalty=1e3), random_state=0).fit(X, y)  # predictions are all 0
    errors = [record["validation_error"] for record in metric.history_]
    assert metric.best_round_ == np.argmin(errors)
    flat = LearnedMetric(falkon(), random_state=0).fit(X, np.zeros(200))
    assert (flat.best_round_, flat.n_rounds_) == (0, 0)
    assert_array_equal(flat.scales_, np.ones(5))
    assert_allclose(flat.feature_importances_, 0.2)


def test_several_outputs_count_alike_in_any_units(friedman):
    X, y = friedman
    Y = np.column_stack([y, np.sin(3 * X[:, 9])])
    metric, same = (LearnedMetric(falkon(), random_state=0).fit(X[:1000], Y[:1000] * unit) for unit in (1, [1, 1e-3]))
    assert set(metric.feature_importances_.argsort()[-6:]) == {0, 1, 2, 3, 4, 9}
    assert_allclose(metric.feature_importances_, same.feature_importances_, rtol=1e-4)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(loss, n_classes, friedman):
    X, y = friedman
    labels = np.array(["low", "middle", "high"])[
        np.digitize(y, np.quantile(y, [0.5] if n_classes == 2 else [0.3, 0.7]))
    ]
    classifier = FalkonClassifier(loss=loss, n_centers=200, penalty=1e-4, scale=False, random_state=0)
    pipeline = make_pipeline(LearnedMetric(classifier, n_rounds=3, random_state=0), classifier)
    scores = [model.fit(X[:1000], labels[:1000]).score(X[1000:], labels[1000:]) for model in (classifier, pipeline)]
    assert 1 - scores[1] < 0.8 * (1 - scores[0])
    assert set(pipeline[0].feature_importances_.argsort()[-5:]) == {0, 1, 2, 3, 4}


def test_labels_are_learnt_by_a_classifier(friedman):
    X, y = friedman[0][:500], friedman[1][:500]
    codes = (y > 0).astype(int)
    explicit = LearnedMetric(FalkonClassifier(), random_state=0).fit(X, codes)
    for labels in (np.where(y > 0, "yes", "no"), np.where(y > 0, "yes", "no").astype(object), y > 0):
        found = LearnedMetric(random_state=0).fit(X, labels)
        assert_allclose(found.scales_, explicit.scales_, rtol=1e-6)


def test_a_class_of_one_row(friedman):
    X, y = friedman[0][:200], friedman[1][:200]
    labels = np.where(y > 0, "yes", "no").astype(object)
    labels[0] = "once"
    for seed in range(5):  # in some of them the row is held out
        assert np.isfinite(LearnedMetric(random_state=seed, n_rounds=1).fit(X, labels).scales_).all()


def test_weights_are_as_repeated_rows_and_rows_of_weight_zero_are_none(friedman):
    X, y = friedman[0][:400], friedman[1][:400]
    weight = np.repeat([1.0, 0.0], 200)
    args = {"n_rounds": 2, "random_state": 0}
    part = LearnedMetric(falkon(n_centers=50), **args).fit(X[:200], y[:200])
    whole = LearnedMetric(falkon(n_centers=50), **args).fit(X, np.where(weight, y, 1e6), sample_weight=weight)
    assert_allclose(whole.scales_, part.scales_, rtol=1e-6)
    # y depends on another feature where the weight is small
    swapped = np.where(np.arange(400) % 2, np.sin(6 * X[:, 7]), np.sin(6 * X[:, 8]))
    weight = np.where(np.arange(400) % 2, 1.0, 1e-3)
    metric = LearnedMetric(falkon(n_centers=100, penalty=1e-3), **args).fit(X, swapped, sample_weight=weight)
    assert metric.feature_importances_.argmax() == 7
    assert metric.feature_importances_[7] > 0.9


# ---- rows and precision ----------------------------------------------------------------------------------------------


class Elsewhere(Rows):
    """Rows that are read a block at a time, with names."""

    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.feature_names = [f"x{i}" for i in range(X.shape[1])]

    def blocks(self, size):
        for start in range(0, len(self.X), size):
            yield self.X[start : start + size]

    def take(self, indices):
        return self.X[indices]


def test_rows_from_elsewhere(friedman):
    X, y = friedman[0][:600], friedman[1][:600]
    args = {"n_rounds": 2, "n_rows": 300, "random_state": 0}
    memory = LearnedMetric(falkon(n_centers=100), **args).fit(X, y)
    source = LearnedMetric(falkon(n_centers=100), **args).fit(Elsewhere(X), y)
    assert_allclose(source.scales_, memory.scales_, rtol=1e-9)
    assert_allclose(source.transform(Elsewhere(X)), memory.transform(X), rtol=1e-9)
    assert list(source.get_feature_names_out()) == [f"x{i}" for i in range(15)]


def test_values_from_elsewhere_that_are_not_finite(fitted, friedman):
    X = friedman[0][:50].copy()
    X[30, 2] = np.nan
    with pytest.raises(ValueError, match="row 30 of X has NaN or infinity"):
        fitted.transform(Elsewhere(X))


def test_dask(friedman):
    da = pytest.importorskip("dask.array")
    X, y = friedman[0][:600], friedman[1][:600]
    args = {"n_rounds": 2, "random_state": 0}
    memory = LearnedMetric(falkon(n_centers=100), **args).fit(X, y)
    lazy = da.from_array(X, chunks=(250, 15))
    dask = LearnedMetric(falkon(n_centers=100), **args).fit(lazy, da.from_array(y, chunks=250))
    assert_allclose(dask.scales_, memory.scales_, rtol=1e-9)
    found = dask.transform(lazy)
    assert found.shape == (600, 15)
    assert_allclose(found.compute(), memory.transform(X), rtol=1e-9)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_tables(kind, friedman):
    pd = pytest.importorskip("pandas")
    X, y = pd.DataFrame(friedman[0][:300], columns=[f"x{i}" for i in range(15)]), friedman[1][:300]
    metric = LearnedMetric(falkon(), kind=kind, n_rounds=1, random_state=0).set_output(transform="pandas").fit(X, y)
    table = metric.transform(X)
    expected = list(X) if kind == "diagonal" else [f"learnedmetric{i}" for i in range(15)]
    assert list(table) == list(metric.get_feature_names_out()) == expected


def test_float32(friedman):
    X, y = friedman[0][:1000].astype(np.float32), friedman[1][:1000].astype(np.float32)
    narrow = LearnedMetric(falkon(penalty=1e-3), random_state=0).fit(X, y)
    wide = LearnedMetric(falkon(penalty=1e-3), random_state=0).fit(X.astype(np.float64), y)
    assert narrow.transform(X).dtype == np.float32
    # a gradient of eps / penalty times what matters is noise
    assert_allclose(narrow.scales_, wide.scales_, rtol=1e-2, atol=1e-3)


def test_the_same_for_any_number_of_threads(friedman):
    X, y = friedman[0][:500], friedman[1][:500]
    for kind in ("diagonal", "full"):
        one, two = (
            LearnedMetric(falkon(n_jobs=n), kind=kind, n_rounds=2, n_jobs=n, random_state=0).fit(X, y).transform(X[:9])
            for n in (1, 2)
        )
        assert_array_equal(one, two)


# ---- files, callbacks, errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_save_and_load(kind, friedman, tmp_path):
    X, y = friedman[0][:300], friedman[1][:300]
    metric = LearnedMetric(falkon(n_centers=50), kind=kind, n_rounds=1, random_state=0).fit(X, y)
    metric.save(tmp_path / "metric.gyr")
    loaded = gyrfalcon.load(tmp_path / "metric.gyr")
    assert_array_equal(loaded.transform(X), metric.transform(X))
    assert_array_equal(loaded.feature_importances_, metric.feature_importances_)
    assert loaded.history_ == metric.history_
    assert loaded.estimator.n_centers == 50


def test_a_file_that_does_not_fit_is_refused(fitted, tmp_path):
    for name, value in (("scales_", np.ones(3)), ("scales_", None), ("mean_", np.full(15, np.nan))):
        broken = clone(fitted)
        vars(broken).update({**vars(fitted), name: value})
        gyrfalcon.save(broken, tmp_path / "broken.gyr")
        with pytest.raises(ModelFileError):
            gyrfalcon.load(tmp_path / "broken.gyr")


def test_callbacks_see_rounds_and_can_stop(friedman):
    X, y = friedman[0][:300], friedman[1][:300]
    seen = []

    def watch(record):
        seen.append(record["validation_error"])
        return len(seen) == 2

    metric = LearnedMetric(falkon(n_centers=50), callbacks=watch, random_state=0).fit(X, y)
    assert len(seen) == len(metric.history_) == 2
    assert metric.n_rounds_ == 1


def test_no_rounds_give_importances_alone(friedman):
    metric = LearnedMetric(falkon(), n_rounds=0, random_state=0).fit(*friedman)
    assert_array_equal(metric.scales_, np.ones(15))
    assert set(metric.feature_importances_.argsort()[-5:]) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("estimator", [ExactRegressor(penalty=1e-4), NystromRegressor(n_centers=100)], ids=repr)
def test_other_estimators_with_centers(estimator, friedman):
    X, y = friedman[0][:400], friedman[1][:400]
    metric = LearnedMetric(estimator, n_rounds=2, random_state=0).fit(X, y)
    assert metric.best_round_ > 0
    assert metric.feature_importances_[:5].sum() > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "round"}, "kind"),
        ({"n_rounds": -1}, "n_rounds"),
        ({"n_gradients": 0}, "n_gradients"),
        ({"n_rows": 1}, "n_rows"),
        ({"floor": 0.0}, "floor"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"scale": "yes"}, "scale"),
        ({"estimator": RandomFeaturesRegressor()}, "must be None or one of FalkonRegressor"),
        ({"estimator": FalkonRegressor(centers=np.zeros((3, 15)))}, "do not follow the metric"),
        ({"estimator": FalkonRegressor(checkpoint="folder")}, "checkpoint"),
        ({"estimator": FalkonRegressor(Linear())}, "Linear has no slopes"),
        ({"estimator": FalkonRegressor(loss="quantile", quantiles=[0.1, 0.9])}, "quantiles cannot judge"),
    ],
    ids=str,
)
def test_wrong_parameters(options, message, friedman):
    X, y = friedman[0][:100], friedman[1][:100]
    metric = LearnedMetric(**options)
    with pytest.raises((ValueError, TypeError), match=message):
        metric.fit(X, y)
    with pytest.raises(NotFittedError):
        metric.transform(X)
