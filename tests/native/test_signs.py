"""Sums of signed entries, of which gradients of 1-norm kernels consist: against the formula in float64."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.market import INSTRUCTION_SETS
from gyrfalcon import _core
from gyrfalcon.backends import prepare
from gyrfalcon.kernels import Laplacian, Linear

REFUSED = (TypeError, ValueError, RuntimeError)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("backend", [*INSTRUCTION_SETS, "product", "reference"])
@pytest.mark.parametrize(
    "shape", [(0, 3, 2, 1), (1, 1, 1, 1), (4, 7, 3, 2), (5, 16, 2, 1), (9, 37, 4, 3), (3, 2100, 2, 1)]
)
def test_signed_sums(shape, backend, dtype, monkeypatch):
    if backend in INSTRUCTION_SETS:
        monkeypatch.setenv("GYRFALCON_ISA", backend)
    n, m, d, k = shape
    rng = np.random.default_rng(n + m)
    # few different values, so that many differences are 0, and some that are as near as numbers can be
    X, Z = (rng.integers(-2, 3, size).astype(dtype) for size in [(n, d), (m, d)])
    Z[::3] = np.nextafter(Z[::3], dtype(np.inf))
    Z[::5] *= np.finfo(dtype).smallest_subnormal
    K, coef = rng.random((n, m)).astype(dtype), rng.standard_normal((m, k)).astype(dtype)
    kernel = Laplacian(norm=1) * Linear() if backend == "product" else Laplacian(norm=1)
    tiles = prepare(kernel.resolve(Z), Z, "reference" if backend == "reference" else "native")
    given = (K, X, np.ascontiguousarray(Z.T), np.ascontiguousarray(coef.T))
    actual = tiles.signed_sums(*given)
    terms = K[:, None, :, None].astype(float) * coef.astype(float)
    signs = np.sign(X.astype(float)[:, :, None, None] - Z.T.astype(float)[None, :, :, None])
    assert actual.dtype == dtype
    assert actual.shape == (n, d, k)
    size = np.abs(terms).sum(axis=2)
    assert (np.abs(actual - (terms * signs).sum(axis=2)) <= 150 * np.finfo(dtype).eps * size).all()


def test_what_does_not_fit_is_refused():
    def arrays(**changed):
        given = {"block": (7, 5), "rows": (7, 3), "centers": (3, 5), "coef": (2, 5), "out": (7, 3, 2)} | changed
        return [np.ones(shape, np.float32) for shape in given.values()]

    _core.signed_sums("", *arrays())
    for changed in (
        {"block": (6, 5)},
        {"block": (7, 4)},
        {"rows": (7, 2)},
        {"centers": (5, 3)},
        {"coef": (5, 2)},
        {"coef": (3, 5)},
        {"out": (7, 3, 3)},
        {"out": (7, 3)},
    ):
        with pytest.raises(REFUSED):
            _core.signed_sums("", *arrays(**changed))
    for i in range(5):
        wrong = arrays()
        wrong[i] = wrong[i].astype(float)
        with pytest.raises(REFUSED):
            _core.signed_sums("", *wrong)
