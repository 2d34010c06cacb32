"""Rows of weight 0 are as if they were not there, whatever they hold, for every estimator that takes sample weights."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import (
    ConformalClassifier,
    ConformalRegressor,
    DivideAndConquerRegressor,
    ExactClassifier,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
    KernelKMeans,
    LearnedMetric,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)

FEW = {"n_centers": 20, "random_state": 0}
SELECTORS = ["uniform", "leverage", "bless", "rpcholesky", "kmeans++", "dpp"]
REGRESSORS = [
    *(
        FalkonRegressor(loss=loss, **FEW)
        for loss in ("squared", "quantile", "huber", "poisson", "squared_epsilon_insensitive")
    ),
    *(FalkonRegressor(centers=name, **FEW) for name in SELECTORS),
    FalkonRegressor(penalty="auto", **FEW),
    FalkonRegressor(early_stopping=True, **FEW),
    FalkonRegressor(loss="huber", early_stopping=True, **FEW),
    FalkonRegressor(loss="quantile", quantiles=[0.1, 0.9], **FEW),
    FalkonRegressor(uncertainty=True, **FEW),
    FalkonRegressor(dtype="float32", scale=False, **FEW),
    NystromRegressor(penalties=[1e-4, 1e-2], **FEW),
    NystromRegressor(penalties=[1e-4, 1e-2], choose_by="validation", **FEW),
    NytroRegressor(**FEW),
    ExactRegressor(random_state=0),
    ExactRegressor(penalty="auto", uncertainty=True, random_state=0),
    ExactRegressor(method="pcg", penalties=[1e-4, 1e-2], random_state=0),
    ExactRegressor(method="early_stopping", random_state=0),
    HierarchicalRegressor(leaf_size=12, uncertainty=True, random_state=0),
    HierarchicalRegressor(leaf_size=12, penalties=[1e-4, 1e-2], choose_by="validation", random_state=0),
    DivideAndConquerRegressor(n_partitions=3, random_state=0),
    RandomFeaturesRegressor(random_state=0),
    ConformalRegressor(FalkonRegressor(**FEW), random_state=0),
    ConformalRegressor(method="deviation", random_state=0),
    LearnedMetric(n_rounds=1, random_state=0),
]
CLASSIFIERS = [
    *(FalkonClassifier(loss=loss, **FEW) for loss in ("squared", "logistic", "squared_hinge", "hinge")),
    FalkonClassifier(loss="logistic", multi_class="ovr", **FEW),
    FalkonClassifier(class_weight="balanced", **FEW),
    FalkonClassifier(loss="logistic", early_stopping=True, **FEW),
    ExactClassifier(random_state=0),
    ExactClassifier(choose_by="validation", random_state=0),
    HierarchicalClassifier(leaf_size=12, random_state=0),
    HierarchicalClassifier(leaf_size=12, choose_by="validation", random_state=0),
    RandomFeaturesClassifier(random_state=0),
    ConformalClassifier(FalkonClassifier(loss="logistic", **FEW), random_state=0),
    LearnedMetric(FalkonClassifier(**FEW), n_rounds=1, random_state=0),
]
CLUSTERS = [KernelKMeans(3, random_state=0), KernelKMeans(3, init="random", scale=False, n_centers=20, random_state=0)]
AUTOMATIC = {"AutoRegressor", "AutoClassifier"}  # in tests/tables/test_auto_weights.py
# of these attributes one entry belongs to each row that was given
EACH_ROW = {"cv_predictions_", "labels_"}


def rows(n=70):
    """Return rows, which of them are garbage, and the others alone."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    garbage = rng.uniform(size=n) < 0.3
    spoilt = X.copy()
    spoilt[garbage] = rng.choice([1e30, -999.0], (garbage.sum(), 3))
    return spoilt, garbage, X[~garbage]


def weights(garbage, equal):
    w = np.ones(len(garbage)) if equal else np.random.default_rng(1).uniform(0.5, 2.0, len(garbage))
    return np.where(garbage, 0.0, w)


def attributes(model):
    """Return what was learnt, as arrays by name, without times."""
    found = {}
    for name, value in vars(model).items():
        if not name.endswith("_") or name in EACH_ROW:
            continue
        if name == "history_":
            value = [{key: entry for key, entry in record.items() if key != "seconds"} for record in value]
            found[name] = repr(value)
        elif hasattr(value, "get_params"):
            found |= {f"{name}.{key}": entry for key, entry in attributes(value).items()}
        elif isinstance(value, np.ndarray | float | int | str | None):
            found[name] = value
    return found


