"""Every operator is its matrix: shapes, precisions, products, blocks and passes, whether K is kept or made again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Kernel, Linear
from gyrfalcon.operators import Operator, Rowwise, Shifted, feature_operator, make_operator
from gyrfalcon.operators.dask import DaskOperator
from gyrfalcon.operators.features import FeatureOperator
from gyrfalcon.operators.sparse import SparseOperator
from gyrfalcon.sources import DaskRows, as_rows

from .market import DTYPES, TOLERANCE, data, off_by, squared_distance

N = 700


class Case(NamedTuple):
    """An operator of given rows, the rows, the class, and K by NumPy in float64."""

    make: Callable[[Any, Any], Operator]
    rows: Callable[[Any], Any]
    kind: Callable[[bool], type]
    matrix: Callable[[Any], Any]
    gram: Callable[[Any], Any]
    passes_of_a_function: int = 1


def gaussian(A, B):
    return np.exp(-squared_distance(A, B, 1.7) / 2)


def sparse_gaussian(A, B):
    squares = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2 * A @ B.T
    return np.exp(-squares / 18)


def dense_rows(dtype):
    return data(N, dtype=dtype)[0]


def dense_centers(dtype):
    return data(N, dtype=dtype)[1]


def sparse_rows(dtype):
    rng = np.random.default_rng(0)
    return sp.random_array((N, 5000), density=0.004, format="csr", rng=rng, data_sampler=rng.standard_normal).astype(
        dtype
    )


def sparse_centers(dtype):
    return sparse_rows(dtype)[:30]


def exact(X):
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)


def dask_rows(X):
    return DaskRows(da.from_array(X, chunks=(150, 3)))


FEATURES = Gaussian(1.7).random_features(45, 5, np.random.RandomState(0))
LINEAR = 2.0 * Linear() + 1.0


def features(X):
    return FEATURES.scale * np.cos(exact(X) @ FEATURES.weights.T + FEATURES.offset)


def of_dense(make, kind=KernelOperator, **more):
    """A case of dense rows and the Gaussian kernel."""
    return Case(
        lambda X, budget: make(X, dense_centers(X.dtype), budget),
        dense_rows,
        lambda keep: kind,
        lambda X: gaussian(X, dense_centers(X.dtype)),
        lambda dtype: gaussian(dense_centers(dtype), dense_centers(dtype)),
        **more,
    )


CASES = {
    "dense": of_dense(lambda X, Z, budget: make_operator(Gaussian(1.7), as_rows(X), Z, memory_budget=budget)),
    "dense, by NumPy": of_dense(
        lambda X, Z, budget: KernelOperator(Gaussian(1.7), X, Z, memory_budget=budget, backend="reference")
    ),
    "dask": of_dense(
        lambda X, Z, budget: make_operator(Gaussian(1.7), dask_rows(X), Z, memory_budget=budget),
        DaskOperator,
        passes_of_a_function=2,  # K V has to come here
    ),
    "sparse": Case(
        lambda X, budget: make_operator(Gaussian(3.0), as_rows(X), sparse_centers(X.dtype), memory_budget=budget),
        sparse_rows,
        lambda keep: KernelOperator,
        lambda X: sparse_gaussian(exact(X), exact(sparse_centers(X.dtype))),
        lambda dtype: sparse_gaussian(*2 * [exact(sparse_centers(dtype))]),
    ),
    "sparse, linear": Case(
        lambda X, budget: make_operator(LINEAR, as_rows(X), sparse_centers(X.dtype), memory_budget=budget),
        sparse_rows,
        lambda keep: SparseOperator if keep else KernelOperator,
        lambda X: 2 * exact(X) @ exact(sparse_centers(X.dtype)).T + 1,
        lambda dtype: 2 * exact(sparse_centers(dtype)) @ exact(sparse_centers(dtype)).T + 1,
    ),
    "features": Case(
        lambda X, budget: feature_operator(FEATURES, X, memory_budget=budget),
        dense_rows,
        lambda keep: FeatureOperator,
        features,
        lambda dtype: np.eye(45),
    ),
}

pytestmark = pytest.mark.usefixtures("threads")


@pytest.fixture
def threads():
    with dask.config.set(scheduler="threads"):
        yield


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(params=DTYPES, ids=lambda t: t.__name__)
def dtype(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["made", "kept"])
def keep(request):
    return request.param


@pytest.fixture
def operator(case, dtype, keep):
    return case.make(case.rows(dtype), "200MB" if keep else 0)


@cache
def matrix_of(case, dtype):
    K = case.matrix(case.rows(dtype))
    K.flags.writeable = False
    return K


@pytest.fixture
def K(case, dtype):
    return matrix_of(case, dtype)


def residual(T, Y, w):
    return w[:, None] * (Y - T)


def vectors(K, columns, dtype, seed=0):
    """V, U and a weight of the precision in which operators take them, so that only their own rounding shows."""
    rng = np.random.default_rng(seed)
    n, M = K.shape
    V, U, w = rng.standard_normal((M, columns)), rng.standard_normal((n, columns)), rng.random(n)
    w[::5] = 0
    return tuple(array.astype(dtype).astype(np.float64) for array in (V, U, w))


def test_it_says_what_it_is(operator, case, dtype, keep, K):
    assert isinstance(operator, Operator)
    assert type(operator) is case.kind(keep)
    assert isinstance(operator.kernel, Kernel)
    assert operator.shape == K.shape
    assert operator.dtype == dtype
    assert operator.rows.shape[0] == K.shape[0]
    assert operator.centers.shape == (K.shape[1], operator.rows.shape[1])
    assert operator.centers.dtype == dtype
    assert operator.passes == 0
    assert operator.keeps is keep
    assert operator.arithmetic.startswith("kept" if keep else "made again")
    here = keep and not isinstance(operator, DaskOperator)
    assert (operator.kept_bytes > 0) == here


@pytest.mark.parametrize("columns", [0, 1, 3, 5])
def test_products(operator, dtype, K, columns):
    V, U, w = vectors(K, columns, dtype)
    A, tolerance = np.abs(K), TOLERANCE[dtype]
    KV, AV = K @ V, A @ np.abs(V)
    for _ in range(2):  # the first pass makes K and the second, where it is kept, reads it
        product = operator.matmat(V)
        assert product.dtype == dtype
        assert off_by(product, KV, AV) < tolerance
        for product, correct, size in (
            (operator.rmatmat(U), K.T @ U, A.T @ np.abs(U)),
            (operator.sandwich(V), K.T @ KV, A.T @ AV),
            (operator.sandwich(V, w), K.T @ (w[:, None] * KV), A.T @ (w[:, None] * AV)),
            (operator.sandwich(V, list(w)), K.T @ (w[:, None] * KV), A.T @ (w[:, None] * AV)),
            (operator.sandwich(V, lambda at, T: U[at] - T), K.T @ (U - KV), A.T @ (np.abs(U) + AV)),
            *(
                (
                    operator.sandwich(V, Rowwise(residual, U, w, portable=portable)),
                    K.T @ (w[:, None] * (U - KV)),
                    A.T @ (w[:, None] * (np.abs(U) + AV)),
                )
                for portable in (False, True)
            ),
            (operator.sandwich(-V, Shifted(U)), K.T @ (U - KV), A.T @ (np.abs(U) + AV)),
            (
                operator.sandwich(-V, Shifted(U, w)),
                K.T @ (w[:, None] * (U - KV)),
                A.T @ (w[:, None] * (np.abs(U) + AV)),
            ),
            (
                operator.sandwich(-V, Shifted(U, w, C=2 * np.eye(columns, dtype=dtype)[:, ::-1])),
                K.T @ (w[:, None] * (2 * U[:, ::-1] - KV)),
                A.T @ (w[:, None] * (2 * np.abs(U[:, ::-1]) + AV)),
            ),
        ):
            assert product.dtype == np.float64
            assert off_by(product, correct, size) < tolerance


def test_a_sandwich_gives_the_product_within(operator, dtype, K):
    V, U, w = vectors(K, 3, dtype)
    KV, bound = K @ V, np.abs(K) @ np.abs(V)
    weights = (None, w, Rowwise(residual, U, w), Rowwise(residual, U, w, portable=True))
    for count, weight in enumerate(weights, start=1):
        image = np.full(KV.shape, np.nan, dtype)
        product = operator.sandwich(V, weight, KV=image)
        assert operator.passes == count
        assert off_by(image, KV, bound) < TOLERANCE[dtype]
        size = np.abs(K).T @ (bound + np.abs(U)) * w.max()
        assert off_by(product, operator.on(operator.rows).sandwich(V, weight), size) < TOLERANCE[dtype]
    first = np.full(len(K), np.nan, dtype)
    operator.sandwich(V[:, 0], lambda at, T: U[at, :1] - T, KV=first)
    assert off_by(first, KV[:, 0], bound[:, 0]) < TOLERANCE[dtype]
    for wrong in (image[:-1], image[:, :2], first, image.astype(np.float16)):
        with pytest.raises(ValueError, match=r"KV has shape .* it must be \(\d+, 3\)"):
            operator.sandwich(V, KV=wrong)


def test_a_vector_gives_a_vector(operator, dtype, K):
    V, U, w = vectors(K, 1, dtype)
    for _ in range(2):
        for product, column in (
            (operator.matmat(V[:, 0]), operator.matmat(V)),
            (operator.rmatmat(U[:, 0]), operator.rmatmat(U)),
            (operator.sandwich(V[:, 0]), operator.sandwich(V)),
            (operator.sandwich(V[:, 0], w), operator.sandwich(V, w)),
            (operator.sandwich(V[:, 0], Rowwise(residual, U, w)), operator.sandwich(V, Rowwise(residual, U, w))),
            (operator.sandwich(V[:, 0], lambda at, T: U[at] - T), operator.sandwich(V, lambda at, T: U[at] - T)),
        ):
            assert product.shape == column.shape[:1]
            np.testing.assert_allclose(product, column[:, 0], rtol=0, atol=TOLERANCE[dtype] * np.abs(column).max())


def test_a_weight_function_sees_each_row_once_and_its_own_product(operator, dtype, K):
    V, _, _ = vectors(K, 2, dtype)
    KV, seen = K @ V, np.zeros(len(K), dtype=int)

    def weight(at, T):
        assert isinstance(at, slice)
        seen[at] += 1
        np.testing.assert_allclose(T, KV[at], rtol=0, atol=TOLERANCE[dtype] * (np.abs(K) @ np.abs(V)).max())
        return T

    operator.sandwich(V, weight)
    assert (seen == 1).all()


def test_gram_of_the_centers(operator, case, dtype):
    correct = case.gram(dtype)
    for asked, precision in ((None, dtype), (np.float64, np.float64), (np.float32, np.float32)):
        gram = operator.centers_gram(asked)
        assert gram.dtype == precision
        assert gram.flags.f_contiguous
        assert gram.flags.writeable
        np.testing.assert_allclose(gram, correct, rtol=0, atol=TOLERANCE[precision] * np.abs(correct).max())
        gram[...] = np.nan  # the caller's, not the operator's
    assert operator.passes == 0
    assert np.isfinite(operator.centers_gram()).all()


def test_blocks_are_the_matrix_in_order(operator, dtype, K):
    for passes in (1, 2):
        stop = 0
        for at, block in operator.blocks():
            assert at.start == stop
            stop = at.stop
            assert block.shape == (at.stop - at.start, K.shape[1])
            assert block.dtype == dtype
            np.testing.assert_allclose(block, K[at], rtol=0, atol=TOLERANCE[dtype] * np.abs(K).max())
        assert stop == len(K)
        assert operator.passes == passes
    V, _, _ = vectors(K, 1, dtype)
    assert off_by(operator.matmat(V), K @ V, np.abs(K) @ np.abs(V)) < TOLERANCE[dtype]


def test_blocks_left_off_are_no_pass(operator, dtype, K):
    next(operator.blocks())
    assert operator.passes == 0
    V, _, _ = vectors(K, 1, dtype)
    assert off_by(operator.matmat(V), K @ V, np.abs(K) @ np.abs(V)) < TOLERANCE[dtype]


def test_passes(operator, case, dtype, K):
    V, U, w = vectors(K, 2, dtype)
    counted = 0
    for run, passes in (
        (lambda: operator.matmat(V), 1),
        (lambda: operator.rmatmat(U), 1),
        (lambda: operator.sandwich(V), 1),
        (lambda: operator.sandwich(V, w), 1),
        (lambda: operator.sandwich(V, Rowwise(residual, U, w)), 1),
        (lambda: operator.sandwich(V, lambda at, T: T), case.passes_of_a_function),
        (lambda: list(operator.blocks()), 1),
        (lambda: operator.centers_gram(), 0),
        (lambda: operator.on(case.rows(dtype)[:9]).matmat(V), 0),
    ):
        run()
        counted += passes
        assert operator.passes == counted


def test_filling_is_a_pass_over_zeros(case, dtype, keep, operator, K):
    """It leaves the bits of later products where any first pass leaves them."""
    V, U, w = vectors(K, 2, dtype)
    operator.fill()
    assert operator.passes == (keep and not isinstance(operator, SparseOperator))
    other = case.make(case.rows(dtype), "200MB" if keep else 0)
    other.rmatmat(np.zeros((len(K), 1)))
    for one, same in (
        (operator.matmat(V), other.matmat(V)),
        (operator.rmatmat(U), other.rmatmat(U)),
        (operator.sandwich(V, w), other.sandwich(V, w)),
    ):
        np.testing.assert_array_equal(one, same)


def test_on_other_rows(operator, case, dtype, K):
    X = case.rows(dtype)
    V, _, w = vectors(K, 2, dtype)
    before = operator.matmat(V)
    there = operator.on(X[13:211])
    assert isinstance(there, Operator)
    assert there.shape == (198, K.shape[1])
    assert there.dtype == dtype
    assert there.passes == 0
    assert not there.keeps
    part, size = K[13:211], np.abs(K[13:211])
    for _ in range(2):
        assert off_by(there.matmat(V), part @ V, size @ np.abs(V)) < TOLERANCE[dtype]
        weighted = part.T @ (w[13:211, None] * (part @ V))
        assert off_by(there.sandwich(V, w[13:211]), weighted, size.T @ (size @ np.abs(V))) < TOLERANCE[dtype]
    assert there.passes == 4
    np.testing.assert_allclose(operator.matmat(V), before, rtol=0, atol=TOLERANCE[dtype] * np.abs(before).max())
    np.testing.assert_array_equal(there.centers_gram(), operator.centers_gram())
    with pytest.raises(ValueError, match=r"rows have 2 features of type .*: the centers have"):
        operator.on(X[:, :2])
    with pytest.raises(ValueError, match="features of type float"):
        operator.on(X.astype(np.float64 if dtype == np.float32 else np.float32))


def test_dask_rows_stay_where_they_are(dtype):
    X = dense_rows(dtype)
    operator = CASES["dask"].make(X, 0)
    there = operator.on(dask_rows(X[:300]))
    assert type(there) is DaskOperator
    assert not there.keeps
    K, V = gaussian(X[:300], dense_centers(dtype)), np.ones((45, 1))
    assert off_by(there.matmat(V), K @ V, K @ V) < TOLERANCE[dtype]
    with pytest.raises(ValueError, match="rows have 4 features"):
        operator.on(dask_rows(X[:, :4]))


def test_no_rows(case, dtype, keep):
    operator = case.make(case.rows(dtype)[:0], "200MB" if keep else 0)
    M = operator.shape[1]
    assert operator.shape == (0, M)
    assert not operator.keeps
    assert operator.kept_bytes == 0
    assert operator.matmat(np.ones(M)).shape == (0,)
    assert operator.matmat(np.ones((M, 2))).dtype == dtype
    np.testing.assert_array_equal(operator.rmatmat(np.ones((0, 3))), np.zeros((M, 3)))
    np.testing.assert_array_equal(operator.sandwich(np.ones(M)), np.zeros(M))
    np.testing.assert_array_equal(operator.sandwich(np.ones((M, 2)), np.ones(0)), np.zeros((M, 2)))
    nothing = np.empty((0, 2), dtype)
    np.testing.assert_array_equal(operator.sandwich(np.ones((M, 2)), KV=nothing), np.zeros((M, 2)))
    assert operator.passes == 6
    operator.fill()
    assert list(operator.blocks()) == []
    assert operator.passes == 7
    assert operator.centers_gram().shape == (M, M)
    assert operator.on(case.rows(dtype)).shape == (N, M)


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_wrong_vectors(operator, dtype, K):
    n, M = K.shape
    for verb, argument, message in (
        ("matmat", np.ones(M + 1), rf"V has shape \({M + 1},\): it must be \({M},\) or \({M}, k\)"),
        ("matmat", np.ones((M, 2, 2)), rf"V has shape \({M}, 2, 2\)"),
        ("matmat", 3.0, r"V has shape \(\)"),
        ("matmat", [], r"V has shape \(0,\)"),
        ("rmatmat", np.ones(M), rf"U has shape \({M},\): it must be \({n},\) or \({n}, k\)"),
        ("sandwich", np.ones((2, M)), rf"V has shape \(2, {M}\)"),
        ("matmat", np.full(M, np.nan), f"not finite in {np.dtype(dtype)}: check the vectors"),
        ("rmatmat", np.full(n, np.inf), f"not finite in {np.dtype(dtype)}: check the vectors"),
        ("matmat", np.array(["a"] * M), "real numbers"),
        ("matmat", np.ones(M, dtype=complex), "real numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            getattr(operator, verb)(argument)
    assert operator.passes == 0
    V, _, _ = vectors(K, 1, dtype)
    assert off_by(operator.matmat(V), K @ V, np.abs(K) @ np.abs(V)) < TOLERANCE[dtype]


def test_wrong_weights(operator, K):
    n, M = K.shape
    ones = np.ones((n, 2))
    for weight, message in (
        (np.ones(n - 1), rf"weight has shape \({n - 1},\): it must have one number for each row, {n}"),
        (np.ones((n, 1)), rf"weight has shape \({n}, 1\)"),
        (2.0, r"weight has shape \(\)"),
        (np.full(n, np.nan), "not finite"),
        (lambda at, T: T[:-1], r"weight gave an array of shape \(\d+, 1\) for \d+ rows: it must give \(\d+, 1\)"),
        (lambda at, T: T[:, 0], r"weight gave an array of shape \(\d+,\)"),
        (lambda at, T: T * np.nan, "not finite"),
        (lambda at, T: None, r"weight gave an array of shape \(\)"),
        (Rowwise(lambda T, Y: T, ones[1:]), rf"the weight has shape \({n - 1}, 2\): it must have {n} rows"),
        (Rowwise(lambda T, Y: Y, ones), r"weight gave an array of shape \(\d+, 2\)"),
        (Rowwise(lambda T, Y: Y, ones, portable=True), r"weight gave an array of shape \(\d+, 2\)"),
        (Shifted(ones[1:]), rf"the weight has shape \({n - 1}, 2\): it must have {n} rows"),
        (Shifted(ones), "2 columns are to be added to the 1 of K V"),
        (Shifted(ones, C=np.ones((2, 3))), "3 columns are to be added to the 1 of K V"),
    ):
        with pytest.raises(ValueError, match=message):
            operator.sandwich(np.ones(M), weight)
    with pytest.raises(ValueError, match="1 columns are to be added to the 3 of K V"):
        operator.sandwich(np.ones((M, 3)), Shifted(ones[:, 0]))
    with pytest.raises(ValueError, match=r"C has shape \(3, 1\): it must have one row for each of the 2 columns of Y"):
        Shifted(ones, C=np.ones((3, 1)))
    assert np.isfinite(operator.sandwich(np.ones(M), np.ones(n))).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite(case, dtype, keep, bad):
    X = case.rows(dtype)
    if sp.issparse(X):
        X.data[X.indptr[650]] = bad
    else:
        X[650, 1] = bad
    operator = case.make(X, "200MB" if keep else 0)
    for run in (
        lambda: operator.matmat(np.ones(operator.shape[1])),
        lambda: list(operator.blocks()),
    ):
        with pytest.raises(ValueError, match=r"row 650.* has .*: remove or impute"):
            run()
    assert operator.passes == 0


def test_a_member_that_is_missing():
    class Unfinished(Operator):
        def matmat(self, V):
            return V

    with pytest.raises(TypeError, match="abstract"):
        Unfinished()
