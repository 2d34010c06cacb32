"""Every kernel is its formula, and a well-behaved scikit-learn object."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from gyrfalcon.kernels import ArcCosine, CallableKernel, Constant, Gaussian, Laplacian, Linear, Matern
from gyrfalcon.kernels.composite import Pair

from .market import KERNELS, data

every_kernel = pytest.mark.parametrize("name", KERNELS)


@every_kernel
def test_is_its_formula(name):
    kernel, oracle = KERNELS[name]
    X, Z = data()
    exact = oracle(X, Z)
    np.testing.assert_allclose(kernel.resolve(Z)(X, Z), exact, rtol=1e-12, atol=1e-13 * np.abs(exact).max())


@every_kernel
def test_diagonal_is_that_of_the_matrix(name):
    kernel, oracle = KERNELS[name]
    X, _ = data(n=60)
    exact = np.diag(oracle(X, X))
    np.testing.assert_allclose(kernel.resolve(X).diag(X), exact, rtol=1e-12, atol=1e-14 * np.abs(exact).max())


@every_kernel
def test_a_constant_diagonal_is_that_of_every_row(name):
    kernel = KERNELS[name][0].resolve(data()[1])
    X, _ = data(n=60)
    constant = kernel.constant_diag()
    if constant is None:
        assert np.ptp(kernel.diag(X)) > 0 or "arc-cosine" in name
    else:
        np.testing.assert_allclose(np.diag(KERNELS[name][1](X, X)), constant, rtol=1e-12)


class Nugget(Gaussian):
    """A kernel whose diagonal is not that of its profile."""

    def diag(self, X):
        return np.full(X.shape[0], 2.0)


def test_who_knows_a_constant_diagonal():
    known = [Gaussian(2.0), Laplacian(1.0, norm=1), Constant(3.0), 2.0 * Matern(1.0) + 1.0]
    assert [kernel.constant_diag() for kernel in known] == [1.0, 1.0, 3.0, 3.0]
    unknown = [Linear(), ArcCosine(), Gaussian(1.0) + Linear(), 2.0 * Linear(), CallableKernel(KERNELS["gaussian"][1])]
    unknown += [Nugget(1.0), 2.0 * Nugget(1.0)]
    assert [kernel.constant_diag() for kernel in unknown] == [None] * len(unknown)


@every_kernel
def test_is_symmetric_and_positive(name):
    kernel, _ = KERNELS[name]
    X, _ = data(n=80)
    X = np.abs(X)  # histogram intersection is positive definite for positive features alone
    K = kernel.resolve(X)(X, X)
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-14 * np.abs(K).max())
    if "sigmoid" not in name:
        assert np.linalg.eigvalsh(K)[0] > -1e-12 * np.linalg.eigvalsh(K)[-1]


@every_kernel
def test_clones_pickles_and_resolves_to_itself(name):
    kernel, _ = KERNELS[name]
    X, Z = data(n=30, n_centers=7)
    exact = kernel.resolve(Z)(X, Z)
    np.testing.assert_array_equal(clone(kernel).resolve(Z)(X, Z), exact)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kernel)).resolve(Z)(X, Z), exact)
    once = kernel.resolve(Z)
    np.testing.assert_array_equal(once.resolve(X)(X, Z), exact)  # nothing is left to be worked out from other rows
    assert once is not kernel
    assert (kernel.sign if isinstance(kernel, Pair) else type(kernel).__name__) in repr(kernel)


@every_kernel
def test_parameters_go_round(name):
    kernel, _ = KERNELS[name]
    if isinstance(kernel, CallableKernel):
        assert kernel.get_params() == {"function": kernel.function}
        return
    again = type(kernel)(**kernel.get_params(deep=False))
    for key, value in kernel.get_params().items():
        assert again.get_params()[key] is value
    changed = clone(kernel).set_params(**kernel.get_params())
    X, Z = data(n=30, n_centers=7)
    np.testing.assert_array_equal(changed.resolve(Z)(X, Z), kernel.resolve(Z)(X, Z))
