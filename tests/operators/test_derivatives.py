"""Gradients of kernel expansions against finite differences, and against the formula written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon.kernels import (
    ArcCosine,
    CallableKernel,
    Constant,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from gyrfalcon.kernels.stationary import LaplacianSlope, Stationary
from gyrfalcon.operators import gradients, mean_square_gradient
from gyrfalcon.sources import ArrayRows

SCALES = [1.0, 2.0, 0.5, 3.0]
KERNELS = {
    "gaussian": Gaussian(1.3),
    "gaussian per feature": Gaussian(SCALES),
    "laplacian": Laplacian(1.5),
    "laplacian per feature": Laplacian(SCALES),
    "matern 1/2": Matern(1.2, nu=0.5),
    "matern 3/2": Matern(1.2, nu=1.5),
    "matern 5/2": Matern(SCALES, nu=2.5),
    "rational quadratic": RationalQuadratic(1.0, alpha=0.7),
    "rational quadratic of large alpha": RationalQuadratic(SCALES, alpha=1e6),
    "1-norm": Laplacian(2.0, norm=1),
    "1-norm per feature": Laplacian(SCALES, norm=1),
    "times a constant": 2.5 * Matern(1.2),
    "sum": Gaussian(1.0) + 0.3 * Laplacian(SCALES, norm=1) + 1.0,
    "product": Gaussian(SCALES) * Laplacian(2.0) * Laplacian(1.5, norm=1),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
DTYPES = [np.float32, np.float64]


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((300, 4)) + 5.0, rng.standard_normal((40, 4)) + 5.0
    return X, Z, rng.standard_normal((40, 3))


def all_at_once(kernel, X, Z, coef, **options):
    return np.concatenate([gradient for _, gradient in gradients(kernel, X, Z, coef, **options)])


def by_formula(kernel, X, Z, coef):
    """-factor sum_j coef_j psi(x, z_j) (x - z_j), by broadcasting in float64."""
    X, Z = X.astype(np.float64), Z.astype(np.float64)
    steps = X[:, None] - Z[None]
    total = 0.0
    for psi, factor, signs in kernel.slopes(X.shape[1]):
        total = total - np.einsum("nm,nmd,mk,d->ndk", psi(X, Z), np.sign(steps) if signs else steps, coef, factor)
    return total


@every_kernel
def test_finite_differences(kernel, problem):
    X, Z, coef = problem
    h = 1e-5
    # the error of a central difference is h^2 f''' / 6 + eps f / h; near a kink of the 1-norm there is no derivative
    smooth = (np.abs(X[:, None] - Z[None]) > 2 * h).all(axis=(1, 2)) & (kernel(X, Z) < 0.95 * kernel(Z, Z)[0, 0]).all(1)
    found = all_at_once(kernel, X, Z, coef)
    for j in range(X.shape[1]):
        step = h * np.eye(X.shape[1])[j]
        expected = (kernel(X + step, Z) - kernel(X - step, Z)) @ coef / (2 * h)
        assert_allclose(found[smooth, j], expected[smooth], rtol=1e-5, atol=1e-6)
    assert smooth.sum() > 250


@every_kernel
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_formula(kernel, problem, dtype):
    X, Z, coef = (part.astype(dtype) for part in problem)
    size = np.abs(by_formula(kernel, X, Z, np.abs(coef))).max()
    # every term of the sum may lose sqrt(eps / 8) of itself by cancellation in the roughest kernel, others a few eps
    bound = np.sqrt(np.finfo(dtype).eps) if not_smooth(kernel) else 100 * np.finfo(dtype).eps
    found = all_at_once(kernel, X, Z, coef)
    assert found.dtype == dtype
    assert found.shape == (300, 4, 3)
    assert_allclose(found, by_formula(kernel, X, Z, coef), rtol=0, atol=bound * size)


def not_smooth(kernel):
    return any("LaplacianSlope" in repr(slope.psi) for slope in kernel.slopes(4))


@every_kernel
def test_one_output_and_any_number_of_threads(kernel, problem):
    X, Z, coef = problem
    one, many = (all_at_once(kernel, X, Z, coef[:, 0], n_jobs=n_jobs) for n_jobs in (1, 3))
    assert one.shape == (300, 4)
    assert_array_equal(one, many)
    assert_allclose(one, all_at_once(kernel, X, Z, coef)[:, :, 0], rtol=1e-9, atol=1e-12)


def test_many_outputs_take_turns(problem):
    X, Z, _ = problem
    coef = np.random.default_rng(1).standard_normal((40, 500))
    kernel = Gaussian(1.0)
    assert_allclose(all_at_once(kernel, X, Z, coef), by_formula(kernel, X, Z, coef), atol=1e-10)


def test_blocks_of_rows(problem, monkeypatch):
    monkeypatch.setattr("gyrfalcon.operators.derivatives._BLOCK_NUMBERS", 1)
    X, Z, coef = problem
    for kernel in (Gaussian(1.0), Laplacian(1.0, norm=1)):
        blocks = list(gradients(kernel, ArrayRows(X), Z, coef))
        assert [(at.start, at.stop) for at, _ in blocks] == [(0, 96), (96, 192), (192, 288), (288, 300)]
        assert_allclose(np.concatenate([G for _, G in blocks]), by_formula(kernel, X, Z, coef), atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", [Laplacian(1.0), Matern(1.0, nu=0.5), Laplacian(1.0) * Gaussian(2.0)], ids=repr)
def test_rows_at_a_center_leave_it_out(kernel, problem, dtype):
    _, Z, coef = (part.astype(dtype) for part in problem)
    found = all_at_once(kernel, Z, Z, coef)
    for i in range(len(Z)):
        others = np.arange(len(Z)) != i
        expected = by_formula(kernel, Z[i : i + 1], Z[others], coef[others])[0]
        assert_allclose(found[i], expected, atol=40 * np.sqrt(np.finfo(dtype).eps))


def test_signs_of_equal_and_of_nearly_equal_numbers():
    tiny = np.nextafter(np.float32(1.0), np.float32(2.0))
    X = np.array([[1.0, 1e-30], [tiny, 0.0], [1.0, -1e3]], dtype=np.float32)
    Z = np.array([[1.0, 0.0]], dtype=np.float32)
    found = all_at_once(Laplacian([1e30, 1e30], norm=1), X, Z, [1.0])
    assert_array_equal(np.sign(found), -np.sign(X - Z))


@every_kernel
@pytest.mark.parametrize("weighted", [False, True])
def test_mean_squares(kernel, problem, weighted):
    X, Z, coef = problem
    weight = np.random.default_rng(2).uniform(size=300) if weighted else None
    G = by_formula(kernel, X, Z, coef)
    w = np.ones(300) if weight is None else weight
    outer = np.einsum("n,nik,njk->ij", w, G, G) / w.sum() / 3
    full = mean_square_gradient(kernel, X, Z, coef, weight=weight, full=True)
    assert_allclose(full, outer, rtol=1e-6, atol=1e-8)
    assert_allclose(mean_square_gradient(kernel, X, Z, coef, weight=weight), np.diag(outer), rtol=1e-6, atol=1e-8)


def test_a_constant_is_flat(problem):
    X, Z, coef = problem
    assert not mean_square_gradient(Constant(2.0), X, Z, coef).any()


@pytest.mark.parametrize(
    "kernel", [Linear(), Polynomial(), Sigmoid(), ArcCosine(), CallableKernel(np.minimum), Gaussian(1.0) + Linear()]
)
def test_kernels_without_slopes_say_so(kernel, problem):
    X, Z, coef = problem
    with pytest.raises(ValueError, match="has no slopes"):
        next(gradients(kernel, X, Z, coef))


def test_a_kernel_of_your_own_says_what_it_lacks(problem):
    class Cauchy(Stationary):
        def __init__(self, length_scale=1.0):
            self.length_scale = length_scale

        def profile(self, s):
            return 1 / (1 + s)

    X, Z, coef = problem
    with pytest.raises(NotImplementedError, match="Cauchy has no gradients: it does not define derivative"):
        next(gradients(Cauchy(), X, Z, coef))


def test_length_scales_of_data_are_resolved(problem):
    X, Z, coef = problem
    assert_allclose(
        all_at_once("matern", X, Z, coef), by_formula(Matern().resolve(Z), X, Z, coef), rtol=1e-9, atol=1e-12
    )
    with pytest.raises(ValueError, match="has no value yet"):
        Gaussian().slopes(4)


def test_wrong_arguments(problem):
    X, Z, coef = problem
    with pytest.raises(ValueError, match="rows are sparse"):
        next(gradients("gaussian", sp.csr_array(X), Z, coef))
    with pytest.raises(ValueError, match="rows have 4 features and centers 3"):
        next(gradients("gaussian", X, Z[:, :3], coef))
    with pytest.raises(ValueError, match="coef has shape"):
        next(gradients("gaussian", X, Z, coef[:5]))
    for weight in (np.zeros(300), np.ones(5), -np.ones(300)):
        with pytest.raises(ValueError, match="weight has shape"):
            mean_square_gradient("gaussian", X, Z, coef, weight=weight)


def test_the_slope_of_a_laplacian_is_zero_near_a_center():
    slope = LaplacianSlope(1.0)
    eps = np.finfo(np.float32).eps
    Z = np.array([[1.0]], dtype=np.float32)
    near, far = np.float32(1 + 3 * np.sqrt(eps)), np.float32(1 + 5 * np.sqrt(eps))  # sqrt(8 eps 2) = 4 sqrt(eps)
    assert slope(np.array([[near]], dtype=np.float32), Z)[0, 0] == 0
    assert slope(np.array([[far]], dtype=np.float32), Z)[0, 0] > 500
    assert slope(np.array([[float(near)]]), Z.astype(np.float64))[0, 0] > 900
