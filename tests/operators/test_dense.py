"""The operator's block loop.

Every edge of every shape, the same bits for any number of threads, sums that do not drift, numbers at their extremes,
memory within its budget, and errors that say what to do.
"""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.market import DTYPES, INSTRUCTION_SETS, NATIVE_KERNELS, TOLERANCE, Cauchy, arc_cosine, off_by
from gyrfalcon import FalkonRegressor, KernelOperator
from gyrfalcon.kernels import (
    ArcCosine,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from gyrfalcon.operators import block_rows
from gyrfalcon.operators.features import FeatureOperator

backends = pytest.mark.parametrize("backend", ["native", "reference"])


def check_all_verbs(operator, exact, rng, columns, tolerance):
    """Every product against the dense matrix `exact`."""
    n, M = exact.shape
    size = np.abs(exact)
    V = rng.standard_normal((M, columns)).astype(operator.dtype).astype(np.float64)
    U = rng.standard_normal((n, columns)).astype(operator.dtype).astype(np.float64)
    w = rng.random(n).astype(operator.dtype).astype(np.float64)
    KV, AV = exact @ V, size @ np.abs(V)
    for _ in range(2 if operator.keeps else 1):
        assert off_by(operator.matmat(V), KV, AV) < tolerance
        assert off_by(operator.rmatmat(U), exact.T @ U, size.T @ np.abs(U)) < tolerance
        assert off_by(operator.sandwich(V), exact.T @ KV, size.T @ AV) < tolerance
        assert off_by(operator.sandwich(V, w), exact.T @ (w[:, None] * KV), size.T @ (w[:, None] * AV)) < tolerance
        residual = operator.sandwich(V, lambda at, T: U[at] - T)
        assert off_by(residual, exact.T @ (U - KV), size.T @ (np.abs(U) + AV)) < tolerance
        blocks = list(operator.blocks())
        assert [row for at, _ in blocks for row in range(at.start, at.stop)] == list(range(n))
        assert off_by(np.vstack([K for _, K in blocks]), exact, size) < tolerance


# ---- shapes ---------------------------------------------------------------------------------------------------------

# around the register tile (6 or 12 rows), the strip (12 to 96 rows), the smallest block (96) and several of them
ROWS = st.sampled_from([1, 2, 5, 6, 7, 11, 12, 13, 47, 48, 49, 95, 96, 97, 191, 193, 300])
# around the widths of panels: 4 to 32
CENTERS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 130])
# around a block of features (256, and 384 before a second one is begun)
FEATURES = st.sampled_from([1, 2, 3, 7, 18, 33, 255, 256, 257, 383, 384, 385, 513, 1030])


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    n=ROWS,
    M=CENTERS,
    d=FEATURES,
    columns=st.sampled_from([1, 1, 2, 3, 5]),
    kernel=st.sampled_from(NATIVE_KERNELS),
    dtype=st.sampled_from(DTYPES),
    keep=st.booleans(),
    duplicates=st.booleans(),
    n_jobs=st.sampled_from([1, 2]),
)
def test_any_shape(isa, n, M, d, columns, kernel, dtype, keep, duplicates, n_jobs):
    rng = np.random.default_rng([n, M, d])
    X = rng.standard_normal((n, d)).astype(dtype)
    Z = rng.standard_normal((M, d)).astype(dtype)
    if duplicates:
        X[n // 3 :] = X[: n - n // 3]
        Z[M // 2 :] = Z[: M - M // 2]
        Z[0] = X[0]
    with mock.patch.dict(os.environ, GYRFALCON_ISA=isa):
        operator = KernelOperator(kernel, X, Z, backend="native", memory_budget="1GB" if keep else 0, n_jobs=n_jobs)
    check_all_verbs(operator, operator.kernel(X, Z), rng, columns, TOLERANCE[dtype])


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Cauchy(), Gaussian(1.0) + 2 * Linear()], ids=repr)
@backends
@settings(max_examples=12, deadline=None, derandomize=True)
@given(n=ROWS, M=CENTERS, d=st.sampled_from([1, 2, 18]), columns=st.sampled_from([1, 3]), keep=st.booleans())
def test_any_shape_of_any_kind_of_tile(kernel, backend, n, M, d, columns, keep):
    rng = np.random.default_rng([n, M, d])
    X, Z = rng.standard_normal((n, d)), rng.standard_normal((M, d))
    operator = KernelOperator(kernel, X, Z, backend=backend, memory_budget="1GB" if keep else 0)
    check_all_verbs(operator, kernel(X, Z), rng, columns, 1e-12)


