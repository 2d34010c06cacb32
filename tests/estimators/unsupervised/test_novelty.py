"""NoveltyDetector against exact leverage scores, and on outliers that one knows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import roc_auc_score

import gyrfalcon
from gyrfalcon import ModelFileError, NoveltyDetector, leverage_scores
from gyrfalcon.kernels import Constant, Gaussian, Linear


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((300, 3))


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Linear()], ids=["gaussian", "linear"])
def test_with_every_row_a_center_scores_are_exact(kernel, X):
    model = NoveltyDetector(kernel, penalty=1e-3, scale=False).fit(X)
    expected = leverage_scores(X, kernel, 1e-3)
    assert_allclose(-model.score_samples(X), expected, atol=1e-8)
    assert_allclose(model.effective_dimension_, expected.sum(), rtol=1e-8)
    # new rows: what a Gaussian process has left of their variance
    new = X[:50] + 1.0
    K, k, mu = kernel(X, X), kernel(new, X), 0.3
    left = kernel.diag(new) - np.einsum("ij,ij->i", k, np.linalg.solve(K + mu * np.eye(300), k.T).T)
    assert_allclose(-model.score_samples(new), left / mu, rtol=1e-6)


def test_few_centers_count_what_they_miss(X):
    kernel = Gaussian(1.0)
    model = NoveltyDetector(kernel, penalty=1e-2, n_centers=40, scale=False, random_state=0).fit(X)
    C, mu = model.centers_, 3.0
    s, U = np.linalg.eigh(kernel(C, C))
    R = U / np.sqrt(s)
    F = kernel(X, C) @ R
    new = X[:50] * 1.5
    f = kernel(new, C) @ R
    expected = (1 - np.square(f).sum(axis=1)) / mu + np.einsum(
        "ij,ij->i", f, np.linalg.solve(F.T @ F + mu * np.eye(F.shape[1]), f.T).T
    )
    assert_allclose(-model.score_samples(new), expected, rtol=1e-6)


def test_outliers_are_found():
    rng = np.random.default_rng(0)
    inside, outside = rng.standard_normal((1000, 2)), rng.uniform(-8, 8, size=(100, 2))
    outside = outside[np.linalg.norm(outside, axis=1) > 4]
    model = NoveltyDetector(n_centers=200, contamination=0.05, random_state=0).fit(inside)
    scores = model.score_samples(np.vstack([inside, outside]))
    assert roc_auc_score(np.r_[np.ones(1000), np.zeros(len(outside))], scores) > 0.99
    assert (model.predict(outside) == -1).all()
    assert (model.predict(inside) == -1).mean() == pytest.approx(0.05, abs=0.002)
    assert_array_equal(model.decision_function(inside), model.score_samples(inside) - model.offset_)
    assert_array_equal(model.fit_predict(inside), model.predict(inside))


@pytest.mark.parametrize("n_centers", [40, 120])
def test_automatic_threshold_leaves_rows_out(n_centers):
    """The threshold is the 1% quantile of scores of fits without the row, with the same centers."""
    rng = np.random.default_rng(0)
    X, mu = rng.standard_normal((120, 2)), 1e-2 * 120
    kernel = Gaussian(1.5)
    model = NoveltyDetector(
        kernel, n_centers=n_centers, penalty=1e-2, contamination="auto", scale=False, random_state=0
    ).fit(X)
    C = model.centers_
    K, G = kernel(X, C), kernel(C, C) + 1e-13 * np.eye(n_centers)
    F = np.linalg.solve(np.linalg.cholesky(G), K.T).T
    expected = []
    for i, f in enumerate(F):
        rest = np.delete(F, i, axis=0)
        explained = f @ np.linalg.solve(rest.T @ rest + mu * np.eye(len(C)), f)
        expected.append(-((1 - f @ f) / mu + explained))
    assert model.offset_ == pytest.approx(np.quantile(expected, 0.01), rel=1e-6)


def test_automatic_threshold_has_few_false_alarms():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 5))
    model = NoveltyDetector(n_centers=200, contamination="auto", random_state=0).fit(X)
    assert 0.0 < (model.predict(rng.standard_normal((2000, 5))) == -1).mean() < 0.04
    assert (model.predict(rng.standard_normal((200, 5)) + 4.0) == -1).all()
    one = NoveltyDetector(contamination="auto").fit(np.ones((3, 2)))
    assert_array_equal(one.predict(np.ones((3, 2))), [1, 1, 1])


def test_rows_from_elsewhere(tmp_path, X):
    model = NoveltyDetector(n_centers=50, random_state=0)
    expected = model.fit(X).score_samples(X)
    np.save(tmp_path / "X.npy", X)
    rows = gyrfalcon.open(tmp_path / "X.npy").X
    assert_array_equal(model.fit(rows).score_samples(rows), expected)
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(X, chunks=(80, -1))
    assert_allclose(model.fit(lazy).score_samples(lazy).compute(), expected, rtol=1e-8)
    assert set(model.predict(lazy).compute()) == {-1, 1}
    sparse = scipy.sparse.csr_array(X)
    expected = model.set_params(scale=False).fit(X).score_samples(X)
    assert_allclose(model.fit(sparse).score_samples(sparse), expected, rtol=1e-6)


def test_save_and_load(tmp_path, X):
    model = NoveltyDetector(n_centers=50, random_state=0).fit(X)
    model.save(tmp_path / "model")
    assert_array_equal(gyrfalcon.load(tmp_path / "model").decision_function(X), model.decision_function(X))
    model.offset_ = np.inf
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="must be a finite number"):
        gyrfalcon.load(tmp_path / "model")


def test_same_bits_for_any_number_of_threads(X):
    model = NoveltyDetector(n_centers=50, n_jobs=1, random_state=0)
    expected = model.fit(X).score_samples(X)
    assert_array_equal(model.set_params(n_jobs=3).fit(X).score_samples(X), expected)


@pytest.mark.parametrize("kernel", ["gaussian", Constant(2.0), Linear()], ids=["gaussian", "constant", "linear"])
@pytest.mark.parametrize("rows", [np.zeros((20, 2)), np.ones((1, 2))], ids=["zeros", "one row"])
def test_degenerate_rows(rows, kernel):
    model = NoveltyDetector(kernel, scale=False).fit(rows)
    scores = -model.score_samples(rows)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (model.predict(rows) == 1).all()
    if rows.any():
        assert_allclose(scores, leverage_scores(rows, kernel, 1e-3), atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"penalty": 0.0}, r"penalty=0\.0 must be a finite number greater than 0"),
        ({"contamination": 0.6}, r"contamination=0\.6 must be greater than 0 and at most 0\.5"),
        ({"contamination": "most"}, "contamination='most' must be"),
    ],
)
def test_bad_parameters(parameters, message, X):
    with pytest.raises(ValueError, match=message):
        NoveltyDetector(**parameters).fit(X)
