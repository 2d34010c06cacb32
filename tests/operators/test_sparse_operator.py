"""Sparse rows: what they may look like, how far they are to be believed, and that nothing becomes dense."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from gyrfalcon import FalkonClassifier, FalkonRegressor, KernelOperator, backends, load
from gyrfalcon.backends.sparse import LinearTiles
from gyrfalcon.kernels import (
    ArcCosine,
    CallableKernel,
    Constant,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from gyrfalcon.operators import make_operator
from gyrfalcon.operators.sparse import SparseOperator
from gyrfalcon.sources import as_rows
from gyrfalcon.sources import sparse as sparse_source
from gyrfalcon.sources.sparse import SparseRows
from gyrfalcon.testing import check_rows

BACKENDS = ["native", "reference"]
KERNELS = [
    Gaussian(1.3),
    Laplacian(1.3),
    Laplacian(1.3, norm=1),
    Matern(1.3, nu=1.5),
    RationalQuadratic(1.3, alpha=0.7),
    Linear(),
    Polynomial(3, gamma=0.2),
    Sigmoid(gamma=0.1),
    ArcCosine(0),
    ArcCosine(1),
    2.0 * Linear() + 0.5,
    Gaussian(1.3) + 0.1 * Linear() + Constant(0.2),
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def random_rows(n, d, density=0.1, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=density, format="csr", rng=rng, data_sampler=rng.standard_normal)
    return X.astype(dtype)


def filled(kernel, X, Z, backend="native"):
    tiles = backends.prepare(kernel, Z, backend)
    return tiles.fill(tiles.accept(X))


def close(actual, exact, tolerance=1e-12):
    size = np.abs(exact).max() if exact.size else 1.0
    np.testing.assert_allclose(actual, exact, rtol=0, atol=tolerance * max(size, 1e-300))


# ---- the source -----------------------------------------------------------------------------------------------------

VALUES = np.random.default_rng(1).integers(-3, 4, (103, 7)) * (np.random.default_rng(2).random((103, 7)) < 0.4)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, bool])
def test_formats_and_types(format, dtype):
    values = np.abs(VALUES).astype(dtype)
    rows = as_rows(sp.csr_array(values).asformat(format))
    assert isinstance(rows, SparseRows)
    assert rows.dtype == (np.float32 if dtype == np.float32 else np.float64)
    check_rows(rows, values)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_index_types_and_the_old_class(index):
    X = sp.csr_matrix(VALUES.astype(np.float32))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    check_rows(SparseRows(X), VALUES)
    check_rows(SparseRows(X, dtype=np.float64, index=np.arange(103)[::-1]), VALUES[::-1])


def test_subsets():
    rows = SparseRows(sp.csr_array(VALUES.astype(float)))
    odd = rows.subset(np.arange(1, 103, 2))
    check_rows(odd, VALUES[1::2])
    check_rows(odd.subset(np.arange(0, 51, 5)), VALUES[1::2][::5])


def test_nothing_is_copied():
    X = random_rows(100, 1000)
    block = list(SparseRows(X).blocks(30))[1]
    assert np.shares_memory(block.data, X.data)
    assert np.shares_memory(block.indices, X.indices)


def messy(X):
    """The same rows with columns in reverse order, and each number in two parts of the same place."""
    X = sp.csr_array(X)
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)])
    half = (X.data[order] / 2).astype(X.dtype)
    return sp.csr_array(
        (np.repeat(half, 2), np.repeat(X.indices[order], 2).astype(X.indices.dtype), 2 * X.indptr), shape=X.shape
    )


def test_unsorted_and_repeated_columns_are_added_in_a_copy():
    X = messy(VALUES.astype(float))
    before = X.indices.copy()
    check_rows(SparseRows(X), VALUES)
    np.testing.assert_array_equal(X.indices, before)


def test_a_large_conversion_is_announced(monkeypatch):
    X = sp.csc_array(VALUES.astype(float))
    monkeypatch.setattr(sparse_source, "_LARGE", X.nnz - 1)
    with pytest.warns(UserWarning, match=r"CSC format are converted to CSR, a second copy of .* numbers"):
        as_rows(X)


@pytest.mark.parametrize(
    ("name", "at", "value"), [("indices", 3, 7), ("indices", 3, -1), ("indptr", 5, 10**6), ("indptr", 5, -1)]
)
def test_broken_matrices(name, at, value):
    X = sp.csr_array(VALUES.astype(float))
    getattr(X, name)[at] = value
    with pytest.raises(ValueError, match="ind"):
        SparseRows(X)


def test_what_is_not_rows():
    with pytest.raises(TypeError, match="use ArrayRows"):
        SparseRows(np.ones((2, 2)))
    with pytest.raises(ValueError, match="are not numbers"):
        SparseRows(sp.eye_array(3, dtype=complex, format="csr"))
    with pytest.raises(ValueError, match="must be float32 or float64"):
        SparseRows(sp.eye_array(3, format="csr"), dtype=np.float16)


# ---- tiles ----------------------------------------------------------------------------------------------------------


@every_kernel
@every_backend
@pytest.mark.parametrize(
    ("n", "M", "d", "density"), [(1, 1, 1, 1.0), (5, 1, 30, 0.2), (1, 9, 1, 1.0), (40, 33, 65, 0.1), (9, 70, 700, 0.01)]
)
def test_sizes(kernel, backend, n, M, d, density):
    X, Z = random_rows(n, d, density, 1), random_rows(M, d, density, 2)
    close(filled(kernel, X, Z, backend), kernel(X.toarray(), Z.toarray()))


@every_kernel
@every_backend
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_any_order_of_columns(kernel, backend, index):
    X, Z = random_rows(50, 40, 0.2, 1), random_rows(20, 40, 0.2, 2)
    exact = kernel(X.toarray(), Z.toarray())
    X, Z = messy(X), messy(Z)
    for A in (X, Z):
        A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    tiles = backends.prepare(kernel, Z, backend)
    rows = tiles.accept(X)
    ones = np.ones((20, 1))
    close(tiles.fill(rows), exact)
    close(tiles.matmat(rows, ones), exact @ ones)
    close(tiles.rmatmat(rows, np.ones((50, 1))), exact.T @ np.ones((50, 1)))
    close(tiles.sandwich(rows, ones, None), exact.T @ (exact @ ones))
    assert not X.has_sorted_indices


@every_kernel
@every_backend
def test_empty_rows_and_nothing_in_common(kernel, backend):
    X = sp.csr_array(np.array([[0, 0, 0, 0], [0, 0, 1.5, 2], [1, 0, 0, 0], [0, 0, 0, 0]]))
    Z = sp.csr_array(np.array([[0.0, 0, 0, 0], [1, -1, 0, 0], [-2, 0, 0, 0]]))
    close(filled(kernel, X, Z, backend), kernel(X.toarray(), Z.toarray()))
    nothing = sp.csr_array((2, 4))
    close(filled(kernel, X, nothing, backend), kernel(X.toarray(), nothing.toarray()))
    close(filled(kernel, nothing, nothing, backend), kernel(nothing.toarray(), nothing.toarray()))


@every_kernel
@every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stored_zeros_and_values_of_any_size(kernel, backend, dtype):
    X, Z = random_rows(30, 50, 0.3, 1, dtype), random_rows(20, 50, 0.3, 2, dtype)
    X.data[::7] = 0
    Z.data[::5] *= 1e-3
    close(filled(kernel, X, Z, backend), kernel(X.toarray(), Z.toarray()), 2e-6 if dtype == np.float32 else 1e-12)


@every_backend
@pytest.mark.parametrize(
    "kernel", [Laplacian(0.5), Laplacian(0.5, norm=1), Matern(0.5, nu=1.5), Gaussian(0.5), Gaussian(0.01)], ids=repr
)
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_rows_that_are_nearly_a_center(kernel, backend, offset):
    """|x|^2 + |z|^2 - 2 x.z has no digits left there; with `offset` all rows are far from the origin too."""
    rng = np.random.default_rng(0)
    Z = random_rows(12, 60, 0.2)
    Z.data += offset
    X = sp.vstack([Z] * 5, format="csr")
    X.data += 10.0 ** -rng.integers(1, 9, X.nnz) * rng.standard_normal(X.nnz)
    X = sp.vstack([X, Z], format="csr")
    exact = kernel(X.toarray(), Z.toarray())
    np.testing.assert_allclose(filled(kernel, X, Z, backend), exact, rtol=0, atol=1e-12)
    assert (filled(kernel, X, Z, backend)[-12:].diagonal() == 1).all()


def test_numbers_whose_squares_overflow_are_noticed():
    X = sp.csr_array(np.array([[1e200, 0.0], [1.0, 2.0]]))
    Z = sp.csr_array(np.array([[1.0, 0.0]]))
    with pytest.raises(ValueError, match="not finite"):
        KernelOperator(Gaussian(1.0), X, Z, backend="native").matmat(np.ones(1))
    far = sp.csr_array(np.array([[1e18, 0.0]], dtype=np.float32))
    assert KernelOperator(Gaussian(1.0), far, Z, backend="native").matmat(np.ones(1))[0] < 1e-30


def test_many_rows_are_summed_in_double():
    X = sp.csr_array(np.ones((70_000, 1), dtype=np.float32))
    for kernel in (Linear(), Gaussian(1.0)):
        total = KernelOperator(kernel, X, X[:1], memory_budget=0).rmatmat(np.full(70_000, 0.1))
        np.testing.assert_allclose(total, 70_000 * np.float32(0.1), rtol=3e-6)


# ---- the operator ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Gaussian(1.3), Linear(), Linear() + 1.0], ids=repr)
@pytest.mark.parametrize("columns", [1, 4])
def test_the_same_bits_for_any_number_of_threads(kernel, columns):
    X = random_rows(3000, 400, 0.02, dtype=np.float32)
    V = np.random.default_rng(0).standard_normal((50, columns))
    results = [
        KernelOperator(kernel, X, X[:50], n_jobs=n_jobs, memory_budget=0).sandwich(V, lambda at, T: 1 / (1 + T**2))
        for n_jobs in (1, 2, 5)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_the_linear_kernel_is_the_one_that_makes_no_tiles():
    Z = random_rows(9, 40)
    for kernel in (Linear(), 3 * Linear(), Linear() + 1.0, 2 * (Linear() + Linear()) * 0.5 + Constant(2.0) * 3):
        tiles = backends.prepare(kernel, Z)
        assert isinstance(tiles, LinearTiles)
        assert not tiles.worth_keeping
        close(tiles.fill(Z), kernel(Z.toarray(), Z.toarray()))
    for kernel in (Linear() * Linear(), Linear() + Gaussian(1.0), Polynomial(1), Constant(2.0)):
        assert backends.prepare(kernel.resolve(Z), Z).worth_keeping


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [Linear(), 2.0 * Linear() + 1.0, Polynomial(2, gamma=0.1)], ids=repr)
def test_what_the_centers_cannot_see_is_left_out(kernel, dtype):
    """Of a linear kernel; the others' rows stay what they are."""
    X = random_rows(500, 5000, 0.004, dtype=dtype)
    rows, centers = SparseRows(X), X[:30]
    V = np.random.default_rng(0).standard_normal((30, 2))
    plain = KernelOperator(kernel, X, centers, memory_budget=0)
    operator = make_operator(kernel, rows, centers, memory_budget="100MB")
    linear = not isinstance(kernel, Polynomial)
    assert operator.keeps
    assert (operator.rows is not rows) == linear
    if linear:
        assert operator.rows.X.nnz < X.nnz / 2
        assert set(operator.rows.X.indices) == set(centers.indices)
        tolerance = 2e-6 if dtype == np.float32 else 1e-12
        assert isinstance(operator, SparseOperator)
        close(operator.sandwich(V), plain.sandwich(V), tolerance)
        half = make_operator(kernel, rows.subset(np.arange(0, 500, 2)), centers, memory_budget="100MB")
        close(half.matmat(V), plain.matmat(V)[::2], tolerance)
    for budget in (0, 100):  # none, and too little
        assert make_operator(kernel, rows, centers, memory_budget=budget).rows is rows
    with pytest.raises(ValueError, match="rows have 5000 features and centers 6000"):
        make_operator(kernel, rows, random_rows(5, 6000), memory_budget="100MB")
    narrow = SparseRows(random_rows(100, 20, 0.5))  # nothing that no center has
    assert make_operator(kernel, narrow, narrow.X[:30]).rows is narrow