@settings(max_examples=300, deadline=None)
@given(n=st.integers(0, 10**9), M=st.integers(1, 10**7), d=st.integers(1, 10**6))
def test_blocks_are_neither_empty_nor_large(n, M, d):
    size = block_rows(n, M, d)
    assert size % 96 == 0
    assert size >= 96
    assert size == 96 or size * max(M, d) <= 2**23 + 96 * max(M, d)


@backends
def test_vectors_of_any_layout(backend):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((200, 3)), rng.standard_normal((9, 3))
    operator = KernelOperator(Gaussian(1.0), X, Z, backend=backend)
    wide = rng.standard_normal((18, 6))
    V = np.ascontiguousarray(wide[::2, ::2])
    exact = Gaussian(1.0)(X, Z) @ V
    for given_as in (V, wide[::2, ::2], np.asfortranarray(V), V.tolist(), V.astype(">f8")):
        np.testing.assert_allclose(operator.matmat(given_as), exact, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        operator.matmat(wide[::2, 1]), Gaussian(1.0)(X, Z) @ wide[::2, 1], rtol=1e-12, atol=1e-13
    )
    whole = np.arange(9)
    np.testing.assert_allclose(operator.matmat(whole), Gaussian(1.0)(X, Z) @ whole, rtol=1e-12)
    np.testing.assert_array_equal(operator.sandwich(V, list(range(200))), operator.sandwich(V, np.arange(200.0)))


# ---- the same bits --------------------------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("budget", [0, "1GB"])
def test_bits_do_not_depend_on_threads(backend, dtype, columns, budget):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 6)).astype(dtype)  # 32 blocks
    V = rng.standard_normal((77, columns))
    U = rng.standard_normal((3000, columns))
    w = rng.random(3000)
    results = []
    for n_jobs in (1, 2, 3, 7, 2):
        operator = KernelOperator(Gaussian(2.0), X, X[:77], backend=backend, n_jobs=n_jobs, memory_budget=budget)
        once = [
            (
                operator.matmat(V),
                operator.rmatmat(U),
                operator.sandwich(V),
                operator.sandwich(V, w),
                operator.sandwich(V, lambda at, T: U[at] - T),
                operator.centers_gram(),
                np.vstack([K for _, K in operator.blocks()]),
            )
            for _ in range(2)
        ]
        results += once
    for result in results[1:]:
        for first, other in zip(results[0], result, strict=True):
            assert first.tobytes() == other.tobytes()


def test_a_fit_gives_the_same_bits_twice():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4)).astype(np.float32)
    y = np.sin(X).sum(axis=1)
    fits = [
        FalkonRegressor(Gaussian(1.0), n_centers=100, random_state=0, n_jobs=n_jobs, memory_budget=0).fit(X, y)
        for n_jobs in (2, 2, 1, 3)
    ]
    for fit in fits[1:]:
        assert fit.dual_coef_.tobytes() == fits[0].dual_coef_.tobytes()
        assert fit.predict(X).tobytes() == fits[0].predict(X).tobytes()


# ---- sums are safe --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1_000, 1_000_000])
def test_sums_do_not_drift(n):
    """Everything is positive, so that rounding all in one direction, or a sum that has grown too large, would show."""
    rng = np.random.default_rng(0)
    M, kernel = 33, Gaussian(1.5)
    X = rng.random((n, 4), dtype=np.float32)
    Z = X[:M].copy()
    V = rng.random((M, 3), dtype=np.float32) + np.float32(0.5)
    U = rng.random((n, 3), dtype=np.float32) + np.float32(0.5)
    right, left, both, weighted = np.empty((n, 3)), np.zeros((M, 3)), np.zeros((M, 3)), np.zeros((M, 3))
    for start in range(0, n, 50_000):
        at = slice(start, start + 50_000)
        K = kernel(X[at], Z)
        right[at] = K @ V.astype(np.float64)
        left += K.T @ U[at].astype(np.float64)
        both += K.T @ right[at]
        weighted += K.T @ (U[at, :1] * right[at])
    for budget in (0, "2GB"):
        operator = KernelOperator(kernel, X, Z, memory_budget=budget, backend="native")
        for columns in (slice(0, 1), slice(0, 3)):
            for actual, exact in (
                (operator.matmat(V[:, columns]), right),
                (operator.rmatmat(U[:, columns]), left),
                (operator.sandwich(V[:, columns]), both),
                (operator.sandwich(V[:, columns], U[:, 0]), weighted),
                (operator.sandwich(V[:, columns], lambda at, T: T * U[at, :1]), weighted),
            ):
                np.testing.assert_allclose(actual, exact[:, columns], rtol=2e-6)