def assert_same(model, other):
    first, second = attributes(model), attributes(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert_array_equal(value, second[name], err_msg=name)


@pytest.mark.parametrize("equal", [True, False], ids=["0 and 1", "unequal"])
@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:features differ in size")
def test_regression(model, equal):
    X, garbage, clean = rows()
    y = np.where(garbage, 1e30, 1.5 + np.sin(X[:, 0] % 7) + X[:, 1] % 3)
    y[np.flatnonzero(garbage)[::2]] = -999.0
    w = weights(garbage, equal)
    without = clone(model).fit(clean, y[~garbage], sample_weight=None if equal else w[~garbage])
    found = clone(model).fit(X, y, sample_weight=w)
    assert_same(found, without)
    if "predict" in dir(found):
        assert_array_equal(found.predict(clean), without.predict(clean))


@pytest.mark.parametrize("equal", [True, False], ids=["0 and 1", "unequal"])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=repr)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:features differ in size")
def test_classification(model, equal):
    X, garbage, clean = rows()
    names = np.array(["ant", "bee", "cow"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    y = np.where(garbage, "none of them", names)
    w = weights(garbage, equal)
    without = clone(model).fit(clean, y[~garbage], sample_weight=None if equal else w[~garbage])
    found = clone(model).fit(X, y, sample_weight=w)
    assert_same(found, without)
    if "predict" in dir(found):
        assert found.classes_.tolist() == ["ant", "bee", "cow"]
        assert_array_equal(found.predict(clean), without.predict(clean))


@pytest.mark.parametrize("equal", [True, False], ids=["0 and 1", "unequal"])
@pytest.mark.parametrize("model", CLUSTERS, ids=repr)
@pytest.mark.filterwarnings("ignore:features differ in size")
def test_clusters(model, equal):
    X, garbage, clean = rows()
    w = weights(garbage, equal)
    without = clone(model).fit(clean, sample_weight=None if equal else w[~garbage])
    found = clone(model).fit(X, sample_weight=w)
    assert_same(found, without)
    assert_array_equal(found.labels_[~garbage], without.labels_)
    assert_array_equal(found.labels_[garbage], found.predict(X[garbage]))
    assert_allclose(found.score(X, sample_weight=w), -found.inertia_, rtol=1e-9)


def test_every_estimator_with_weights_is_here():
    tested = {type(model).__name__ for model in (*REGRESSORS, *CLASSIFIERS, *CLUSTERS)} | AUTOMATIC
    public = (getattr(gyrfalcon, name) for name in gyrfalcon.__all__)
    weighted = {
        one.__name__
        for one in public
        if inspect.isclass(one) and "fit" in dir(one) and "sample_weight" in inspect.signature(one.fit).parameters
    }
    assert weighted == tested


def test_folds_of_given_rows():
    X, garbage, clean = rows()
    y = np.where(garbage, -999.0, X[:, 0])
    w = weights(garbage, equal=True)
    fold = np.where(garbage, 17, np.arange(len(X)) % 4)
    splits = [(np.flatnonzero(fold != number), np.flatnonzero(fold == number)) for number in np.unique(fold)]
    without = ExactRegressor(method="pcg", choose_by="cv", cv=fold[~garbage], random_state=0).fit(clean, y[~garbage])
    for cv in (fold, splits):
        found = ExactRegressor(method="pcg", choose_by="cv", cv=cv, random_state=0).fit(X, y, sample_weight=w)
        assert_array_equal(found.cv_predictions_[~garbage], without.cv_predictions_)
        assert np.isnan(found.cv_predictions_[garbage]).all()
        assert_same(found, without)


@pytest.mark.parametrize("kind", ["sparse", "file", "dask"])
def test_rows_from_elsewhere(kind, tmp_path):
    X, garbage, clean = rows(200)
    y = np.where(garbage, 1e30, np.sin(X[:, 0] % 7))
    w = weights(garbage, equal=False)
    model = FalkonRegressor(centers=clean[:20], scale=True)
    without = clone(model).fit(clean, y[~garbage], sample_weight=w[~garbage])
    given = elsewhere(kind, X, tmp_path)
    found = clone(model).fit(given, y, sample_weight=w)
    # of sparse rows the mean is not subtracted
    tolerance = {"rtol": 1e-6, "atol": 1e-6}
    if kind != "sparse":
        assert_allclose(found.predict(clean), without.predict(clean), **tolerance)
    assert_allclose(found.offset_, without.offset_, rtol=1e-9)
    assert_allclose(found.scale_, without.scale_, rtol=1e-9)
    drawn = FalkonRegressor(n_centers=20, scale=False, random_state=0).fit(given, y, sample_weight=w).centers_
    drawn = drawn.toarray() if scipy.sparse.issparse(drawn) else drawn
    assert np.abs(drawn).max() < 10


def elsewhere(kind, X, folder):
    if kind == "sparse":
        return scipy.sparse.csr_array(X)
    if kind == "dask":
        return pytest.importorskip("dask.array").from_array(X, chunks=(33, 3))
    np.save(folder / "X.npy", X)
    return gyrfalcon.open(folder / "X.npy").X


NONE = "zero for every row|at least one non-zero"  # later versions of scikit-learn refuse them themselves


def test_no_row_counts():
    X, y = np.zeros((5, 1)), np.arange(5.0)
    with pytest.raises(ValueError, match=NONE):
        FalkonRegressor().fit(X, y, sample_weight=np.zeros(5))
    with pytest.raises(ValueError, match=NONE):
        KernelKMeans(1).fit(X, sample_weight=np.zeros(5))
    with pytest.raises(ValueError, match=NONE):
        ConformalRegressor().fit(X, y, sample_weight=np.zeros(5))


@pytest.mark.parametrize("model", [FalkonRegressor(), KernelKMeans(2)], ids=repr)
def test_rows_of_weight_zero_are_checked(model):
    X, y = np.arange(10.0)[:, None], np.arange(10.0)
    X[3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, y, sample_weight=np.arange(10) != 3)


def test_labels_that_numpy_would_merge():
    X = np.arange(6.0)[:, None]
    y = [1, "1", 1, "1", 1, "1"]
    for labels in (y, np.array(y, dtype=object)):
        for model in (FalkonClassifier(), ExactClassifier(), HierarchicalClassifier(), ConformalClassifier()):
            with pytest.raises(ValueError, match="all strings or all numbers"):
                model.fit(X, labels)
    fitted = FalkonClassifier().fit(X, np.array([0, 1, 0, 1, "none", "none"], dtype=object), [1, 1, 1, 1, 0, 0])
    assert fitted.classes_.tolist() == [0, 1]
