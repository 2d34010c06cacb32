"""KernelPCA against scikit-learn's, and against dense eigenvectors where there are few centers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as ScikitKernelPCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import gyrfalcon
from gyrfalcon import KernelPCA, ModelFileError
from gyrfalcon.kernels import CallableKernel, Constant, Gaussian, Laplacian, Linear, Polynomial
from gyrfalcon.sources import Rows


class Stream(Rows):
    """Rows that are read in blocks only."""

    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    def blocks(self, size):
        for start in range(0, len(self.X), size):
            yield self.X[start : start + size].copy()

    def take(self, indices):
        return self.X[indices]


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return rng.standard_normal((300, 4)) @ rng.standard_normal((4, 4)) + 3


def dense(kernel, X, centers, q):
    """Variances and scores by the definition, in float64, and all of the variance."""
    s, U = np.linalg.eigh(kernel(centers, centers))
    kept = s > 1e-13 * s[-1]
    F = kernel(X, centers) @ (U[:, kept] / np.sqrt(s[kept]))
    total = kernel.diag(X).mean() - np.square(F.mean(axis=0)).sum()
    F = F - F.mean(axis=0)
    values, V = np.linalg.eigh(F.T @ F / len(X))
    return values[::-1][:q], F @ V[:, ::-1][:, :q], total


def assert_same_up_to_sign(scores, expected, atol):
    assert_allclose(scores * np.sign((scores * expected).sum(axis=0)), expected, atol=atol)


@pytest.mark.parametrize("solver", ["direct", "iterative"])
@pytest.mark.parametrize(
    ("kernel", "theirs"),
    [
        (Gaussian(2.0), {"kernel": "rbf", "gamma": 1 / 8}),
        (Polynomial(2, gamma=0.1, coef0=1.0), {"kernel": "poly", "degree": 2, "gamma": 0.1, "coef0": 1.0}),
    ],
    ids=["gaussian", "polynomial"],
)
def test_with_every_row_a_center_it_is_scikit_learns(kernel, theirs, solver, X):
    expected = ScikitKernelPCA(5, **theirs).fit(X)
    model = KernelPCA(kernel=kernel, n_components=5, scale=False, solver=solver, random_state=0).fit(X)
    assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
    assert_same_up_to_sign(model.transform(X), expected.transform(X), 1e-8 * np.abs(expected.transform(X)).max())
    new = X[:20] + 0.1
    assert_same_up_to_sign(model.transform(new), expected.transform(new), 1e-8 * np.abs(expected.transform(X)).max())
    assert_allclose(model.explained_variance_ * len(X), model.eigenvalues_)
    # all of the variance: the eigenvalues of the centered kernel matrix are its trace
    K = kernel(X, X)
    assert_allclose(
        model.explained_variance_ratio_, expected.eigenvalues_ / (np.trace(K) - K.sum() / len(X)), rtol=1e-8
    )


@pytest.mark.parametrize("solver", ["direct", "iterative"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-7), ("float32", 2e-3)])
def test_few_centers(solver, dtype, tolerance, X):
    kernel = Laplacian(3.0)
    model = KernelPCA(4, kernel=kernel, n_centers=60, scale=False, solver=solver, dtype=dtype, random_state=0).fit(X)
    values, scores, total = dense(kernel, X, model.centers_.astype(np.float64), 4)
    assert_allclose(model.explained_variance_, values, rtol=tolerance)
    assert_allclose(model.explained_variance_ratio_, values / total, rtol=tolerance)
    assert_same_up_to_sign(model.transform(X), scores, tolerance * np.abs(scores).max())
    assert_allclose(np.mean(np.square(model.transform(X), dtype=np.float64), axis=0), values, rtol=tolerance)
    assert_allclose(model.transform(X).mean(axis=0, dtype=np.float64), 0, atol=tolerance)


def test_a_linear_kernel_is_pca(X):
    model = KernelPCA(kernel=Linear(), n_centers=50, scale=False, random_state=0).fit(X)
    expected = PCA().fit(X)
    assert model.n_components_ == 4  # the rank, whatever the number of centers
    assert_allclose(model.explained_variance_, expected.explained_variance_ * 299 / 300)
    assert_allclose(model.explained_variance_ratio_.sum(), 1.0)
    assert_same_up_to_sign(model.transform(X), expected.transform(X), 1e-8 * np.abs(X).max())


def test_a_share_of_the_variance(X):
    all_of_them = KernelPCA(kernel=Gaussian(2.0), n_centers=100, random_state=0).fit(X)
    model = clone(all_of_them).set_params(n_components=0.8).fit(X)
    ratio = all_of_them.explained_variance_ratio_
    assert model.n_components_ == np.searchsorted(ratio.cumsum(), 0.8) + 1
    assert_array_equal(model.explained_variance_ratio_, ratio[: model.n_components_])
    assert model.explained_variance_ratio_.sum() >= 0.8
    # the centers miss some of it
    assert ratio.sum() < 1
    assert clone(model).set_params(n_components=0.999999).fit(X).n_components_ == all_of_them.n_components_


def test_the_solver_is_chosen_by_the_number_of_components(monkeypatch, X):
    rows, used = np.vstack([X, X + 0.1]), []
    from gyrfalcon.estimators import kernel_pca

    for name in ("principal_components", "largest_components"):
        function = getattr(kernel_pca, name)
        monkeypatch.setattr(kernel_pca, name, lambda *a, _f=function, _n=name, **k: (used.append(_n), _f(*a, **k))[1])
    for q, M in ((None, 500), (0.5, 500), (100, 500), (3, 100), (3, 500)):
        KernelPCA(kernel=Gaussian(2.0), n_components=q, n_centers=M, random_state=0).fit(rows)
    assert used == ["principal_components"] * 4 + ["largest_components"]


def test_the_inverse(X):
    t = np.random.default_rng(1).uniform(0, 2 * np.pi, 2000)
    circle = np.c_[np.cos(t), np.sin(t), 0.5 * np.cos(t)] * [1, 10, 1] + [0, 5, 0]
    model = KernelPCA(n_components=6, n_centers=100, fit_inverse_transform=True, random_state=0)
    scores = model.fit_transform(circle)
    back = model.inverse_transform(scores)
    assert back.shape == circle.shape
    assert np.abs(back - circle).max(axis=0) == pytest.approx([0, 0, 0], abs=0.1)
    # of the noise, two thirds lead away from the circle: they are not in the first components
    noisy = circle + np.random.default_rng(2).normal(scale=[0.1, 1.0, 0.1], size=circle.shape)
    clean = model.set_params(n_components=2).fit(noisy).inverse_transform(model.transform(noisy))
    assert np.square((clean - circle) / [1, 10, 1]).mean() < 0.6 * np.square((noisy - circle) / [1, 10, 1]).mean()
    with pytest.raises(ValueError, match="X has 3 columns: there are 2 components"):
        model.inverse_transform(circle)
    with pytest.raises(NotFittedError, match="fit_inverse_transform=True"):
        model.set_params(fit_inverse_transform=False).fit(circle).inverse_transform(scores[:, :2])


def test_names_and_containers(X):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=list("abcd"))
    model = KernelPCA(n_components=2, random_state=0).set_output(transform="pandas")
    out = model.fit_transform(table)
    assert list(out.columns) == ["kernelpca0", "kernelpca1"]
    assert_array_equal(model.feature_names_in_, list("abcd"))


@pytest.mark.parametrize("solver", ["direct", "iterative"])
def test_rows_from_elsewhere(tmp_path, solver, X):
    model = KernelPCA(n_components=3, n_centers=50, solver=solver, random_state=0)
    expected = model.fit(X).transform(X)
    assert_array_equal(model.fit(Stream(X)).transform(Stream(X)), expected)
    np.save(tmp_path / "X.npy", X)
    rows = gyrfalcon.open(tmp_path / "X.npy").X
    assert_array_equal(model.fit(rows).transform(rows), expected)
    sparse = scipy.sparse.csr_array(X)
    expected = model.set_params(scale=False).fit(X).transform(X)
    assert_allclose(model.fit(sparse).transform(sparse), expected, atol=1e-7)


def test_dask(X):
    da = pytest.importorskip("dask.array")
    model = KernelPCA(n_components=3, n_centers=50, solver="iterative", random_state=0)
    expected = model.fit(X).transform(X)
    lazy = model.fit(da.from_array(X, chunks=(80, -1))).transform(da.from_array(X, chunks=(80, -1)))
    assert_allclose(lazy.compute(), expected, atol=1e-7)


@pytest.mark.parametrize("solver", ["direct", "iterative"])
def test_same_bits_for_any_number_of_threads_and_any_budget(solver, X):
    model = KernelPCA(n_components=3, n_centers=50, solver=solver, random_state=0, n_jobs=1)
    expected = model.fit(X).dual_coef_
    assert_array_equal(model.set_params(n_jobs=3).fit(X).dual_coef_, expected)


def test_save_and_load(tmp_path, X):
    model = KernelPCA(n_components=3, n_centers=50, fit_inverse_transform=True, random_state=0).fit(X)
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert_array_equal(loaded.transform(X), model.transform(X))
    assert_array_equal(loaded.inverse_transform(model.transform(X)), model.inverse_transform(model.transform(X)))
    model.n_components_ = 2
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="there are 2 components"):
        gyrfalcon.load(tmp_path / "model")


@pytest.mark.parametrize("solver", ["direct", "iterative"])
@pytest.mark.parametrize("rows", [np.ones((20, 2)), np.ones((1, 3))], ids=["the same rows", "one row"])
def test_rows_without_variance(rows, solver):
    model = KernelPCA(n_components=1, solver=solver).fit(rows)
    assert_array_equal(model.eigenvalues_, [0.0])
    assert_array_equal(model.explained_variance_ratio_, [0.0])
    assert_array_equal(model.transform(rows), np.zeros((len(rows), 1)))
    assert KernelPCA().fit(rows).n_components_ == 1


def test_other_degenerate_rows(X):
    # as many centers as rows, each of them twice
    twice = np.vstack([X[:40], X[:40]])
    once = KernelPCA(kernel=Gaussian(2.0), n_components=3, scale=False).fit(X[:40])
    model = KernelPCA(kernel=Gaussian(2.0), n_components=3, n_centers=1000, scale=False).fit(twice)
    assert_allclose(model.explained_variance_, once.explained_variance_, rtol=1e-8)
    # more components than the rank: the others are nothing
    model = KernelPCA(kernel=Linear(), n_components=6, n_centers=50, scale=False).fit(X)
    assert_array_equal(model.eigenvalues_[4:], 0)
    assert_array_equal(model.transform(X)[:, 4:], 0)
    model = KernelPCA(kernel=Constant(2.0), n_components=2).fit(X)
    assert_allclose(model.eigenvalues_, 0, atol=1e-10)
    assert KernelPCA(kernel=CallableKernel(lambda A, B: A @ B.T), n_components=2, scale=False).fit(X).n_components_ == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components=0 must be None, an integer of at least 1, or a share"),
        ({"n_components": 1.5}, r"n_components=1\.5 must be None"),
        ({"n_components": True}, "n_components=True must be None"),
        ({"n_components": 31, "n_centers": 30}, "n_components=31 must be at most the number of centers, 30: raise"),
        ({"solver": "arpack"}, "solver='arpack' must be one of"),
        ({"solver": "iterative"}, 'n_components=None is none; use solver="direct"'),
        ({"fit_inverse_transform": 1}, "fit_inverse_transform=1 must be True or False"),
    ],
)
def test_bad_parameters(parameters, message, X):
    with pytest.raises(ValueError, match=message):
        KernelPCA(**parameters).fit(X)


def test_bad_rows(X):
    with pytest.raises(ValueError, match="needs dense rows, and X is sparse"):
        KernelPCA(fit_inverse_transform=True).fit(scipy.sparse.csr_array(X))
    with pytest.raises(ValueError, match="NaN"):
        KernelPCA().fit(np.where(X[3, 2] == X, np.nan, X))
    with pytest.raises(MemoryError, match="would fit"):
        KernelPCA(n_centers=300, memory_budget="1MB").fit(X)


def test_iterations_that_do_not_come_to_an_end(monkeypatch, X):
    from gyrfalcon.solvers import principal

    monkeypatch.setattr(principal, "_MOST_BLOCKS", 1)
    with pytest.warns(ConvergenceWarning, match='raise tol, or use solver="direct"'):
        KernelPCA(kernel=Laplacian(1.0), n_components=2, n_centers=200, solver="iterative", random_state=0).fit(X)


def test_float32_keeps_the_components_that_it_gets_right():
    Z = np.random.default_rng(0).standard_normal((700, 6))
    settings = {"n_centers": 600, "n_components": 250, "solver": "direct", "random_state": 0}
    single = KernelPCA(**settings).fit(Z.astype(np.float32)).eigenvalues_
    np.testing.assert_allclose(single, KernelPCA(**settings).fit(Z).eigenvalues_, rtol=0.01)


def test_float32_drops_what_rounding_leaves():
    Z = np.random.default_rng(0).standard_normal((700, 1))
    settings = {"n_centers": 600, "n_components": 30, "solver": "direct", "random_state": 0}
    single = KernelPCA(**settings).fit(Z.astype(np.float32)).eigenvalues_
    exact = KernelPCA(**settings).fit(Z).eigenvalues_
    kept = single > 0
    assert 10 < kept.sum() < 30
    np.testing.assert_allclose(single[kept], exact[kept], rtol=0.02)


@pytest.mark.parametrize("n_centers", [None, 300])
def test_too_little_memory(n_centers):
    """What is said to fit does, also where so few centers are solved for directly."""
    X = np.random.default_rng(0).standard_normal((1_000, 3))
    model = KernelPCA(n_components=2, n_centers=n_centers, memory_budget="1MB", n_jobs=1, random_state=0)
    with pytest.raises(MemoryError, match=r"memory_budget='1MB' allows 1 MB: n_centers=\d+ would fit") as refused:
        model.fit(X)
    fits = int(str(refused.value).split("n_centers=")[1].split()[0])
    assert fits >= 100
    model.set_params(n_centers=fits).fit(X)


def test_components_that_are_rounding():
    X = np.random.default_rng(0).standard_normal((300, 4))
    settings = {"n_components": 4, "n_centers": 100, "scale": False, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match=r"0 of 4 components .* float32, .* zeros: use dtype=\"float64\""):
        KernelPCA(kernel=Gaussian(1000.0), **settings).fit(X.astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ratios = KernelPCA(kernel=Gaussian(1000.0), dtype="float64", **settings).fit(X.astype(np.float32))
    assert_allclose(ratios.explained_variance_ratio_.sum(), 1.0, atol=1e-3)
    with pytest.warns(ConvergenceWarning, match=r"2 of 4 components .* float64, .* zeros: ask for fewer"):
        KernelPCA(kernel=Linear(), **settings).fit(X[:, :2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_share_that_the_centers_do_not_hold(dtype):
    X = np.random.default_rng(0).standard_normal((300, 4)).astype(dtype)
    settings = {"n_components": 0.99, "scale": False, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match=r"explain 0\.\d+ of .* not n_components=0.99: raise n_centers"):
        model = KernelPCA(kernel=Gaussian(0.3), n_centers=20, **settings).fit(X)
    assert model.explained_variance_ratio_.sum() < 0.2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = KernelPCA(kernel=Gaussian(0.3), n_centers=300, **settings).fit(X)
    assert whole.explained_variance_ratio_.sum() >= 0.99


def test_number_of_components_comes_first(X):
    """As in scikit-learn's KernelPCA; a kernel there is refused with words that say so."""
    assert KernelPCA(2).fit_transform(X).shape == (len(X), 2)
    with pytest.raises(ValueError, match=r"n_components=.*KernelPCA\(kernel=\.\.\.\)"):
        KernelPCA(Gaussian(1.0)).fit(X)
