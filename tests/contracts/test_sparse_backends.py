"""Every backend makes every product of sparse rows with every kernel, in both precisions, as the dense formula says."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gyrfalcon import KernelOperator

from .market import BACKENDS, DTYPES, INSTRUCTION_SETS, KERNELS, NATIVE_KERNELS, TOLERANCE, data, off_by

SPARSE_KERNELS = [name for name in KERNELS if name != "callable"]  # whose function takes arrays alone

every_kernel = pytest.mark.parametrize("name", SPARSE_KERNELS)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.__name__)


def sparse_data(dtype, **sizes):
    """The awkward rows and centers of `data`, mostly zeros, as CSR and as arrays."""
    X, Z = data(dtype=dtype, **sizes)
    for A in (X, Z):
        A[np.abs(A) < 0.7] = 0
    return sp.csr_array(X), sp.csr_array(Z), X, Z


@every_kernel
@every_dtype
@every_backend
@pytest.mark.parametrize(("columns", "keep"), [(None, False), (3, False), (3, True)])
def test_products(name, dtype, backend, columns, keep):
    kernel, oracle = KERNELS[name]
    X, Z, dense_X, dense_Z = sparse_data(dtype, n=200)
    n, M = X.shape[0], Z.shape[0]
    K = oracle(dense_X, dense_Z)
    A = np.abs(K)
    rng = np.random.default_rng(3)
    V = rng.standard_normal(M if columns is None else (M, columns)).astype(dtype)
    U = rng.standard_normal(n if columns is None else (n, columns)).astype(dtype)
    w = rng.random(n).astype(dtype)
    W = w.astype(np.float64) if columns is None else w.astype(np.float64)[:, None]
    V64, U64 = V.astype(np.float64), U.astype(np.float64)
    tolerance = TOLERANCE[dtype]

    operator = KernelOperator(kernel, X, Z, backend=backend, memory_budget="1GB" if keep else 0, n_jobs=2)
    assert operator.dtype == dtype
    assert sp.issparse(operator.centers)
    for _ in range(1 + keep):
        product = operator.matmat(V)
        assert product.dtype == dtype
        assert off_by(product, K @ V64, A @ np.abs(V64)) < tolerance
        product = operator.rmatmat(U)
        assert product.dtype == np.float64
        assert off_by(product, K.T @ U64, A.T @ np.abs(U64)) < tolerance
        size = A.T @ (A @ np.abs(V64))
        assert off_by(operator.sandwich(V), K.T @ (K @ V64), size) < tolerance
        assert off_by(operator.sandwich(V, w), K.T @ (W * (K @ V64)), A.T @ (W * (A @ np.abs(V64)))) < tolerance
        assert off_by(operator.sandwich(V, lambda at, T: 2 * T), 2 * K.T @ (K @ V64), 2 * size) < tolerance


@every_kernel
@every_dtype
@every_backend
def test_gram_of_the_centers(name, dtype, backend):
    kernel, oracle = KERNELS[name]
    _, Z, _, dense_Z = sparse_data(dtype, n_centers=101)
    exact = oracle(dense_Z, dense_Z)
    gram = KernelOperator(kernel, Z[:3], Z, backend=backend).centers_gram()
    np.testing.assert_allclose(gram, exact, rtol=0, atol=TOLERANCE[dtype] * np.abs(exact).max())


@pytest.mark.parametrize("kernel", NATIVE_KERNELS, ids=repr)
@every_dtype
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_entry_on_every_instruction_set(kernel, dtype, isa, monkeypatch):
    monkeypatch.setenv("GYRFALCON_ISA", isa)
    X, Z, dense_X, dense_Z = sparse_data(dtype, n=211, n_centers=37, d=40)
    operator = KernelOperator(kernel, X, Z, backend="native")
    assert operator._tiles.isa == isa
    exact = operator.kernel(dense_X, dense_Z)
    atol = TOLERANCE[dtype] * np.abs(exact).max()
    np.testing.assert_allclose(operator.matmat(np.eye(37)), exact, rtol=0, atol=atol)
    np.testing.assert_allclose(operator._tiles.fill(X), exact, rtol=0, atol=atol)
    alone = operator._tiles.sandwich(X, np.ones((37, 1), dtype=dtype), None)[:, 0]
    np.testing.assert_allclose(alone, exact.T @ exact.sum(axis=1), rtol=0, atol=atol * 37 * 211 * np.abs(exact).max())