def test_a_column_that_all_share_makes_k_dense():
    """Then what the centers see is kept, and no K."""
    X = random_rows(500, 5000, 0.004)
    X = sp.csr_array(sp.hstack([sp.csr_array(np.ones((500, 1))), X], format="csr"))
    operator = make_operator(Linear(), SparseRows(X), X[:30], memory_budget="100MB")
    assert type(operator) is KernelOperator
    assert operator.rows.X.nnz < X.nnz / 2
    plain = KernelOperator(Linear(), X, X[:30], memory_budget=0)
    np.testing.assert_array_equal(operator.sandwich(np.ones(30)), plain.sandwich(np.ones(30)))


def test_what_is_not_finite_is_noticed_even_where_no_center_sees_it():
    X = random_rows(200, 5000, 0.004)
    unseen = np.flatnonzero(~np.isin(X.indices, X[:5].indices))
    X.data[unseen[-1]] = np.nan
    with pytest.raises(ValueError, match=r"row 199 has nan in feature \d+"):
        make_operator(Linear(), SparseRows(X), X[:5]).matmat(np.ones(5))


def test_dense_centers_of_sparse_rows():
    X = random_rows(200, 30)
    Z = X[:20].toarray()
    operator = KernelOperator(Gaussian(1.0), X, Z)
    assert sp.issparse(operator.centers)
    close(operator.matmat(np.eye(20)), Gaussian(1.0)(X.toarray(), Z))


