"""FalkonClassifier: labels of any kind, in scikit-learn's order, on top of what test_regression checks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.datasets import load_breast_cancer, load_digits, make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.kernels import Gaussian, Laplacian

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:predictions are still off"),  # of fits that are cut short on purpose
]


@pytest.fixture(scope="module")
def moons():
    return make_moons(300, noise=0.15, random_state=0)


@pytest.fixture(scope="module")
def blobs():
    """Three classes that touch, two of them in corners: none may be mistaken for another by its place in the order."""
    return make_blobs(300, centers=[[0, 0], [3, 0], [0, 3]], cluster_std=0.8, random_state=0)


def classifier(**params):
    return plain(
        FalkonClassifier, **{"kernel": Laplacian(1.0), "penalty": 1e-3, "n_centers": 60, "random_state": 0, **params}
    )


# ---- the solution ----------------------------------------------------------------------------------------------------


def dense_solve(model, X, targets, weight):
    K, gram = model.kernel_(X, model.centers_), model.kernel_(model.centers_, model.centers_)
    left = K.T @ (weight[:, None] * K) + model.penalty * weight.sum() * gram
    return scipy.linalg.solve(left, K.T @ (weight[:, None] * targets), assume_a="pos"), K


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 5.0, 2: 0.5}], ids=["", "balanced", "dict"])
def test_agrees_with_a_dense_solve(blobs, class_weight, weighted):
    X, y = blobs[0], blobs[1]
    keep = np.flatnonzero((y != 2) | (np.arange(len(y)) % 4 == 0))  # unbalanced
    X, y = X[keep], y[keep]
    sample = np.random.default_rng(0).uniform(0.2, 2.0, len(X)) if weighted else np.ones(len(X))
    if class_weight == "balanced":
        each = sample.sum() / 3 / np.bincount(y, weights=sample)
    else:
        each = np.ones(3) if class_weight is None else np.array([1.0, 5.0, 0.5])
    model = classifier(class_weight=class_weight, max_iter=200, tol=1e-12).fit(X, y, sample if weighted else None)
    targets = np.where(y[:, None] == [0, 1, 2], 1.0, -1.0)
    alpha, K = dense_solve(model, X, targets, sample * each[y])
    assert np.abs(model.dual_coef_ - alpha).max() < 1e-7 * np.abs(alpha).max()
    assert np.abs(model.decision_function(X) - K @ alpha).max() < 1e-7
    assert_array_equal(model.predict(X), (K @ alpha).argmax(axis=1))


def test_two_classes_are_one_regression(moons):
    X, y = moons
    model = classifier().fit(X, y)
    regressor = plain(FalkonRegressor, Laplacian(1.0), penalty=1e-3, n_centers=60, random_state=0).fit(X, 2.0 * y - 1)
    assert_array_equal(model.dual_coef_, regressor.dual_coef_)
    assert_array_equal(model.decision_function(X), regressor.predict(X))


def test_balanced_is_what_it_says(moons):
    X, y = moons
    X, y = np.vstack([X, X[y == 1]]), np.hstack([y, y[y == 1]])
    counts = np.bincount(y)
    explicit = {c: len(y) / 2 / counts[c] for c in (0, 1)}
    balanced = classifier(class_weight="balanced").fit(X, y)
    assert_allclose(balanced.dual_coef_, classifier(class_weight=explicit).fit(X, y).dual_coef_, rtol=1e-9)


def test_class_weights_move_the_boundary(moons):
    X, y = moons[0] * [1, 0.3], moons[1]  # they overlap
    recall = [
        (classifier(class_weight={0: 1.0, 1: heavy}).fit(X, y).predict(X)[y == 1] == 1).mean() for heavy in (0.1, 1, 10)
    ]
    assert recall[0] < recall[1] < recall[2]


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 1: 3.0}])
def test_weights_are_repetitions(moons, class_weight):
    X, y = moons[0][:80], moons[1][:80]
    times = np.random.default_rng(4).integers(0, 4, 80)
    params = {"kernel": "laplacian", "penalty": 1e-3, "max_iter": 200, "class_weight": class_weight}
    weighted = plain(FalkonClassifier, **params).fit(X, y, times)
    repeated = plain(FalkonClassifier, **params).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert_allclose(weighted.decision_function(X), repeated.decision_function(X), rtol=0, atol=1e-7)


# ---- labels ----------------------------------------------------------------------------------------------------------

NAMES = {
    "strings": ["b", "a", "c"],
    "long and short": ["x", "a much longer name", ""],
    "unicode": ["Nyström", "é", "日本"],
    "gaps": [7, -100, 3],
    "unsigned": np.array([200, 3, 90], dtype=np.uint8),
    "large": [2**40, -(2**50), 5],
    "whole floats": [2.0, -1.0, 0.0],
    "objects": np.array(["b", "a", "c"], dtype=object),
    "integer objects": np.array([3, 1, 2], dtype=object),
    "strings of numbers": ["10", "9", "1"],
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_labels_of_any_kind(blobs, names, n_classes):
    keep = blobs[1] < n_classes
    X, codes = blobs[0][keep], blobs[1][keep]
    y = np.asarray(names)[:n_classes][codes]
    model = classifier().fit(X, y)
    assert_array_equal(model.classes_, np.unique(y))
    predictions = model.predict(X)
    assert predictions.dtype == y.dtype or isinstance(y[0], int)
    assert (predictions == y).mean() > 0.93
    if names is not NAMES["integer objects"]:  # scikit-learn's metrics refuse those
        assert model.score(X, y) == (predictions == y).mean()
    values = model.decision_function(X)
    if n_classes == 2:
        assert values.shape == (len(X),)
        assert model.dual_coef_.shape == (60,)
        assert_array_equal(predictions, np.where(values > 0, model.classes_[1], model.classes_[0]))
    else:
        assert values.shape == (len(X), 3)
        assert model.dual_coef_.shape == (60, 3)
        assert_array_equal(predictions, model.classes_[values.argmax(axis=1)])


def test_bool_labels(moons):
    X, y = moons[0], moons[1] == 1
    model = classifier().fit(X, y)
    assert model.classes_.dtype == bool
    assert model.predict(X).dtype == bool
    assert (model.predict(X) == y).mean() > 0.95


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_columns_are_in_sorted_order_not_in_first_seen_order(blobs, order):
    X, codes = blobs
    at = np.argsort(np.argsort(order)[codes], kind="stable")  # so that classes are seen in that order
    X, y = X[at], np.array(["a", "b", "c"])[codes[at]]
    model = classifier().fit(X, y)
    assert_array_equal(model.classes_, ["a", "b", "c"])
    far = np.array([[-1.0, -1.0], [4.5, -0.5], [-0.5, 4.5]])
    assert_array_equal(model.decision_function(far).argmax(axis=1), [0, 1, 2])
    assert_array_equal(model.predict(far), ["a", "b", "c"])


def test_ten_classes():
    X, y = load_digits(return_X_y=True)
    model = plain(FalkonClassifier, n_centers=200, random_state=0).fit(X[:900], y[:900] * 11)
    assert_array_equal(model.classes_, np.arange(10) * 11)
    assert model.decision_function(X[900:]).shape == (897, 10)
    assert model.dual_coef_.shape == (200, 10)
    assert model.score(X[900:], y[900:] * 11) > 0.93


COLUMNS = {
    "pandas": lambda y: pd.Series(y, index=np.arange(len(y))[::-1] % 5),
    "pandas category": lambda y: pd.Series(y, dtype="category"),
    "polars": lambda y: pl.Series(y.tolist()),
    "polars category": lambda y: pl.Series(y.tolist(), dtype=pl.Categorical),
    "pyarrow": lambda y: pa.array(y.tolist()),
    "pyarrow chunks": lambda y: pa.chunked_array([y[:10].tolist(), y[10:].tolist()]),
    "list": lambda y: y.tolist(),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("names", [["no", "yes"], [False, True], [3, -3]], ids=["str", "bool", "int"])
def test_labels_from_tables(moons, column, names):
    if names[0] is False and column is COLUMNS["polars category"]:
        pytest.skip("polars has categories of strings only")
    if isinstance(names[0], int) and column is COLUMNS["polars category"]:
        pytest.skip("polars has categories of strings only")
    X, y = moons[0], np.array(names)[moons[1]]
    expected = classifier().fit(X, y, X_val=X, y_val=y)
    model = classifier().fit(
        pd.DataFrame(X, columns=["u", "v"]), column(y), X_val=pd.DataFrame(X, columns=["u", "v"]), y_val=column(y)
    )
    assert_array_equal(model.dual_coef_, expected.dual_coef_)
    assert model.classes_.tolist() == sorted(names)
    assert model.predict(pd.DataFrame(X, columns=["u", "v"])).tolist() == expected.predict(X).tolist()
    assert model.history_[-1]["validation_error"] == pytest.approx(1 - expected.score(X, y))


def test_a_column_vector_of_labels_is_flattened_with_a_warning(moons):
    X, y = moons
    with pytest.warns(match="column-vector y was passed"):
        model = classifier().fit(X, y[:, None])
    assert_array_equal(model.predict(X), classifier().fit(X, y).predict(X))


def test_float32(moons):
    X, y = moons
    single = classifier().fit(X.astype(np.float32), y)
    values = single.decision_function(X.astype(np.float32))
    assert values.dtype == np.float32
    assert_allclose(values, classifier().fit(X, y).decision_function(X), atol=2e-4)


# ---- refitting -------------------------------------------------------------------------------------------------------


def test_warm_start_with_the_same_classes_goes_on(moons):
    X, y = moons
    model = classifier(max_iter=3, tol=0.0, warm_start=True).fit(X, y)
    first = model.history_[-1]["residual"]
    centers = model.centers_
    model.set_params(random_state=5).fit(X, y)
    assert_array_equal(model.centers_, centers)
    assert model.history_[-1]["residual"] < 0.1 * first


def test_warm_start_with_other_classes_starts_again(moons, blobs):
    model = classifier(warm_start=True).fit(*moons)
    model.fit(*blobs)
    assert model.decision_function(blobs[0]).shape == (300, 3)
    assert_array_equal(model.dual_coef_, classifier().fit(*blobs).dual_coef_)
    X, y = moons
    swapped = classifier(warm_start=True).fit(X, y).fit(X, np.array(["z", "a"])[y])
    assert_array_equal(swapped.predict(X), np.array(["z", "a"])[classifier().fit(X, y).predict(X)])


def test_not_fitted(moons):
    for method in ("predict", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(plain(FalkonClassifier), method)(moons[0])


@pytest.mark.slow
def test_grid_search_pipeline_and_processes(moons):
    X, y = moons
    pipeline = make_pipeline(StandardScaler(), plain(FalkonClassifier, Gaussian(), n_centers=50, random_state=0))
    grid = {
        "falkonclassifier__kernel__length_scale": [0.001, 0.5],
        "falkonclassifier__class_weight": [None, "balanced"],
    }
    search = GridSearchCV(pipeline, grid, cv=3, scoring="roc_auc").fit(X, y)
    assert search.best_params_["falkonclassifier__kernel__length_scale"] == 0.5
    assert search.best_score_ > 0.97
    model = search.best_estimator_
    assert_array_equal(cross_val_score(model, X, y, n_jobs=2, cv=3), cross_val_score(model, X, y, cv=3))


# ---- defaults on data ------------------------------------------------------------------------------------------------


def test_defaults_on_digits():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    score = plain(FalkonClassifier, random_state=0).fit(X, y).score(X_test, y_test)
    assert score >= 0.98
    assert score >= SVC().fit(X, y).score(X_test, y_test) - 0.01


def test_defaults_on_breast_cancer():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    score = make_pipeline(StandardScaler(), plain(FalkonClassifier, random_state=0)).fit(X, y).score(X_test, y_test)
    assert score >= 0.95
    assert score >= make_pipeline(StandardScaler(), SVC()).fit(X, y).score(X_test, y_test) - 0.02
