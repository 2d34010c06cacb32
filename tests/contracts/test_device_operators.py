"""Operators on devices keep the contract of operators; PyTorch's device "cpu" runs what any other would run."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import gyrfalcon
from gyrfalcon.kernels import Gaussian
from gyrfalcon.operators import DeviceOperator, Rowwise, make_operator
from gyrfalcon.sources import TensorRows, as_rows

from .market import DTYPES, KERNELS, TOLERANCE, data, off_by
from .test_operators import (  # noqa: F401
    LINEAR,
    Case,
    K,
    dask_rows,
    exact,
    of_dense,
    operator,
    residual,
    sparse_centers,
    sparse_gaussian,
    sparse_rows,
    test_a_sandwich_gives_the_product_within,
    test_a_vector_gives_a_vector,
    test_a_weight_function_sees_each_row_once_and_its_own_product,
    test_blocks_are_the_matrix_in_order,
    test_blocks_left_off_are_no_pass,
    test_filling_is_a_pass_over_zeros,
    test_gram_of_the_centers,
    test_no_rows,
    test_on_other_rows,
    test_passes,
    test_products,
    test_rows_that_are_not_finite,
    test_wrong_vectors,
    test_wrong_weights,
    threads,
    vectors,
)
from .test_sparse_backends import SPARSE_KERNELS

pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("threads", "one_thread")]


def on(device, rows=as_rows):
    return of_dense(
        lambda X, Z, budget: make_operator(Gaussian(1.7), rows(X), Z, memory_budget=budget, device=device),
        DeviceOperator,
    )


FOLDER = tempfile.TemporaryDirectory()
NUMBERS = itertools.count()


def stored_rows(X):
    if len(X) == 0:
        return as_rows(X)  # files without rows are refused
    path = Path(FOLDER.name) / f"{next(NUMBERS)}.npy"
    np.save(path, X)
    return gyrfalcon.open(path).X


def tensor_rows(X):
    return TensorRows(pytest.importorskip("torch").tensor(X))


def on_sparse(device, kernel, matrix):
    return Case(
        lambda X, budget: make_operator(
            kernel, as_rows(X), sparse_centers(X.dtype), memory_budget=budget, device=device
        ),
        sparse_rows,
        lambda keep: DeviceOperator,
        lambda X: matrix(exact(X), exact(sparse_centers(X.dtype))),
        lambda dtype: matrix(*2 * [exact(sparse_centers(dtype))]),
    )


CASES = {
    "one": on("cpu"),
    "three": on(["cpu"] * 3),
    "file": on(["cpu"] * 2, stored_rows),
    "dask": on(["cpu"] * 2, dask_rows),
    "tensor": on(["cpu"] * 2, tensor_rows),
    "sparse": on_sparse(["cpu", "cpu"], Gaussian(3.0), sparse_gaussian),
    "sparse, linear": on_sparse("cpu", LINEAR, lambda A, B: 2 * A @ B.T + 1),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(params=DTYPES, ids=lambda t: t.__name__)
def dtype(request):
    return request.param


@pytest.fixture
def keep():
    return False


# ---- kernels x kinds of rows x devices -------------------------------------------------------------------------------

one_and_three = pytest.mark.parametrize("device", ["cpu", ["cpu"] * 3], ids=str)
# Of each geometry, beside those that are made of others; every kernel is tried on rows in memory
GEOMETRIES = ["gaussian", "gaussian narrow", "laplacian 1-norm", "polynomial", "arc-cosine 1", "product", "callable"]


def in_memory(X, Z):
    return as_rows(X), Z


def in_a_file(X, Z):
    return stored_rows(X), Z


def of_dask(X, Z):
    return dask_rows(X), Z


def mostly_zeros(X, Z):
    """As CSR; the centers have no values in the last feature, so that rows have some where no center has any."""
    for A in (X, Z):
        A[np.abs(A) < 0.7] = 0
    Z[:, -1] = 0
    return as_rows(sp.csr_array(X)), sp.csr_array(Z)


CROSSED = [
    *((name, in_memory) for name in KERNELS),
    *((name, mostly_zeros) for name in SPARSE_KERNELS),
    *((name, rows) for name in GEOMETRIES for rows in (in_a_file, of_dask)),
]


@one_and_three
@pytest.mark.parametrize(("name", "rows"), CROSSED, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_every_kernel(name, rows, device, dtype):
    kernel, formula = KERNELS[name]
    X, Z = data(dtype=dtype)
    given, centers = rows(X, Z)
    matrix = formula(X.astype(np.float64), Z.astype(np.float64))
    there = make_operator(kernel, given, centers, device=device, memory_budget="100MB")
    assert there.dtype == dtype
    V, U, w = vectors(matrix, 2, dtype)
    A, tolerance = np.abs(matrix), TOLERANCE[dtype]
    for _ in range(2):  # the second pass finds dense rows on the devices
        assert off_by(there.matmat(V), matrix @ V, A @ np.abs(V)) < tolerance
        assert off_by(there.rmatmat(U), matrix.T @ U, A.T @ np.abs(U)) < tolerance
        product = matrix.T @ (w[:, None] * (matrix @ V))
        assert off_by(there.sandwich(V, w), product, A.T @ (w[:, None] * (A @ np.abs(V)))) < tolerance


@one_and_three
@pytest.mark.parametrize("rows", [in_memory, mostly_zeros, in_a_file, of_dask], ids=lambda rows: rows.__name__)
def test_the_same_bits_again(rows, device, dtype):
    found = []
    for _ in range(2):
        there = make_operator("gaussian", *rows(*data(dtype=dtype)), device=device, memory_budget="100MB")
        there.block_size = 100
        V, U, w = vectors(np.empty(there.shape), 2, dtype)
        for _ in range(2):
            found.append(
                [there.matmat(V), there.rmatmat(U), there.sandwich(V, w), there.sandwich(V, Rowwise(residual, U, w))]
            )
    for products in zip(*found, strict=True):
        for again in products[1:]:
            np.testing.assert_array_equal(again, products[0])
