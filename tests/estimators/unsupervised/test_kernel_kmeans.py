"""KernelKMeans against Lloyd's algorithm on exact features, and what becomes of empty clusters and equal rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_circles
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import gyrfalcon
from gyrfalcon import KernelKMeans, KernelOperator, ModelFileError
from gyrfalcon.estimators import kernel_kmeans
from gyrfalcon.kernels import Constant, Gaussian, Linear, Polynomial
from gyrfalcon.preconditioners import Whitening
from gyrfalcon.solvers import Lloyd, features_of


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((300, 3))


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(600, centers=4, cluster_std=0.5, random_state=3)


def features(kernel, X, centers):
    """The projections onto the span of the centers, by eigenvectors in float64."""
    s, U = np.linalg.eigh(kernel(centers, centers))
    kept = s > 1e-13 * s[-1]
    return kernel(X, centers) @ (U[:, kept] / np.sqrt(s[kept]))


@pytest.mark.parametrize(
    "kernel", [Gaussian(1.5), Polynomial(2, gamma=0.3), Linear()], ids=["gaussian", "polynomial", "linear"]
)
def test_with_every_row_a_center_it_is_lloyd_on_exact_features(kernel, X):
    F = features(kernel, X, X)
    expected = KMeans(5, init=F[:5], n_init=1, tol=0, max_iter=1000).fit(F)
    model = KernelKMeans(5, kernel=kernel, init=X[:5], tol=0.0, max_iter=1000, scale=False).fit(X)
    assert_array_equal(model.labels_, expected.labels_)
    assert model.n_iter_ == expected.n_iter_
    assert_allclose(model.inertia_, expected.inertia_, rtol=1e-8)
    assert_allclose(model.transform(X), expected.transform(F), atol=1e-6 * np.abs(F).max())
    assert_array_equal(model.predict(X), model.labels_)
    assert_allclose(model.score(X), -model.inertia_)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_few_centers(dtype, X):
    kernel = Gaussian(1.5)
    model = KernelKMeans(
        4, kernel=kernel, init=X[:4], n_centers=40, tol=0.0, scale=False, dtype=dtype, random_state=0
    ).fit(X)
    F = features(kernel, X, model.centers_.astype(np.float64))
    expected = KMeans(4, init=F[:4], n_init=1, tol=0, max_iter=1000).fit(F)
    assert_array_equal(model.labels_, expected.labels_)
    residual = len(X) - np.square(F).sum()  # what the centers miss of the rows
    assert residual > 1
    assert_allclose(model.inertia_, expected.inertia_ + residual, rtol=1e-8 if dtype == "float64" else 1e-4)
    assert_allclose(np.square(model.transform(X)).min(axis=1).sum(dtype=np.float64), model.inertia_, rtol=1e-4)


def test_weights_are_repeated_rows(X):
    weight = np.arange(300) % 4
    model = KernelKMeans(3, init=X[1:4], tol=0.0, scale=False, kernel=Gaussian(1.0))
    weighted = model.fit(X, sample_weight=weight)
    labels, inertia = weighted.labels_, weighted.inertia_
    score = weighted.score(X, sample_weight=weight)
    repeated = model.fit(np.repeat(X, weight, axis=0))
    assert_array_equal(repeated.labels_, np.repeat(labels, weight))
    # weights have mean 1 over the rows that count
    assert_allclose(repeated.inertia_ / weight.sum(), inertia / np.count_nonzero(weight), rtol=1e-8)
    assert_allclose(score, -inertia, rtol=1e-8)


@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_blobs_and_circles(init, blobs):
    X, y = blobs
    model = KernelKMeans(4, n_centers=100, init=init, n_init=5, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    assert model.history_[-1]["running"] == 0
    X, y = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    model = KernelKMeans(2, n_centers=100, init=init, random_state=0)
    assert adjusted_rand_score(y, model.fit_predict(X)) == 1.0


def test_the_best_of_several_starts_which_share_the_passes(X):
    kernel = Gaussian(0.7)
    operator = KernelOperator(kernel, X, X)
    whitening = Whitening(operator.centers_gram(), 300)
    starts = [features_of(operator, whitening, X[s : s + 6]) for s in (0, 50, 100)]
    alone = []
    for start in starts:
        lloyd = Lloyd(operator, whitening, start, 6, np.ones(300))
        while lloyd.running:
            lloyd.step()
        alone.append(lloyd.best)
    before = operator.passes
    together = Lloyd(operator, whitening, np.hstack(starts), 6, np.ones(300))
    while together.running:
        together.step()
    assert operator.passes - before == max(found.iteration for found in alone)
    best = min(alone, key=lambda found: found.inertia)
    assert_allclose(together.best.inertia, best.inertia, rtol=1e-10)
    assert_array_equal(together.best.labels, best.labels)
    assert together.best.iteration == best.iteration


def test_a_sample_decides_between_the_starts(monkeypatch, blobs):
    X, y = blobs
    expected = KernelKMeans(4, n_centers=50, n_init=4, random_state=0).fit(X)
    monkeypatch.setattr(kernel_kmeans, "_SAMPLE", 100)
    monkeypatch.setattr(kernel_kmeans, "_SAMPLE_PER_CLUSTER", 1)
    model = KernelKMeans(4, n_centers=50, n_init=4, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    assert_allclose(model.inertia_, expected.inertia_, rtol=1e-8)
    assert model.n_iter_ <= 3
    weight = np.where(y == 0, 0.0, 1.0)
    model = KernelKMeans(3, n_centers=50, random_state=0).fit(X, sample_weight=weight)
    assert adjusted_rand_score(y[y > 0], model.labels_[y > 0]) == 1.0


@pytest.mark.filterwarnings("ignore:.*clusters were found")
@pytest.mark.parametrize("kernel", [Constant(0.0), Constant(1.0), Linear()], ids=["zero", "constant", "low rank"])
def test_a_sample_of_rows_with_few_features(monkeypatch, kernel):
    monkeypatch.setattr(kernel_kmeans, "_SAMPLE", 40)
    monkeypatch.setattr(kernel_kmeans, "_SAMPLE_PER_CLUSTER", 1)
    X = np.random.default_rng(0).standard_normal((200, 2))
    model = KernelKMeans(3, kernel=kernel, n_centers=20, scale=False, random_state=0).fit(X)
    if isinstance(kernel, Constant):
        assert model.inertia_ == 0
    else:
        squares = [np.square(X[model.labels_ == j] - X[model.labels_ == j].mean(axis=0)).sum() for j in range(3)]
        assert_allclose(model.inertia_, np.sum(squares), rtol=0.01)  # centroids before the last move


def test_an_empty_cluster_takes_the_farthest_row():
    X = np.array([[0.0], [0.1], [0.2], [5.0], [9.0]])
    # the third centroid is nearest to no row
    model = KernelKMeans(3, kernel=Linear(), init=[[0.0], [6.0], [-50.0]], scale=False, tol=0.0).fit(X)
    F = X
    assert_allclose(model.inertia_, np.square(F[:3] - 0.1).sum(), atol=1e-12)
    assert_array_equal(model.labels_[:3], model.labels_[0])
    assert len(set(model.labels_)) == 3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_that_the_centers_miss_are_no_reason_to_go_on(dtype):
    X = np.concatenate([np.zeros((20_497, 2)), [[5.0, 5.0], [9.0, 9.0], [-9.0, 0.0]]])
    with pytest.warns(ConvergenceWarning, match="2 clusters .* n_clusters=4: the centers do not .* raise n_centers"):
        model = KernelKMeans(4, n_centers=100, dtype=dtype, random_state=0).fit(X)
    assert model.n_iter_ <= 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(centers="rpcholesky").fit(X)
    assert sorted(np.bincount(model.labels_)) == [1, 1, 1, 20_497]


def test_an_empty_cluster_takes_a_row_that_the_centers_see():
    X = np.concatenate([np.repeat([[0.0], [1.0], [2.0]], 40, axis=0), np.arange(20.0)[:, None] * 50 + 100])
    # the farthest rows are those that no center is near to, and all the same for the centers
    start = [[1.0], [100.0], [-300.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KernelKMeans(3, kernel=Gaussian(1.0), centers=[[0.0], [1.0], [2.0]], init=start, scale=False).fit(X)
    assert_array_equal(model.labels_[120:], model.labels_[120])
    assert len(set(model.labels_)) == 3
    assert model.n_iter_ < 10


def test_max_iter_may_end_before_a_cluster_has_its_rows():
    X = np.array([[0.0], [0.1], [0.2], [5.0], [9.0]])
    model = KernelKMeans(3, kernel=Linear(), init=[[0.0], [6.0], [-50.0]], n_centers=2, scale=False, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="still move after max_iter=1"):
        model.fit(X)


def test_one_cluster_and_one_row_each(X):
    kernel = Gaussian(1.0)
    model = KernelKMeans(1, kernel=kernel, scale=False).fit(X)
    K = kernel(X, X)
    assert_allclose(model.inertia_, np.trace(K) - K.sum() / 300, rtol=1e-8)
    model = KernelKMeans(30, kernel=kernel, scale=False).fit(X[:30])
    assert sorted(model.labels_) == list(range(30))
    assert model.inertia_ == pytest.approx(0, abs=1e-8)
    model = KernelKMeans(1).fit(X[:1])
    assert_array_equal(model.labels_, [0])


@pytest.mark.parametrize(
    ("rows", "kernel", "distinct"),
    [
        (np.repeat(np.array([[0.0], [1.0], [5.0]]), 20, axis=0), "gaussian", 3),
        (np.ones((10, 2)), "gaussian", 1),
        (np.arange(20.0)[:, None], Constant(1.0), 1),
        (np.zeros((10, 2)), "linear", 1),
    ],
    ids=["three rows", "one row", "a constant kernel", "zeros"],
)
def test_fewer_distinct_rows_than_clusters(rows, kernel, distinct):
    with pytest.warns(ConvergenceWarning, match=f"{distinct} clusters were found where n_clusters=5"):
        model = KernelKMeans(5, kernel=kernel, random_state=0).fit(rows)
    assert len(np.unique(model.labels_)) == distinct
    assert model.inertia_ == pytest.approx(0, abs=1e-8)
    assert_array_equal(model.predict(rows), model.labels_)


def test_max_iter_and_callbacks(X):
    with pytest.warns(ConvergenceWarning, match="still move after max_iter=2 iterations: raise max_iter"):
        model = KernelKMeans(8, kernel=Gaussian(0.5), max_iter=2, tol=0.0, random_state=0).fit(X)
    assert model.n_iter_ == len(model.history_) == 2
    assert_array_equal(model.predict(X), model.labels_)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KernelKMeans(
            8, random_state=0, callbacks=lambda record: seen.append(record["inertia"]) or len(seen) == 3
        )
        model.fit(X)
    assert len(seen) == 3
    assert seen == sorted(seen, reverse=True)
    assert_array_equal(model.predict(X), model.labels_)


def test_rows_from_elsewhere(tmp_path, X):
    model = KernelKMeans(3, n_centers=50, random_state=0)
    expected = model.fit(X).labels_
    np.save(tmp_path / "X.npy", X)
    rows = gyrfalcon.open(tmp_path / "X.npy").X
    assert_array_equal(model.fit(rows).labels_, expected)
    assert_array_equal(model.predict(rows), expected)
    model.set_params(scale=False)
    expected = model.fit(X).labels_
    sparse = scipy.sparse.csr_array(X)
    assert_array_equal(model.fit(sparse).labels_, expected)
    assert_array_equal(model.predict(X), expected)  # dense rows for sparse centers
    assert_allclose(model.score(sparse), -model.inertia_)
    model.set_params(init=X[:3])
    assert_array_equal(model.fit(sparse).labels_, model.fit(X).labels_)


def test_dask(X):
    da = pytest.importorskip("dask.array")
    model = KernelKMeans(3, n_centers=50, random_state=0)
    expected = model.fit(X)
    labels, distances, inertia = expected.labels_, expected.transform(X), expected.inertia_
    rows = da.from_array(X, chunks=(80, -1))
    model.fit(rows, sample_weight=da.ones(300))
    assert_array_equal(model.labels_, labels)
    assert_array_equal(model.predict(rows).compute(), labels)
    assert_allclose(model.transform(rows).compute(), distances, atol=1e-7)
    assert model.score(rows) == pytest.approx(-inertia)


def test_same_bits_for_any_number_of_threads(X):
    model = KernelKMeans(5, n_centers=50, n_jobs=1, random_state=0)
    expected = model.fit(X).dual_coef_
    assert_array_equal(model.set_params(n_jobs=3).fit(X).dual_coef_, expected)


def test_save_and_load(tmp_path, X):
    model = KernelKMeans(3, n_centers=50, random_state=0).fit(X)
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert_array_equal(loaded.transform(X), model.transform(X))
    assert_array_equal(loaded.labels_, model.labels_)
    model.dual_coef_ = model.dual_coef_[:, 0]
    model.offset_ = float(model.offset_[0])
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="a column for each cluster"):
        gyrfalcon.load(tmp_path / "model")


def test_names(X):
    pandas = pytest.importorskip("pandas")
    model = KernelKMeans(2, n_centers=20, random_state=0).set_output(transform="pandas")
    assert list(model.fit_transform(pandas.DataFrame(X)).columns) == ["kernelkmeans0", "kernelkmeans1"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be an integer of at least 1"),
        ({"n_clusters": 301}, "n_clusters=301 must be at most the number of rows with positive weight, 300"),
        ({"init": "spectral"}, "init='spectral' must be \"k-means"),
        ({"n_clusters": 3, "init": np.zeros((2, 3))}, "init has 2 points, and n_clusters=3"),
        ({"n_clusters": 3, "init": np.zeros((3, 2))}, "2 features"),
        ({"n_init": 0}, "n_init=0 must be an integer"),
        ({"tol": -1}, "tol=-1 must be a finite number"),
    ],
)
def test_bad_parameters(parameters, message, X):
    with pytest.raises(ValueError, match=message):
        KernelKMeans(**parameters).fit(X)


def test_bad_rows(X):
    with pytest.raises(ValueError, match="NaN"):
        KernelKMeans().fit(np.where(X[3, 2] == X, np.nan, X))
    with pytest.raises(ValueError, match="n_clusters=3 must be at most the number of rows with positive weight, 2"):
        KernelKMeans(3).fit(X, sample_weight=np.arange(300) < 2)
    with pytest.raises(MemoryError, match="would fit"):
        KernelKMeans(n_centers=300, memory_budget="1MB").fit(X)