def test_sums_over_many_centers_do_not_drift():
    rng = np.random.default_rng(0)
    X, Z = rng.random((50, 2), dtype=np.float32), rng.random((40_000, 2), dtype=np.float32)
    V = rng.random(40_000, dtype=np.float32)
    exact = Gaussian(1.0)(X, Z) @ V.astype(np.float64)
    for budget in (0, "1GB"):
        operator = KernelOperator(Gaussian(1.0), X, Z, memory_budget=budget)
        np.testing.assert_allclose(operator.matmat(V), exact, rtol=2e-6)
        np.testing.assert_allclose(operator.matmat(np.stack([V, V], 1))[:, 1], exact, rtol=2e-6)


# ---- numbers at their extremes --------------------------------------------------------------------------------------

STATIONARY = [
    Gaussian(2.0),
    Laplacian(2.0),
    Laplacian(2.0, norm=1),
    Matern(2.0, nu=1.5),
    Matern(2.0, nu=2.5),
    RationalQuadratic(2.0),
]


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@backends
def test_an_offset_changes_nothing_in_float64(kernel, backend):
    rng = np.random.default_rng(0)
    # multiples of 2^-20, which stay what they are beside 10^6
    X = np.round(rng.standard_normal((400, 5)) * 2**20) / 2**20
    V = rng.standard_normal((50, 2))
    near = KernelOperator(kernel, X, X[:50], backend=backend)
    far = KernelOperator(kernel, X + 1e6, X[:50] + 1e6, backend=backend)
    size = np.abs(kernel(X, X[:50])) @ np.abs(V)
    assert off_by(far.matmat(V), kernel(X, X[:50]) @ V, size) < 1e-12
    assert off_by(far.matmat(V), near.matmat(V), size) < 1e-12


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("offset", [100, 1000])
def test_an_offset_changes_nothing_in_float32(kernel, offset):
    rng = np.random.default_rng(0)
    X = (np.round(rng.standard_normal((400, 5)) * 2**10) / 2**10).astype(np.float32)
    V = rng.standard_normal((50, 2)).astype(np.float32)
    far = X + np.float32(offset)
    np.testing.assert_array_equal(far - np.float32(offset), X)
    K = kernel(X, X[:50])
    operator = KernelOperator(kernel, far, far[:50], backend="native")
    assert off_by(operator.matmat(V), K @ V, K @ np.abs(V)) < 2e-6
    assert off_by(operator.sandwich(V), K.T @ (K @ V), K.T @ (K @ np.abs(V))) < 2e-6


@pytest.mark.parametrize(
    "kernel", [Gaussian(1.0), Laplacian(1.0), Laplacian(1.0, norm=1), Matern(1.0, nu=2.5)], ids=repr
)
@pytest.mark.parametrize("width", [10, 100, 1000])
def test_a_domain_many_length_scales_wide(kernel, width):
    """Places on a map: few neighbours each, far from the origin and from most others."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, width, (4000, 2))
    X[2000:] = X[:2000] + 0.5 * rng.standard_normal((2000, 2))
    X = X.astype(np.float32)
    Z = X[:800]
    V = rng.standard_normal((800, 2)).astype(np.float32)
    K = kernel(X, Z)
    operator = KernelOperator(kernel, X, Z, backend="native")
    assert off_by(operator.matmat(V), K @ V, K @ np.abs(V)) < 1e-5
    assert off_by(operator.sandwich(V), K.T @ (K @ V), K.T @ (K @ np.abs(V))) < 1e-5


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
def test_one_center_far_from_the_others(kernel):
    """It must not lose its digits because on average the centers are near."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 3)).astype(np.float32)
    X[0] = 150.0
    rows = X[:1] + 0.3 * rng.standard_normal((20, 3)).astype(np.float32)
    actual = KernelOperator(kernel, rows, X, backend="native").matmat(np.eye(3000, 1))[:, 0]
    np.testing.assert_allclose(actual, kernel(rows, X[:1])[:, 0], rtol=2e-5)


