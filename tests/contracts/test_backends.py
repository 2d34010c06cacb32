"""Every backend makes every product with every kernel, in both precisions, as the formula says."""

from __future__ import annotations

import numpy as np
import pytest

from gyrfalcon import KernelOperator

from .market import BACKENDS, DTYPES, INSTRUCTION_SETS, KERNELS, NATIVE_KERNELS, TOLERANCE, data, off_by

every_kernel = pytest.mark.parametrize("name", KERNELS)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)


@every_kernel
@every_dtype
@every_backend
@pytest.mark.parametrize(("columns", "keep"), [(None, False), (1, True), (3, False), (3, True)])
def test_products(name, dtype, backend, columns, keep):
    kernel, oracle = KERNELS[name]
    X, Z = data(n=400, dtype=dtype)
    (n, _), M = X.shape, len(Z)
    K = oracle(X, Z)
    A = np.abs(K)
    rng = np.random.default_rng(3)
    V = rng.standard_normal(M if columns is None else (M, columns)).astype(dtype)
    U = rng.standard_normal(n if columns is None else (n, columns)).astype(dtype)
    y = rng.standard_normal((n, columns or 1)).astype(dtype)
    w = rng.random(n).astype(dtype)
    w[rng.random(n) < 0.2] = 0
    W = w.astype(np.float64) if columns is None else w.astype(np.float64)[:, None]
    V64, U64 = V.astype(np.float64), U.astype(np.float64)
    tolerance = TOLERANCE[dtype]

    operator = KernelOperator(kernel, X, Z, backend=backend, memory_budget="1GB" if keep else 0, n_jobs=2)
    assert operator.keeps == keep
    assert operator.shape == (n, M)
    assert operator.dtype == dtype
    for _ in range(1 + keep):  # the first pass makes K and the second, where it is kept, reads it
        product = operator.matmat(V)
        assert product.dtype == dtype
        assert off_by(product, K @ V64, A @ np.abs(V64)) < tolerance
        product = operator.rmatmat(U)
        assert product.dtype == np.float64
        assert off_by(product, K.T @ U64, A.T @ np.abs(U64)) < tolerance
        sandwich = operator.sandwich(V)
        assert sandwich.dtype == np.float64
        assert off_by(sandwich, K.T @ (K @ V64), A.T @ (A @ np.abs(V64))) < tolerance
        assert off_by(operator.sandwich(V, w), K.T @ (W * (K @ V64)), A.T @ (W * (A @ np.abs(V64)))) < tolerance
        residual = operator.sandwich(V, lambda at, T: w[at, None] * (y[at] - T))
        T = (K @ V64).reshape(n, -1)
        size = A.T @ (w[:, None] * (np.abs(y) + (A @ np.abs(V64)).reshape(n, -1)))
        exact = K.T @ (w[:, None] * (y.astype(np.float64) - T))
        assert off_by(residual, exact.reshape(V.shape), size) < tolerance


@every_kernel
@every_dtype
@every_backend
def test_gram_of_the_centers(name, dtype, backend):
    kernel, oracle = KERNELS[name]
    _, Z = data(dtype=dtype, n_centers=101)
    exact = oracle(Z, Z)
    gram = KernelOperator(kernel, Z[:3], Z, backend=backend).centers_gram()
    assert gram.dtype == dtype
    assert gram.flags.f_contiguous
    assert gram.flags.writeable
    np.testing.assert_allclose(gram, exact, rtol=0, atol=TOLERANCE[dtype] * np.abs(exact).max())


@pytest.mark.parametrize("kernel", NATIVE_KERNELS, ids=repr)
@every_dtype
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_entry_on_every_instruction_set(kernel, dtype, isa, monkeypatch):
    monkeypatch.setenv("GYRFALCON_ISA", isa)
    X, Z = data(n=211, n_centers=37, dtype=dtype)
    operator = KernelOperator(kernel, X, Z, backend="native")
    assert operator._tiles.isa == isa
    exact = operator.kernel(X, Z)
    atol = TOLERANCE[dtype] * np.abs(exact).max()
    np.testing.assert_allclose(operator.matmat(np.eye(37)), exact, rtol=0, atol=atol)
    np.testing.assert_allclose(operator._tiles.fill(X), exact, rtol=0, atol=atol)


@pytest.mark.parametrize("kernel", NATIVE_KERNELS, ids=repr)
def test_named_kernels_are_native(kernel):
    """A kernel that quietly fell back to NumPy would still be right, and slow."""
    X, Z = data(n=50, n_centers=5)
    assert type(KernelOperator(kernel, X, Z)._tiles).__name__ == "NativeTiles"
