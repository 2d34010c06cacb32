"""Products with several columns at once: against the filled block in float64, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.market import INSTRUCTION_SETS
from gyrfalcon import KernelOperator, _core
from gyrfalcon.backends import prepare
from gyrfalcon.kernels import Gaussian, Laplacian

REFUSED = (TypeError, ValueError, RuntimeError)
F32 = np.float32

# rows, centers, columns: around groups of rows and of columns, panels, chunks of panels and strips
SHAPES = [
    (1, 1, 2),
    (7, 5, 3),
    (48, 16, 4),
    (13, 17, 7),
    (97, 33, 10),
    (300, 513, 11),
    (50, 1030, 13),
    (26, 2100, 2),
    (30, 65, 145),
]


def off_by(actual, exact, size):
    """Return the largest error in units of the sum of the absolute values of its terms."""
    return np.max(np.abs(actual - exact) / (size + np.finfo(float).tiny))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("kernel", [Gaussian(2.0), Laplacian(3.0, norm=1)], ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_made_and_kept(shape, kernel, isa, dtype, monkeypatch):
    monkeypatch.setenv("GYRFALCON_ISA", isa)
    n, m, k = shape
    rng = np.random.default_rng(n + m + k)
    X, Z, V, U = (rng.standard_normal(s).astype(dtype) for s in [(n, 5), (m, 5), (m, k), (n, k)])
    w = rng.random(n).astype(dtype)
    tiles = prepare(kernel, Z, "native")
    block = tiles.fill(X)
    K, V64, U64 = block.astype(np.float64), V.astype(np.float64), U.astype(np.float64)
    A, W = np.abs(K), w.astype(np.float64)[:, None]
    # K V sums at most 32 panels of 32 centers in dtype, a lane at a time, and K'U at most a few hundred rows
    tolerance = 100 * np.finfo(dtype).eps
    for right in (tiles.matmat(X, V), tiles.right(block, V)):
        assert right.dtype == dtype
        assert off_by(right, K @ V64, A @ np.abs(V64)) < tolerance
    for left in (tiles.rmatmat(X, U), tiles.left(block, U)):
        assert left.dtype == np.float64
        assert off_by(left, K.T @ U64, A.T @ np.abs(U64)) < tolerance
    for weight, by in ((None, 1.0), (w, W)):
        for both in (tiles.sandwich(X, V, weight), tiles.both(block, V, weight)):
            assert both.dtype == np.float64
            assert off_by(both, K.T @ (by * (K @ V64)), A.T @ (by * (A @ np.abs(V64)))) < tolerance


@pytest.mark.parametrize("columns", [0, 256, 257])
def test_any_number_of_columns(columns):
    rng = np.random.default_rng(0)
    X, Z, V = (rng.standard_normal(s).astype(F32) for s in [(200, 4), (40, 4), (40, columns)])
    expected = KernelOperator("gaussian", X, Z, backend="reference").sandwich(V)
    for budget in (0, "1GB"):
        operator = KernelOperator("gaussian", X, Z, backend="native", memory_budget=budget)
        for _ in range(2):
            np.testing.assert_allclose(operator.sandwich(V), expected, rtol=1e-4, atol=1e-2)


def test_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    X, Z, V = (rng.standard_normal(s).astype(F32) for s in [(5000, 4), (300, 4), (300, 10)])
    products = [KernelOperator("gaussian", X, Z, n_jobs=jobs, memory_budget=0).sandwich(V) for jobs in (1, 3)]
    assert (products[0] == products[1]).all()


X = np.random.default_rng(0).standard_normal((7, 3)).astype(F32)
CENTERS = _core.CentersF32(X[:5], np.zeros(3, F32), np.ones(3, F32), _core.Profile.linear, 0.0, 0.0, 0, False, "")
BLOCK = np.ones((7, 5), F32)


def out(rows, columns=2, dtype=F32):
    return np.empty((rows, columns), dtype)


@pytest.mark.parametrize(
    "wrong",
    [out(4), out(6), out(5, 1), out(5, 0), out(5, 2, float), out(5)[:, 0], np.asfortranarray(out(5)), None],
    ids=lambda a: "None" if a is None else f"{a.shape} {a.dtype} {a.strides}",
)
def test_right_factors_that_do_not_fit(wrong):
    for call in (
        lambda: CENTERS.matmat(X, wrong, out(7)),
        lambda: CENTERS.sandwich_columns(X, wrong, None, out(5, 2, float)),
        lambda: _core.dense_matmat("", BLOCK, wrong, out(7)),
        lambda: _core.dense_sandwich("", BLOCK, wrong, None, out(5, 2, float)),
    ):
        with pytest.raises(REFUSED):
            call()


@pytest.mark.parametrize(
    "wrong",
    [out(6), out(8), out(7, 1), out(7, 2, float), out(7)[:, 0], np.asfortranarray(out(7)), None],
    ids=lambda a: "None" if a is None else f"{a.shape} {a.dtype} {a.strides}",
)
def test_left_factors_that_do_not_fit(wrong):
    for call in (
        lambda: CENTERS.rmatmat(X, wrong, out(5, 2, float)),
        lambda: _core.dense_rmatmat("", BLOCK, wrong, out(5, 2, float)),
    ):
        with pytest.raises(REFUSED):
            call()


def test_results_weights_and_blocks_that_do_not_fit():
    V, U, w = np.ones((5, 2), F32), np.ones((7, 2), F32), np.ones(7, F32)
    for wrong in (out(6), out(7, 3), out(7, 2, float), np.asfortranarray(out(7)), None):
        for call in (
            lambda wrong=wrong: CENTERS.matmat(X, V, wrong),
            lambda wrong=wrong: _core.dense_matmat("", BLOCK, V, wrong),
        ):
            with pytest.raises(REFUSED):
                call()
    for wrong in (out(4, 2, float), out(5, 3, float), out(5), np.asfortranarray(out(5, 2, float)), None):
        for call in (
            lambda wrong=wrong: CENTERS.rmatmat(X, U, wrong),
            lambda wrong=wrong: CENTERS.sandwich_columns(X, V, w, wrong),
            lambda wrong=wrong: _core.dense_rmatmat("", BLOCK, U, wrong),
            lambda wrong=wrong: _core.dense_sandwich("", BLOCK, V, w, wrong),
        ):
            with pytest.raises(REFUSED):
                call()
    for wrong in (np.ones(6, F32), np.ones(7), np.ones((7, 1), F32), "w"):
        for call in (
            lambda wrong=wrong: CENTERS.sandwich_columns(X, V, wrong, out(5, 2, float)),
            lambda wrong=wrong: _core.dense_sandwich("", BLOCK, V, wrong, out(5, 2, float)),
        ):
            with pytest.raises(REFUSED):
                call()
    for rows in (X[:, :2].copy(), X.astype(float), None):
        with pytest.raises(REFUSED):
            CENTERS.matmat(rows, V, out(7))
    with pytest.raises(REFUSED):
        _core.dense_matmat("", np.empty((7, 0), F32), np.empty((0, 2), F32), out(7))