@pytest.mark.parametrize("kernel", [*STATIONARY, ArcCosine(0)], ids=repr)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_coincident_points(kernel, dtype):
    """k(x, x) is 1: exactly, where a kernel has a kink and rounding of small distances would show."""
    X = (np.random.default_rng(0).standard_normal((130, 7)) * 3 + 50).astype(dtype)
    diagonal = np.diag(KernelOperator(kernel, X, X, backend="native").centers_gram())
    if not kernel.smooth:
        np.testing.assert_array_equal(diagonal, 1)
    np.testing.assert_allclose(diagonal, 1, rtol=0, atol=1e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_very_far_is_nearly_zero(kernel, dtype, isa, monkeypatch):
    monkeypatch.setenv("GYRFALCON_ISA", isa)
    Z = np.random.default_rng(0).standard_normal((40, 3)).astype(dtype)
    far = np.array([10.0**e for e in (2, 3, 5, 10, 15, 18, 18.5, 19, 20, 25, 36)], dtype=dtype)
    X = np.outer(far, [1.0, -0.5, 0.25]).astype(dtype)
    K = KernelOperator(kernel, X, Z, backend="native").matmat(np.eye(40))
    assert (K >= 0).all()
    np.testing.assert_allclose(K, kernel(X.astype(np.float64), Z), rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
@backends
def test_arc_cosine_at_every_angle(degree, dtype, backend):
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((21, 4)).astype(dtype)
    Z[5] = 0
    turned = np.zeros((20, 4), dtype=dtype)
    turned[:, 0], turned[:, 1] = np.cos(np.geomspace(1e-7, np.pi, 20)), np.sin(np.geomspace(1e-7, np.pi, 20))
    Z[6] = [1, 0, 0, 0]
    X = np.vstack([Z, -Z, 3 * Z, -1e-3 * Z, 0 * Z[:1], turned, 1e15 * Z, 1e-15 * Z]).astype(dtype)
    K = KernelOperator(ArcCosine(degree), X, Z, backend=backend).matmat(np.eye(21))
    exact = arc_cosine(degree)(X, Z)
    # of each row, since rows have lengths of their own
    size = np.abs(exact).max(axis=1, keepdims=True) + (np.linalg.norm(X, axis=1, keepdims=True) == 0)
    allowed = np.full_like(exact, 1e-5 if dtype == np.float32 else 1e-12)
    if degree == 0:
        # 1 - cos(theta), rounded once, says where theta is to eps / (pi - theta), and no better than sqrt(eps)
        eps = np.finfo(dtype).eps
        allowed += 4 * eps / np.maximum(exact * np.pi, np.sqrt(eps))
    assert np.isfinite(K).all()
    assert (np.abs(K - exact) <= allowed * size).all()


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
@backends
def test_arc_cosine_along_an_axis_is_exact(degree, dtype, backend):
    """With one feature every pair is parallel or antipodal, and sqrt(eps) would be in half of the entries."""
    X = np.random.default_rng(0).standard_normal((200, 1)).astype(dtype)
    K = KernelOperator(ArcCosine(degree), X, X[:30], backend=backend).matmat(np.eye(30))
    same = (X > 0) == (X[:30] > 0).T
    exact = same * (1.0 if degree == 0 else (X.astype(np.float64) * X[:30].T.astype(np.float64)))
    np.testing.assert_allclose(K, exact, rtol=4 * np.finfo(dtype).eps, atol=1e-15 if degree == 1 else 0)


def test_arc_cosine_of_the_smallest_vectors():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((9, 3)).astype(np.float32)
    X = (rng.standard_normal((50, 3)) * 1e-39).astype(np.float32)  # 1 / |x| is more than the largest float
    K = KernelOperator(ArcCosine(0), X, Z, backend="native").matmat(np.eye(9))
    np.testing.assert_allclose(K, ArcCosine(0)(X, Z), atol=1e-5)


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 30.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_rational_quadratic_of_any_alpha(alpha, dtype):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((300, 3)).astype(dtype), rng.standard_normal((30, 3)).astype(dtype)
    kernel = RationalQuadratic(1.0, alpha=alpha)
    K = KernelOperator(kernel, X, Z, backend="native").matmat(np.eye(30))
    np.testing.assert_allclose(K, kernel(X, Z), rtol=0, atol=2e-6 if dtype == np.float32 else 1e-13)
    if alpha >= 1e6:
        np.testing.assert_allclose(kernel(X, Z), Gaussian(1.0)(X, Z), rtol=0, atol=1 / alpha)


@pytest.mark.parametrize("gamma", [1e-8, 1e-4, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_sigmoid_of_any_slope(gamma, dtype):
    """Faint or saturated, every entry is right to its own size."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((300, 1)).astype(dtype), rng.standard_normal((30, 1)).astype(dtype)
    kernel = Sigmoid(gamma=gamma)
    K = KernelOperator(kernel, X, Z, backend="native").matmat(np.eye(30))
    np.testing.assert_allclose(K, kernel(X, Z), rtol=2e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("degree", [1, 2, 3, 7, 20, 63, 255, 1023])
def test_polynomial_of_any_degree(degree):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((300, 3)), rng.standard_normal((30, 3))
    kernel = Polynomial(degree=degree, gamma=0.01, coef0=0.9)
    K = KernelOperator(kernel, X, Z, backend="native").matmat(np.eye(30))
    np.testing.assert_allclose(K, kernel(X, Z), rtol=1e-15 * degree * 20)


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
def test_scales_far_apart_among_features(kernel):
    rng = np.random.default_rng(0)
    units = np.array([1e-6, 1.0, 1e6])
    X = (rng.standard_normal((300, 3)) * units).astype(np.float32)
    Z = X[:40]
    kernel = type(kernel)(**{**kernel.get_params(), "length_scale": 2 * units})
    K = KernelOperator(kernel, X, Z, backend="native").matmat(np.eye(40))
    np.testing.assert_allclose(K, kernel(X, Z), rtol=0, atol=5e-6)


# ---- memory and passes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)
def test_keeps_what_fits_the_budget(dtype):
    X = np.random.default_rng(0).standard_normal((300, 3)).astype(dtype)
    size = 300 * 20 * X.itemsize
    for budget, keep in ((size, True), (size - 1, False), (0, False), (float(size), True), (np.int64(size), True)):
        operator = KernelOperator(Gaussian(1.0), X, X[:20], memory_budget=budget)
        assert operator.keeps is keep
    assert KernelOperator(Gaussian(1.0), X, X[:20], memory_budget="auto").keeps


class Counted:
    """Rows that count how often they are read, and can be told to fail at one block."""

    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.read = 0
        self.fails_at = None

    def blocks(self, size):
        for start in range(0, len(self.X), size):
            if self.fails_at is not None and start >= self.fails_at:
                raise OSError("the disk is gone")
            self.read += 1
            yield self.X[start : start + size]

    def take(self, indices):
        return self.X[indices]


@backends
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_passes_are_counted_and_kept_rows_are_read_once(backend, n_jobs):
    X = np.random.default_rng(0).standard_normal((1000, 3))
    blocks = -(-1000 // 96)
    for budget, read in ((0, [1, 2, 3]), ("1GB", [1, 1, 1])):
        rows = Counted(X)
        operator = KernelOperator(Gaussian(1.0), rows, X[:20], backend=backend, memory_budget=budget, n_jobs=n_jobs)
        assert operator.passes == 0
        operator.centers_gram()
        assert (operator.passes, rows.read) == (0, 0)
        operator.sandwich(np.ones(20))
        assert (operator.passes, rows.read) == (1, read[0] * blocks)
        operator.matmat(np.ones(20))
        assert (operator.passes, rows.read) == (2, read[1] * blocks)
        operator.rmatmat(np.ones((1000, 2)))
        assert (operator.passes, rows.read) == (3, read[2] * blocks)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_pass_that_failed_is_not_taken_for_kept(n_jobs):
    X = np.random.default_rng(0).standard_normal((1000, 3))
    rows = Counted(X)
    operator = KernelOperator(Gaussian(1.0), rows, X[:20], memory_budget="1GB", n_jobs=n_jobs)
    rows.fails_at = 480
    with pytest.raises(OSError, match="disk is gone"):
        operator.matmat(np.ones(20))
    assert operator.passes == 0
    rows.fails_at = None
    np.testing.assert_allclose(operator.matmat(np.ones(20)), Gaussian(1.0)(X, X[:20]).sum(axis=1), rtol=1e-12)
    assert operator.passes == 1


def megabytes_beyond_input(code):
    """Peak resident memory that `code` adds to what was there when it began, in a process of its own."""
    program = """
        import numpy as np
        import gyrfalcon
        from gyrfalcon import KernelOperator
        from gyrfalcon.kernels import CallableKernel, Gaussian, Linear

        def peak():
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024

        X = np.random.default_rng(0).standard_normal((100_000, 5), dtype=np.float32)
        Z = X[:1000].copy()
        v = np.ones(1000, dtype=np.float32)
        KernelOperator(Gaussian(2.0), X[:200], Z[:5], n_jobs=2).matmat(np.ones((5, 2)))  # libraries warm up
        before = peak()
    """
    program = textwrap.dedent(program) + textwrap.dedent(code) + "\nprint(peak() - before)\n"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return float(result.stdout)


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")


@needs_proc
@pytest.mark.slow
def test_memory_is_bounded_where_k_is_not_kept():
    """K would take 400 MB."""
    assert (
        megabytes_beyond_input("""
        operator = KernelOperator(Gaussian(2.0), X, Z, n_jobs=2, memory_budget=0)
        operator.sandwich(v)
        operator.sandwich(np.stack([v] * 3, 1), np.ones(len(X)))
        operator.sandwich(v, lambda at, T: 1 - T)
        operator.rmatmat(np.ones(len(X), dtype=np.float32))
        operator.matmat(v)
        KernelOperator(Gaussian(2.0) + 0.5 * Linear(), X, Z, n_jobs=2, memory_budget=0).sandwich(v)
        KernelOperator(CallableKernel(lambda A, B: A @ B.T), X, Z, n_jobs=2, memory_budget=0).sandwich(v)
    """)
        < 100
    )


@needs_proc
@pytest.mark.slow
def test_memory_is_bounded_where_k_is_kept():
    """Filling a kept matrix of 160 MB takes 160 MB and little more, where NumPy makes its tiles too."""
    assert (
        megabytes_beyond_input("""
        KernelOperator(Gaussian(2.0), X, Z[:400], n_jobs=2, memory_budget="1GB", backend="reference").sandwich(v[:400])
    """)
        < 160 + 60
    )


# ---- errors ---------------------------------------------------------------------------------------------------------


X3 = np.random.default_rng(0).standard_normal((20, 3))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("gauss", X3, X3), {}, ValueError, "kernel='gauss' is not known: use one of .*gaussian"),
        ((3, X3, X3), {}, TypeError, "kernel=3 must be a name"),
        ((Gaussian, X3, X3), {}, TypeError, "must be a name, a gyrfalcon.kernels.Kernel or a callable"),
        (("gaussian", X3, X3), {"backend": "cuda"}, ValueError, "backend='cuda' is not known: use one of auto, native"),
        (("gaussian", X3, X3), {"n_jobs": 0}, ValueError, "n_jobs=0 has no meaning"),
        (("gaussian", X3, X3), {"n_jobs": 1.5}, TypeError, "n_jobs=1.5 must be an integer or None"),
        (("gaussian", X3, X3), {"memory_budget": -1}, ValueError, "memory_budget=-1 must be .* not negative"),
        (("gaussian", X3, X3), {"memory_budget": "lots"}, ValueError, "memory_budget='lots' must be \"auto\""),
        (("gaussian", X3, X3), {"memory_budget": None}, TypeError, "memory_budget=None must be"),
        (("gaussian", X3, X3[:, :2]), {}, ValueError, "rows have 3 features and centers 2"),
        (("gaussian", X3, X3[:0]), {}, ValueError, r"at least one row, not of shape \(0, 3\)"),
        (("gaussian", X3, X3[0]), {}, ValueError, r"centers must be a 2-D array .* not of shape \(3,\)"),
        (("gaussian", X3[:, :0], X3[:, :0]), {}, ValueError, "have no features: at least one"),
        (("gaussian", X3, X3 * np.nan), {}, ValueError, "centers contain NaN or infinity, and so does X"),
        (("gaussian", X3, X3 + np.inf), {}, ValueError, "centers contain NaN or infinity"),
        (("gaussian", X3[0], X3), {}, ValueError, r"rows must be a 2-D array, not one of shape \(3,\)"),
        (("gaussian", X3.astype(str), X3), {}, ValueError, "rows of type <U.* are not numbers: convert them"),
        (("gaussian", X3.astype(complex), X3), {}, ValueError, "rows of type complex128 are not numbers"),
    ],
)
def test_wrong_arguments(arguments, options, error, message):
    with pytest.raises(error, match=message):
        KernelOperator(*arguments, **options)


@backends
@pytest.mark.parametrize("budget", [0, "1GB"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "kernel", ["gaussian", "laplacian", Laplacian(norm=1), "rational_quadratic", "linear", "arccosine"]
)
def test_rows_that_are_not_finite(backend, budget, bad, kernel):
    X = np.random.default_rng(0).standard_normal((300, 3))
    Z = X[:10].copy()
    X[200, 1] = bad
    operator = KernelOperator(kernel, X, Z, backend=backend, memory_budget=budget)
    for run in (lambda: operator.matmat(np.ones(10)), lambda: operator.sandwich(np.ones((10, 2)))):
        with pytest.raises(ValueError, match=f"row 200 has {bad} in feature 1: remove or impute"):
            run()


@backends
@pytest.mark.parametrize("columns", [1, 2])
def test_kernels_that_overflow(backend, columns):
    X = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32) * 100
    operator = KernelOperator(Polynomial(degree=12, gamma=1.0), X, X[:10], backend=backend)
    with np.errstate(over="ignore"):
        for run in (lambda: operator.matmat(np.ones((10, columns))), operator.centers_gram):
            with pytest.raises(ValueError, match=r"Polynomial\(degree=12, gamma=1.0\).* not finite"):
                run()


class Lying(Counted):
    """A source whose blocks are not what its shape says."""

    def __init__(self, X, shape):
        super().__init__(X)
        self.shape = shape


@backends
@pytest.mark.parametrize("budget", [0, "1GB"])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((301, 3), "the source gave 300 rows where its shape says 301: did it change"),
        ((299, 3), r"a block of shape \(12, 3\) at row 288, where its shape says \(299, 3\)"),
        ((100, 3), r"a block of shape \(96, 3\) at row 96, where its shape says \(100, 3\)"),
        ((300, 2), r"a block of shape \(96, 3\) at row 0, where its shape says \(300, 2\)"),
    ],
)
def test_source_that_is_not_what_it_says(backend, budget, shape, message):
    X = np.random.default_rng(0).standard_normal((300, 3))
    operator = KernelOperator(Gaussian(1.0), Lying(X, shape), X[:10, : shape[1]], backend=backend, memory_budget=budget)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            operator.sandwich(np.ones(10))


def test_source_of_a_type_that_is_no_float():
    with pytest.raises(ValueError, match="rows of type int64 cannot be used: a source must give float32 or float64"):
        KernelOperator("gaussian", Counted(np.ones((5, 2), dtype=np.int64)), np.ones((2, 2)))


def test_source_whose_blocks_are_not_contiguous():
    X = np.asfortranarray(np.random.default_rng(0).standard_normal((300, 3)))
    actual = KernelOperator(Gaussian(1.0), Counted(X), X[:10], backend="native").matmat(np.ones(10))
    np.testing.assert_allclose(actual, Gaussian(1.0)(X, X[:10]).sum(axis=1), rtol=1e-12)


@backends
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("budget", [0, "1GB"])
def test_callable_kernels_that_go_wrong(backend, n_jobs, budget):
    X = np.random.default_rng(0).standard_normal((300, 3))

    def product(kernel):
        operator = KernelOperator(kernel, X, X[:10], backend=backend, n_jobs=n_jobs, memory_budget=budget)
        return operator.sandwich(np.ones(10))

    def broken(A, B):
        raise ZeroDivisionError("my kernel")

    with pytest.raises(ZeroDivisionError, match="my kernel"):
        product(broken)
    with pytest.raises(ValueError, match=r"gave an array of shape \(10, 96\) for 96 rows and 10 centers"):
        product(lambda A, B: B @ A.T)
    with pytest.raises(ValueError, match="not finite"):
        product(lambda A, B: np.full((len(A), len(B)), np.nan))
    with pytest.raises(ValueError, match="complex128: it must give real numbers"):
        product(lambda A, B: A @ B.T + 1j)
    K = X @ X[:10].T
    np.testing.assert_allclose(product(lambda A, B: A @ B.T), K.T @ (K @ np.ones(10)), rtol=1e-12)


def test_unknown_instruction_set(monkeypatch):
    monkeypatch.setenv("GYRFALCON_ISA", "avx1024")
    with pytest.raises(ValueError, match=r"GYRFALCON_ISA='avx1024' is not available here: use one of .*baseline"):
        KernelOperator("gaussian", X3, X3, backend="native")


def test_backend_from_the_environment(monkeypatch):
    monkeypatch.setenv("GYRFALCON_BACKEND", "reference")
    assert type(KernelOperator("gaussian", X3, X3)._tiles).__name__ == "KernelTiles"
    assert type(KernelOperator("gaussian", X3, X3, backend="native")._tiles).__name__ == "NativeTiles"


# ---- without the extension ------------------------------------------------------------------------------------------


def test_numpy_serves_where_the_extension_cannot_be_imported():
    program = textwrap.dedent("""
        import sys, warnings

        class Blocked:
            def find_spec(self, name, path=None, target=None):
                if name == "gyrfalcon._core":
                    raise ImportError("no such luck")

        sys.meta_path.insert(0, Blocked())
        import numpy as np
        from gyrfalcon import FalkonRegressor, KernelOperator, show_versions
        from gyrfalcon.kernels import Gaussian

        X = np.random.default_rng(0).standard_normal((500, 3))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(3):
                product = KernelOperator(Gaussian(1.0), X, X[:20]).sandwich(np.ones(20))
            model = FalkonRegressor(Gaussian(1.0), n_centers=50, random_state=0).fit(X, X[:, 0])
        assert [w.category for w in seen] == [RuntimeWarning], [str(w.message) for w in seen]
        assert "no such luck" in str(seen[0].message) and "Reinstall gyrfalcon" in str(seen[0].message)
        assert seen[0].filename == "<string>", seen[0].filename  # it points at the user's line
        K = Gaussian(1.0)(X, X[:20])
        np.testing.assert_allclose(product, K.T @ (K @ np.ones(20)), rtol=1e-12)
        assert model.score(X, X[:, 0]) > 0.9
        try:
            KernelOperator(Gaussian(1.0), X, X[:20], backend="native")
        except ImportError:
            pass
        else:
            raise AssertionError("native was asked for by name")
        show_versions()
    """)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "NumPy is used" in result.stdout


# ---- the class ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda K: pickle.loads(pickle.dumps(K))])
@pytest.mark.parametrize("kind", [KernelOperator, FeatureOperator])
def test_copies(kind, copied):
    X = np.random.default_rng(0).standard_normal((50, 2))
    K = kind("gaussian", X, X[:5], backend="reference")
    again = copied(K)
    assert type(again) is kind
    np.testing.assert_array_equal(again.matmat(np.ones(5)), K.matmat(np.ones(5)))


@pytest.mark.parametrize("kind", [KernelOperator, FeatureOperator])
def test_the_signature_is_that_of_the_constructor(kind):
    names = list(inspect.signature(kind).parameters)
    assert names == list(inspect.signature(kind.__init__).parameters)[1:]
    section = inspect.cleandoc(KernelOperator.__doc__).split("----------\n")[1].split("\n\n")[0]
    assert names == [line.split(" : ")[0] for line in section.splitlines() if not line.startswith(" ")]