class Blocks:
    """A source of the given blocks."""

    def __init__(self, blocks, shape, sparse=True):
        self.given, self.shape, self.dtype, self.sparse = blocks, shape, np.dtype(np.float64), sparse

    def blocks(self, size):
        yield from self.given

    def take(self, indices):
        return sp.csr_array((len(indices), self.shape[1])) if self.sparse else np.zeros((len(indices), self.shape[1]))


@every_backend
def test_blocks_that_are_not_what_the_source_said(backend):
    Z = random_rows(4, 30, 0.3)
    block = random_rows(100, 30, 0.3)
    outside = block.copy()
    outside.indices[-1] = 30
    negative = block.copy()
    negative.indices[3] = -1
    wrong_rows = block.copy()
    wrong_rows.indptr[50] = block.nnz + 5
    short = block.copy()
    short.indptr = block.indptr[:-1]
    cases = [
        ([block.toarray()], "is a dense array where the centers are sparse"),
        ([block.tocsc()], "sparse csc matrix: sources must give CSR"),
        ([block[:, :20]], "block of shape"),
        ([outside], "a column index is outside the 30 features"),
        ([negative], "a column index is outside the 30 features"),
        ([wrong_rows], "indptr of a sparse block does not increase"),
        ([short], "index arrays of the wrong length"),
    ]
    for blocks, message in cases:
        operator = KernelOperator(Gaussian(1.0), Blocks(blocks, (100, 30)), Z, backend=backend, memory_budget=0)
        with pytest.raises(ValueError, match=message):
            operator.matmat(np.ones(4))
    dense = KernelOperator(Gaussian(1.0), Blocks([block], (100, 30), sparse=False), Z.toarray(), backend=backend)
    with pytest.raises(ValueError, match="sparse csr matrix where the centers are dense"):
        dense.matmat(np.ones(4))
    with pytest.raises(ValueError, match="give both sparse"):
        KernelOperator(Gaussian(1.0), block.toarray(), Z, backend=backend)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(value):
    X = random_rows(500, 30, 0.3)
    centers = X[:5]
    X.data[X.indptr[320]] = value
    with pytest.raises(ValueError, match=rf"row 320 has {value} in feature \d+: remove or impute"):
        KernelOperator(Gaussian(1.0), X, centers).matmat(np.ones(5))
    with pytest.raises(ValueError, match="centers contain NaN or infinity"):
        KernelOperator(Gaussian(1.0), X, X[318:322])


