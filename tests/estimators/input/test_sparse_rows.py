"""Sparse rows: the same models as from the dense rows, and nothing that is dense."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain

import gyrfalcon
from gyrfalcon import (
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalRegressor,
    NystromRegressor,
    NytroRegressor,
)
from gyrfalcon.estimators import RandomFeaturesRegressor
from gyrfalcon.sources import sparse


def data(n=300, d=40, density=0.15):
    X = scipy.sparse.random_array((n, d), density=density, format="csr", rng=np.random.default_rng(0))
    y = np.sin(3 * X[:, [0]].toarray()[:, 0]) + np.asarray(X.sum(axis=1)).ravel()
    return X, y


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"scale": True},
        {"dtype": "float32"},
        {"kernel": "laplacian"},
        {"kernel": "matern"},
        {"kernel": "linear"},
        {"kernel": "polynomial"},
        {"kernel": gyrfalcon.kernels.Gaussian(1.0) + 0.5},
        {"centers": "bless"},
        {"centers": "leverage"},
        {"centers": "rpcholesky"},
        {"centers": "kmeans++"},
        {"preconditioner": "krill"},
        {"early_stopping": True},
        {"loss": "huber"},
        {"memory_budget": 0},
    ],
    ids=str,
)
def test_same_model_as_from_dense_rows(parameters):
    X, y = data()
    model = plain(
        FalkonRegressor,
        **{"n_centers": 60, "penalty": 1e-3, "max_iter": 60, "random_state": 0, **parameters},
    )

    expected = model.fit(X.toarray(), y).predict(X.toarray())
    model.fit(X, y)
    assert scipy.sparse.issparse(model.centers_)
    tolerance = 1e-3 if "dtype" in parameters else 1e-6
    assert_allclose(model.predict(X), expected, rtol=tolerance, atol=tolerance)
    assert_allclose(model.predict(X.toarray()), model.predict(X), rtol=1e-6)
    if "scale" in parameters:
        assert model.mean_ is None


@pytest.mark.parametrize("scale", [False, True])
def test_dense_model_predicts_for_sparse_rows(scale):
    X, y = data()
    model = plain(FalkonRegressor, n_centers=60, random_state=0, scale=scale).fit(X.toarray(), y)
    assert_allclose(model.predict(X), model.predict(X.toarray()), rtol=1e-10)


@pytest.mark.parametrize(
    "make",
    [scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array, scipy.sparse.csc_matrix],
)
def test_other_kinds_of_sparse_matrices(make):
    X, y = data()
    model = plain(FalkonRegressor, n_centers=60, random_state=0)
    expected = model.fit(X, y).predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # these are small
        assert_array_equal(model.fit(make(X), y).predict(make(X)), expected)


def test_a_large_csc_matrix_is_converted_with_a_warning(monkeypatch):
    X, y = data()
    monkeypatch.setattr(sparse, "_LARGE", 1_000)
    for other in (X.tocsc(), X.tocoo()):
        with pytest.warns(UserWarning, match=r"converted to CSR, a second copy of 1,800 numbers: give X.tocsr\(\)"):
            plain(FalkonRegressor, n_centers=10).fit(other, y)


def test_classes_weights_validation_and_other_estimators():
    X, y = data()
    labels = np.where(y > np.median(y), "high", "low")
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    for loss in ("squared", "logistic", "squared_hinge", "hinge"):
        model = plain(FalkonClassifier, n_centers=60, random_state=0, loss=loss, penalty=1e-2, max_iter=60, tol=1e-9)
        expected = model.fit(X.toarray(), labels, weight, X[:50].toarray(), labels[:50]).decision_function(X)
        model.fit(X, labels, weight, X[:50], labels[:50])
        assert_allclose(model.decision_function(X), expected, rtol=1e-4, atol=1e-5)
        assert model.score(X, labels) > 0.6
    for other in (
        plain(NystromRegressor, n_centers=60, random_state=0, penalties=[1e-3, 1e-1]),
        plain(NystromRegressor, n_centers=60, random_state=0, solver="sgd", max_iter=2),
        plain(NytroRegressor, n_centers=60, random_state=0),
    ):
        expected = other.fit(X.toarray(), y).predict(X.toarray())
        assert_allclose(other.fit(X, y).predict(X), expected, rtol=1e-5, atol=1e-6)


def test_given_centers_sparse_or_dense():
    X, y = data()
    model = plain(FalkonRegressor, preconditioner="falkon")
    expected = model.set_params(centers=X[:60].toarray()).fit(X.toarray(), y).predict(X.toarray())
    for centers in (X[:60], X[:60].toarray()):
        assert_allclose(model.set_params(centers=centers).fit(X, y).predict(X), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="centers have 3 features, X has 40"):
        model.set_params(centers=X[:60, :3]).fit(X, y)


def test_saving(tmp_path):
    X, y = data()
    model = plain(FalkonRegressor, n_centers=30, random_state=0, scale=True).fit(X, y)
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert scipy.sparse.issparse(loaded.centers_)
    assert_array_equal(loaded.predict(X), model.predict(X))


def test_warm_start():
    X, y = data()
    model = plain(FalkonRegressor, n_centers=60, penalty=1e-3, random_state=0, warm_start=True, max_iter=5).fit(X, y)
    before = model.history_[-1]["residual"]
    assert model.fit(X, y).history_[0]["residual"] < before
    assert not scipy.sparse.issparse(model.fit(X.toarray(), y).centers_)
    assert model.history_[0]["residual"] < before
    assert scipy.sparse.issparse(model.fit(X, y).centers_)


def test_bad_input():
    X, y = data()
    model = plain(FalkonRegressor, n_centers=10)
    bad = X.copy()
    bad.data[7] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(bad, y)
    model.fit(X, y)
    with pytest.raises(ValueError, match="X has 39 features"):
        model.predict(X[:, :39])
    for dense_only in (plain(ExactRegressor), plain(HierarchicalRegressor), plain(RandomFeaturesRegressor)):
        with pytest.raises(TypeError, match="dense"):
            dense_only.fit(X, y)


def test_edges():
    X, y = data()
    empty = scipy.sparse.csr_array((5, 40))
    model = plain(FalkonRegressor, n_centers=60, random_state=0).fit(X, y)
    assert_allclose(model.predict(empty), np.full(5, model.predict(np.zeros((1, 40)))[0]))
    one = FalkonRegressor(penalty=0).fit(X[:1], y[:1])
    assert_allclose(one.predict(X[:1]), y[:1])
    assert plain(FalkonRegressor, n_centers=1000).fit(X, y).centers_.shape == (300, 40)


def test_columns_by_the_million():
    """d = 10^8 is never allocated: a vector of that length alone would be 0.8 GB, this test's peak is far below."""
    import resource

    rng = np.random.default_rng(0)
    n, d, each = 400, 10**8, 20
    indices = rng.integers(0, d, (n, each))
    indices[:, 0] = rng.integers(0, 5, n)
    X = scipy.sparse.csr_array((np.ones(n * each), indices.ravel(), np.arange(n + 1) * each), shape=(n, d))
    y = indices[:, 0].astype(float)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for kernel in ("linear", "gaussian", "laplacian"):
        model = plain(FalkonRegressor, kernel, n_centers=100, random_state=0).fit(X, y)
        assert model.score(X, y) > 0.2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kB