# ---- kernels --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [*KERNELS, Gaussian(), Laplacian(norm=1), Polynomial(2), Sigmoid(), Gaussian(np.linspace(0.5, 3, 40)) * Linear()],
    ids=lambda k: type(k).__name__,
)
def test_kernels_of_sparse_matrices(kernel):
    A, B = random_rows(30, 40, 0.2, 1), random_rows(12, 40, 0.2, 2)
    A.data[::3] *= 100  # columns of very different means
    resolved, dense = kernel.resolve(A), kernel.resolve(A.toarray())
    for name, value in dense.get_params().items():
        if isinstance(value, float):
            np.testing.assert_allclose(resolved.get_params()[name], value, rtol=1e-12)
    close(resolved(A, B), dense(A.toarray(), B.toarray()))
    close(resolved(messy(A), B), dense(A.toarray(), B.toarray()))
    close(resolved.diag(A), dense.diag(A.toarray()))
    close(resolved.diag(messy(A)), dense.diag(A.toarray()))
    with pytest.raises(TypeError, match="one of A and B is sparse"):
        Gaussian(1.0)(A, B.toarray())


def test_rows_that_do_not_vary():
    X = sp.csr_array(np.full((5, 3), 2.0))
    assert Gaussian().resolve(X).length_scale == Gaussian().resolve(X.toarray()).length_scale
    assert Gaussian().resolve(sp.csr_array((5, 3))).length_scale == np.sqrt(0.5)


class Cauchy(Kernel):
    def profile(self, s):
        return 1 / (1 + s)


@every_backend
def test_a_kernel_of_ones_own(backend):
    X, Z = random_rows(30, 40, 0.2, 1), random_rows(12, 40, 0.2, 2)
    for kernel in (Cauchy(), Cauchy() * Gaussian(1.0) + Linear()):
        close(filled(kernel, X, Z, backend), kernel(X.toarray(), Z.toarray()))


@every_backend
def test_functions(backend):
    X, Z = random_rows(30, 40, 0.2, 1), random_rows(12, 40, 0.2, 2)
    for function in (lambda A, B: A @ B.T, lambda A, B: (A @ B.T).toarray()):
        kernel = CallableKernel(function)
        close(KernelOperator(kernel, X, Z, backend=backend).matmat(np.eye(12)), X.toarray() @ Z.toarray().T)
        close(kernel.diag(X), np.square(X.toarray()).sum(axis=1))
    dense_only = CallableKernel(lambda A, B: np.abs(A[:, None] - B[None]).sum(axis=2))
    with pytest.raises(ValueError, match=r"cannot take sparse rows .* use a named kernel, or dense rows"):
        KernelOperator(dense_only, X, Z, backend=backend).matmat(np.ones(12))
    with pytest.raises(ValueError, match=r"gave an array of shape \(2, 2\)"):
        KernelOperator(lambda A, B: np.ones((2, 2)), X, Z, backend=backend).matmat(np.ones(12))


# ---- very wide ------------------------------------------------------------------------------------------------------

WIDE = """
    from pathlib import Path
    import numpy as np, scipy.sparse as sp
    from gyrfalcon import FalkonRegressor, KernelOperator
    from gyrfalcon.kernels import Gaussian, Laplacian, Linear

    def peak():  # not ru_maxrss, which a process inherits
        return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

    rng = np.random.default_rng(0)
    n, d = 3000, 100_000_000
    columns = np.sort(rng.choice(d, (n, 20)), axis=1)
    columns[:, 0] = rng.integers(0, 3, n)
    columns = np.sort(columns, axis=1)
    X = sp.csr_array((rng.standard_normal(20 * n), columns.ravel(), np.arange(0, 20 * n + 1, 20)), shape=(n, d))
    seen, at = np.unique(X.indices, return_inverse=True)
    small = sp.csr_array((X.data, at, X.indptr), shape=(n, len(seen)))
    before = peak()
    for kernel in (Gaussian(), Laplacian(3.0), Linear() + 1.0):
        V = rng.standard_normal(100)
        wide = KernelOperator(kernel, X, X[:100], memory_budget=0).sandwich(V)
        np.testing.assert_allclose(wide, KernelOperator(kernel, small, small[:100]).sandwich(V), rtol=1e-10, atol=1e-9)
    # scale=True keeps a scale for each column, which are vectors of that length
    model = FalkonRegressor(kernel="linear", n_centers=100, scale=False, random_state=0)
    model.fit(X, np.asarray(X.sum(axis=1)).ravel())
    assert model.centers_.shape == (100, d)
    print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured on Linux")
def test_a_hundred_million_columns():
    """A single vector of that length would take 800 MB."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WIDE)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 150_000  # kilobytes


# ---- estimators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["gaussian", "linear", "laplacian", Linear() + 1.0], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_model_as_of_dense_rows(kernel, dtype, tmp_path):
    X = random_rows(600, 60, 0.1, dtype=dtype)
    y = X @ np.random.default_rng(0).standard_normal(60)
    # unscaled: of dense rows, scaling subtracts the mean as well
    settings = {"kernel": kernel, "n_centers": 80, "penalty": 1e-4, "scale": False, "random_state": 0}
    sparse = FalkonRegressor(**settings).fit(X, y)
    dense = FalkonRegressor(**settings).fit(X.toarray(), y)
    assert isinstance(sparse.centers_, sp.csr_array)
    tolerance = 2e-2 if dtype == np.float32 else 1e-6  # float32 decides when to stop
    np.testing.assert_allclose(sparse.predict(X), dense.predict(X.toarray()), rtol=0, atol=tolerance * np.std(y))
    sparse.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.centers_.shape == (80, 60)
    np.testing.assert_array_equal(loaded.predict(X), sparse.predict(X))


def test_classification():
    X = random_rows(600, 60, 0.1)
    y = np.where(X @ np.random.default_rng(0).standard_normal(60) > 0, "yes", "no")
    model = FalkonClassifier(kernel="linear", n_centers=80, scale=False, random_state=0).fit(X, y)
    dense = FalkonClassifier(kernel="linear", n_centers=80, scale=False, random_state=0).fit(X.toarray(), y)
    np.testing.assert_array_equal(model.predict(X), dense.predict(X.toarray()))
    assert model.score(X, y) > 0.9
