"""Kernels as objects: parameters, combinations, values worked out from data, errors, and kernels of one's own."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel, sigmoid_kernel
from sklearn.model_selection import GridSearchCV

from contracts.market import Cauchy
from gyrfalcon import BKB, DPP, FalkonRegressor, KernelOperator, KernelPCA, RandomFeatures, RandomFeaturesRegressor
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
    Product,
    RationalQuadratic,
    Sigmoid,
    Sum,
    as_kernel,
)

X = np.random.default_rng(0).standard_normal((40, 3)) * [1.0, 2.0, 5.0] + 3.0
Z = X[:9] + 0.1


# ---- beside scikit-learn --------------------------------------------------------------------------------------------


def test_are_those_of_scikit_learn():
    np.testing.assert_allclose(Gaussian(2.0)(X, Z), rbf_kernel(X, Z, gamma=1 / 8), rtol=1e-12)
    np.testing.assert_allclose(Polynomial(4, gamma=0.3, coef0=2)(X, Z), polynomial_kernel(X, Z, 4, 0.3, 2), rtol=1e-12)
    np.testing.assert_allclose(Sigmoid(gamma=0.03, coef0=1)(X, Z), sigmoid_kernel(X, Z, 0.03, 1), rtol=1e-12)


def test_laplacian_is_that_of_scikit_learn_in_the_1_norm():
    """And in any with one feature, where there is but one norm."""
    np.testing.assert_allclose(Laplacian(2.0, norm=1)(X, Z), laplacian_kernel(X, Z, 0.5), rtol=1e-12)
    for norm in (1, 2):
        np.testing.assert_allclose(
            Laplacian(2.0, norm=norm)(X[:, :1], Z[:, :1]), laplacian_kernel(X[:, :1], Z[:, :1], 0.5), rtol=1e-12
        )
    assert not np.allclose(Laplacian(2.0)(X, Z), laplacian_kernel(X, Z, 0.5))
    assert Laplacian().norm == 2


def test_known_relations():
    np.testing.assert_array_equal(Matern(2.0, nu=0.5)(X, Z), Laplacian(2.0)(X, Z))
    factors = [Laplacian(2.0)(X[:, j : j + 1], Z[:, j : j + 1]) for j in range(3)]
    np.testing.assert_allclose(Laplacian(2.0, norm=1)(X, Z), np.prod(factors, axis=0), rtol=1e-12)
    np.testing.assert_allclose(RationalQuadratic(2.0, alpha=1e9)(X, Z), Gaussian(2.0)(X, Z), rtol=1e-6)
    np.testing.assert_allclose(Polynomial(1, gamma=1.0, coef0=0)(X, Z), Linear()(X, Z), rtol=1e-12)
    np.testing.assert_allclose(Gaussian([2.0, 2.0, 2.0])(X, Z), Gaussian(2.0)(X, Z), rtol=1e-12)
    ignored = Gaussian([2.0, 2.0, 1e9])(X, Z)
    np.testing.assert_allclose(ignored, Gaussian(2.0)(X[:, :2], Z[:, :2]), rtol=1e-9)


# ---- what is worked out from the data -------------------------------------------------------------------------------


def test_scale_is_worked_out_from_the_centers():
    variance = Z.var(axis=0).sum()
    for kernel in (Gaussian(), Laplacian(), Matern(), RationalQuadratic()):
        assert kernel.resolve(Z).length_scale == pytest.approx(np.sqrt(variance / 2))
        assert kernel.length_scale == "scale"
        assert KernelOperator(kernel, X, Z).kernel.length_scale == pytest.approx(np.sqrt(variance / 2))
    for kernel in (Polynomial(), Sigmoid()):
        assert kernel.resolve(Z).gamma == pytest.approx(1 / variance)
        assert kernel.gamma == "scale"
    half_the_mean_squared_distance = np.square(Z[:, None] - Z[None]).sum(axis=2).mean() / 4
    assert Gaussian().resolve(Z).length_scale ** 2 == pytest.approx(half_the_mean_squared_distance)
    assert Gaussian().resolve(Z.astype(np.float32) + 1e4).length_scale == pytest.approx(np.sqrt(variance / 2), rel=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("offset", [0.0, -3.0, 1e6])
@pytest.mark.parametrize("factor", [1.0, 1e-300, 1e300])
def test_scale_of_the_1_norm_is_half_the_mean_distance(sparse, offset, factor):
    rng = np.random.default_rng(0)
    rows = np.where(rng.random((60, 7)) < 0.4, rng.standard_normal((60, 7)).round(1) + offset, 0.0)
    rows[:, 3] = 0.0
    exact = np.abs(rows[:, None] - rows[None]).sum(axis=2).mean() / 2
    rows = rows * factor
    resolved = Laplacian(norm=1).resolve(sp.csr_array(rows) if sparse else rows)
    assert resolved.length_scale / factor == pytest.approx(exact, rel=1e-12)
    assert resolved.norm == 1


def test_scale_where_nothing_varies():
    assert Gaussian().resolve(np.ones((5, 2))).length_scale == pytest.approx(np.sqrt(0.5))
    for rows in (np.ones((5, 2)), sp.csr_array(np.ones((5, 2))), sp.csr_array((5, 2)), np.ones((1, 2))):
        assert Laplacian(norm=1).resolve(rows).length_scale == 0.5
    assert Polynomial().resolve(np.ones((1, 2))).gamma == 1.0


def test_scale_must_be_worked_out_first():
    with pytest.raises(ValueError, match=r"length_scale='scale' has no value yet: call resolve\(X\) first"):
        Gaussian()(X, Z)
    with pytest.raises(ValueError, match=r"gamma='scale' has no value yet: call resolve\(X\) first"):
        Polynomial()(X, Z)


# ---- combinations ---------------------------------------------------------------------------------------------------


def test_sums_products_and_scalings():
    g, lin = Gaussian(2.0), Linear()
    K, L = g(X, Z), lin(X, Z)
    for kernel, exact in (
        (g + lin, K + L),
        (g * lin, K * L),
        (2.5 * g, 2.5 * K),
        (g * 2.5, 2.5 * K),
        (g + 1, K + 1),
        (1 + g, K + 1),
        (0 * g, 0 * K),
        (np.float32(2) * g, 2 * K),
        (g + 2 * (lin * g + 3), K + 2 * (L * K + 3)),
        (g + (lambda A, B: A @ B.T), K + L),
        ((lambda A, B: A @ B.T) * g, K * L),
        (sum([g, lin, g]), 2 * K + L),
    ):
        np.testing.assert_allclose(kernel(X, Z), exact, rtol=1e-13)
        np.testing.assert_allclose(kernel.resolve(Z)(X, Z), exact, rtol=1e-13)
        for backend in ("native", "reference"):
            product = KernelOperator(kernel, X, Z, backend=backend).matmat(np.eye(9))
            np.testing.assert_allclose(product, exact, rtol=1e-12, atol=1e-13)


def test_scale_in_a_combination_is_worked_out():
    kernel = (Gaussian() + 0.5 * Polynomial()).resolve(Z)
    assert kernel.k1.length_scale == Gaussian().resolve(Z).length_scale
    assert kernel.k2.k2.gamma == Polynomial().resolve(Z).gamma


@pytest.mark.parametrize("other", ["gaussian", None, [1.0], True, 1j])
def test_wrong_operands(other):
    for combine in (lambda: Gaussian() + other, lambda: other * Gaussian() if other != [1.0] else Gaussian() * other):
        with pytest.raises(TypeError, match=r"cannot combine a kernel with .*: give a kernel, a number or a callable"):
            combine()


# ---- scikit-learn objects -------------------------------------------------------------------------------------------


def test_nested_parameters():
    kernel = Gaussian(1.0) + 0.5 * Matern(2.0, nu=2.5)
    assert isinstance(kernel, Sum)
    assert isinstance(kernel.k2, Product)
    assert kernel.get_params()["k2__k2__nu"] == 2.5
    kernel.set_params(k1__length_scale=3.0, k2__k1__value=0.25, k2__k2__nu=0.5)
    exact = Gaussian(3.0)(X, Z) + 0.25 * Laplacian(2.0)(X, Z)
    np.testing.assert_allclose(kernel(X, Z), exact, rtol=1e-13)
    with pytest.raises(ValueError, match="Invalid parameter 'width'"):
        kernel.set_params(k1__width=1.0)


def test_repr_says_what_differs_from_the_defaults():
    assert repr(Gaussian()) == "Gaussian()"
    assert repr(Matern(2.0, nu=2.5)) == "Matern(length_scale=2.0, nu=2.5)"
    assert repr(Gaussian(2.0) + 0.5 * Linear()) == "Gaussian(length_scale=2.0) + 0.5 * Linear()"


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(1.0) + 0.1 * Linear(),
        Linear() + (Gaussian() + 1.0),
        (Linear() + Gaussian()) + 1.0,
        2.0 * (3.0 * (Linear() + 1.0)),
        (2.0 * Gaussian(0.5)) * Linear(),
        Linear() * (Gaussian() * Laplacian(norm=1)),
        Sum(Constant(1.0), Constant(2.0)) * Product(Constant(3.0), Constant(4.0)),
        1.0 + Linear() * Sum(Linear(), Constant(0.5)),
    ],
)
def test_combinations_are_printed_as_they_are_written(kernel):
    def parts(k):
        return (type(k), parts(k.k1), parts(k.k2)) if isinstance(k, Sum | Product) else repr(k)

    again = eval(repr(kernel))
    assert parts(again) == parts(kernel)


def test_names_of_other_libraries():
    assert [as_kernel(name).nu for name in ("matern12", "matern32", "matern52")] == [0.5, 1.5, 2.5]
    assert repr(as_kernel("rbf")) == "Gaussian()"
    model = FalkonRegressor("matern52").set_params(kernel__length_scale=2.0)
    assert repr(model.kernel) == "Matern(length_scale=2.0, nu=2.5)"


@pytest.mark.parametrize("kernel", [Gaussian, Laplacian, Matern, RationalQuadratic])
@pytest.mark.parametrize("name", ["sigma", "lengthscale", "bandwidth"])
def test_a_width_by_another_name_is_told_ours(kernel, name):
    with pytest.raises(TypeError, match=rf"{kernel.__name__} has no parameter '{name}': use length_scale={name}"):
        kernel(**{name: 2.0})


def test_gamma_is_converted():
    with pytest.raises(TypeError, match=r"Gaussian has no parameter 'gamma': use length_scale=1 / sqrt\(2 \* gamma\)"):
        Gaussian(gamma=0.5)
    with pytest.raises(TypeError, match=r"use length_scale=1 / gamma, with norm=1"):
        Laplacian(gamma=0.5)
    rows = np.random.default_rng(0).standard_normal((5, 3))
    np.testing.assert_allclose(Gaussian(1 / np.sqrt(2 * 0.3))(rows, rows), rbf_kernel(rows, gamma=0.3))
    with pytest.raises(TypeError, match="unexpected keyword argument 'width'"):
        Gaussian(width=1.0)


def test_repr_of_a_long_sum():
    """With scikit-learn's, the time doubles for each kernel more: 16 of them take 20 seconds, these would take ages."""
    kernel = sum((float(i) * Gaussian(1.0 + i) for i in range(60)), Linear())
    text = repr(kernel)
    assert len(text) <= 703
    assert text.startswith("Linear() + 0.0 * Gaussian(length_scale=1.0) + 1.0 * ")
    assert text.endswith(" + 59.0 * Gaussian(length_scale=60.0)")
    assert "Gaussian(length_scale=60.0)" in repr(FalkonRegressor(kernel))
    with pytest.raises(ValueError, match="value=-1"):
        (kernel + Constant(-1.0)).resolve(X)


def test_clones_and_pickles_share_nothing():
    scales = np.array([1.0, 2.0, 3.0])
    kernel = Gaussian(scales) + Linear()
    copies = clone(kernel), pickle.loads(pickle.dumps(kernel))
    exact = kernel(X, Z)
    scales[:] = 100.0
    for copy in copies:
        np.testing.assert_array_equal(copy(X, Z), exact)


def test_resolve_leaves_the_original_alone():
    kernel = Gaussian() + Polynomial()
    kernel.resolve(Z)
    assert kernel.get_params()["k1__length_scale"] == "scale"
    assert kernel.get_params()["k2__gamma"] == "scale"


def test_callable_keeps_its_object():
    class Kernelish:
        def __call__(self, A, B):
            return A @ B.T

        def __deepcopy__(self, memo):
            raise RuntimeError("must not be copied")

    function = Kernelish()
    assert as_kernel(function).resolve(Z).function is function
    product = KernelOperator(function, X, Z).matmat(np.ones(9))
    np.testing.assert_allclose(product, (X @ Z.T).sum(axis=1), rtol=1e-12)


def test_grid_search_over_a_kernels_parameter():
    rng = np.random.default_rng(0)
    data = rng.uniform(-3, 3, (300, 1))
    y = np.sin(3 * data[:, 0]) + 0.01 * rng.standard_normal(300)
    search = GridSearchCV(
        FalkonRegressor(kernel=Gaussian(), n_centers=60, penalty=1e-7, random_state=0),
        {"kernel__length_scale": [0.001, 0.5, 100.0]},
        cv=3,
    ).fit(data, y)
    assert search.best_params_ == {"kernel__length_scale": 0.5}
    assert search.best_score_ > 0.99
    assert search.cv_results_["mean_test_score"].min() < 0.5
    assert search.best_estimator_.kernel_.length_scale == 0.5
    nested = GridSearchCV(
        FalkonRegressor(kernel=Gaussian() + 0.1 * Linear(), n_centers=60, random_state=0),
        {"kernel__k1__length_scale": [0.5, 100.0], "kernel__k2__k1__value": [0.1, 1.0]},
        cv=2,
    ).fit(data, y)
    assert nested.best_params_["kernel__k1__length_scale"] == 0.5


# ---- names and errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("gaussian", Gaussian),
        ("rbf", Gaussian),
        ("laplacian", Laplacian),
        ("matern", Matern),
        ("rational_quadratic", RationalQuadratic),
        ("linear", Linear),
        ("polynomial", Polynomial),
        ("poly", Polynomial),
        ("sigmoid", Sigmoid),
        ("arccosine", ArcCosine),
    ],
)
def test_names(name, kernel):
    assert type(as_kernel(name)) is kernel


def test_unknown_names():
    with pytest.raises(
        ValueError,
        match=r"kernel='gausian' is not known: use one of arccosine, gaussian, .*or an object; did you mean 'gaussian'",
    ):
        as_kernel("gausian")
    with pytest.raises(TypeError, match=r"kernel=None must be a name, a gyrfalcon.kernels.Kernel or a callable"):
        as_kernel(None)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Gaussian(0.0), 'length_scale=0.0 must be positive and finite: a number, one for each feature, or "scale"'),
        (Gaussian(-1), "length_scale=-1 must be positive"),
        (Gaussian(np.nan), "length_scale=nan must be positive"),
        (Gaussian(np.inf), "length_scale=inf must be positive"),
        (Gaussian(None), "length_scale=None must be positive"),
        (Gaussian(True), "length_scale=True must be positive"),
        (Gaussian("auto"), "length_scale='auto' must be positive"),
        (Gaussian([1.0, 2.0]), "length_scale has 2 values for 3 features: give one for each"),
        (Gaussian([1.0, 0.0, 1.0]), r"length_scale=\[1.0, 0.0, 1.0\] must be positive"),
        (Gaussian(np.ones((3, 3))), "must be positive and finite: a number, one for each feature, or"),
        (Laplacian(0), "length_scale=0 must be positive"),
        (Laplacian(norm=3), r"norm=3 must be 2 \(euclidean\) or 1 \(sum of absolute differences\)"),
        (Laplacian(norm="1"), "norm='1' must be 2"),
        (Laplacian(norm=True), "norm=True must be 2"),
        (Laplacian(norm=1.0), "norm=1.0 must be 2"),
        (Laplacian(norm=None), "norm=None must be 2"),
        (Laplacian(0.0, norm=1), "length_scale=0.0 must be positive"),
        (Matern(nu=2.0), "nu=2.0 must be 0.5, 1.5 or 2.5"),
        (Matern(nu="1.5"), "nu='1.5' must be"),
        (RationalQuadratic(alpha=0), "alpha=0 must be a finite number greater than 0"),
        (RationalQuadratic(alpha=np.inf), "alpha=inf must be a finite number greater than 0"),
        (Polynomial(degree=0), "degree=0 must be an integer from 1 to 1023"),
        (Polynomial(degree=1024), "degree=1024 must be an integer from 1 to 1023"),
        (Polynomial(degree=2.5), "degree=2.5 must be an integer"),
        (Polynomial(degree=True), "degree=True must be an integer"),
        (Polynomial(gamma=-1.0), "gamma=-1.0 must be a finite number greater than 0"),
        (Polynomial(gamma="auto"), "gamma='auto' must be a finite number greater than 0, or"),
        (Polynomial(coef0=np.nan), "coef0=nan must be a finite number"),
        (Sigmoid(gamma=0.0), "gamma=0.0 must be a finite number greater than 0"),
        (ArcCosine(degree=2), "degree=2 must be 0 or 1"),
        (ArcCosine(degree=True), "degree=True must be 0 or 1"),
        (Constant(-1.0), "value=-1.0 must be a finite number, not negative"),
        (Constant(np.inf), "value=inf must be a finite number"),
        (Gaussian() + Constant(-2.0), "value=-2.0 must be a finite number, not negative"),
        (-1.0 * Gaussian(), "value=-1.0 must be a finite number, not negative"),
    ],
    ids=repr,
)
def test_wrong_parameters(kernel, message):
    for attempt in (lambda: kernel.resolve(X), lambda: KernelOperator(kernel, X, Z)):
        with pytest.raises(ValueError, match=message):
            attempt()


def test_no_parameter_is_checked_before_it_is_used():
    """scikit-learn's rule: `set_params` may put right what a constructor was given."""
    kernel = Gaussian(-1).set_params(length_scale=2.0)
    np.testing.assert_array_equal(kernel.resolve(X)(X, Z), Gaussian(2.0)(X, Z))


def test_wrong_callables():
    with pytest.raises(TypeError, match=r"function=3 must be callable as k\(A, B\)"):
        CallableKernel(3).resolve(X)
    with pytest.raises(ValueError, match=r"shape \(9, 40\) for 40 rows and 9 centers: it must give \(40, 9\)"):
        CallableKernel(lambda A, B: B @ A.T)(X, Z)
    with pytest.raises(ValueError, match="type <U"):
        CallableKernel(lambda A, B: np.full((len(A), len(B)), "x"))(X, Z)


def test_callables_may_give_whole_numbers():
    kernel = CallableKernel(lambda A, B: (A[:, :1] > B[:, 0]).astype(int))
    exact = (X[:, :1] > Z[:, 0]).astype(float)
    np.testing.assert_array_equal(KernelOperator(kernel, X, Z).matmat(np.eye(9)), exact)
    np.testing.assert_array_equal(kernel.diag(X), np.zeros(40))


# ---- kernels of one's own -------------------------------------------------------------------------------------------


class Wave(Kernel):
    """sin(a r) / (a r): parameters, a profile and no more."""

    def __init__(self, frequency=1.0):
        self.frequency = frequency

    def profile(self, s):
        return np.sinc(self.frequency * np.sqrt(s) / np.pi)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_profile_is_enough(backend, dtype):
    kernel = Wave(0.7)
    r = 0.7 * np.linalg.norm(X[:, None] - Z[None], axis=2)
    A, B = X.astype(dtype), Z.astype(dtype)
    tolerance = 1e-6 if dtype == np.float32 else 1e-13
    product = KernelOperator(kernel, A, B, backend=backend).matmat(np.eye(9))
    np.testing.assert_allclose(product, np.sin(r) / r, rtol=0, atol=tolerance * 10)
    assert clone(kernel).frequency == 0.7
    np.testing.assert_array_equal(kernel.diag(X), np.ones(40))
    scaled = KernelOperator(2.0 * kernel + 1.0, A, B, backend=backend).matmat(np.eye(9))
    np.testing.assert_allclose(scaled, 2 * np.sin(r) / r + 1, rtol=0, atol=tolerance * 10)


def test_a_subclass_of_a_named_kernel_is_not_taken_for_it():
    """The native profile is found by the type itself: a subclass may have changed its profile."""

    class Half(Gaussian):
        def profile(self, s):
            return 0.5 * np.exp(-0.5 * s)

    product = KernelOperator(Half(2.0), X, Z, backend="native").matmat(np.eye(9))
    np.testing.assert_allclose(product, 0.5 * Gaussian(2.0)(X, Z), rtol=1e-12)


def test_a_kernel_of_ones_own_can_be_fitted():
    rng = np.random.default_rng(0)
    data = rng.uniform(-3, 3, (400, 2))
    y = np.sin(data).sum(axis=1)
    options = {"penalty": 1e-6, "fit_intercept": False, "scale": False}  # as in the formula below
    model = FalkonRegressor(Cauchy(), n_centers=150, max_iter=200, random_state=0, **options).fit(data, y)
    K, K_MM = Cauchy()(data, model.centers_), Cauchy()(model.centers_, model.centers_)
    exact = K @ np.linalg.solve(K.T @ K + 1e-6 * 400 * K_MM, K.T @ y)
    np.testing.assert_allclose(model.predict(data), exact, rtol=0, atol=1e-7)


def test_a_kernel_without_a_profile():
    class Nothing(Kernel):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing must define profile\(s\)"):
        Nothing()(X, Z)


# ---- parameters and the range of a dtype -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("kernel", "named"),
    [
        (Gaussian(1e-39), "Gaussian: length_scale=1e-39"),
        (Gaussian(1e39), "Gaussian: length_scale=1e"),
        (Gaussian([1.0, 1e-40]), r"Gaussian: length_scale=\[1.0, 1e-40\]"),
        (Laplacian(1e-39), "Laplacian: length_scale"),
        (Laplacian(1e-39, norm=1), "Laplacian: length_scale"),
        (Matern(1e-39, nu=2.5), "Matern: length_scale"),
        (RationalQuadratic(1e-39), "RationalQuadratic: length_scale"),
        (RationalQuadratic(1.0, alpha=1e39), "RationalQuadratic: alpha=1e"),
        (RationalQuadratic(1.0, alpha=1e35), "RationalQuadratic: alpha=1e"),
        (RationalQuadratic(1.0, alpha=1e-39), "RationalQuadratic: alpha=1e-39"),
        (Polynomial(2, gamma=1e39), "Polynomial: gamma=1e"),
        (Polynomial(2, gamma=1e-39), "Polynomial: gamma=1e-39"),
        (Polynomial(2, gamma=1.0, coef0=1e39), "Polynomial: coef0=1e"),
        (Polynomial(2, gamma=1.0, coef0=-1e-39), "Polynomial: coef0=-1e-39"),
        (Sigmoid(gamma=1e39), "Sigmoid: gamma=1e"),
        (Sigmoid(gamma=1.0, coef0=-1e39), "Sigmoid: coef0=-1e"),
        (1e39 * Linear(), "Constant: value=1e|Product: factor=1e"),
        (Linear() + 1e-39, "Constant: value=1e-39"),
        (1e-30 * (1e-30 * Linear()), r"Product: factor=1\S*e-60"),
        (Gaussian(1.0) * Gaussian(1e-39), "Gaussian: length_scale=1e-39"),
        (2.0 * (Linear() + 0.5 * RationalQuadratic(1.0, alpha=1e39)), "RationalQuadratic: alpha"),
    ],
    ids=str,
)
def test_parameters_that_float32_cannot_hold(kernel, named, sparse, backend):
    X = np.random.default_rng(0).standard_normal((10, 2))
    rows = sp.csr_array(X) if sparse else X
    with pytest.raises(ValueError, match=named) as raised:
        KernelOperator(kernel, rows.astype(np.float32), rows[:3].astype(np.float32), backend=backend)
    assert 'leaves the range of float32: use dtype="float64", or another value' in str(raised.value)
    K = KernelOperator(kernel, rows, rows[:3], backend=backend)  # as the error advises
    assert_allclose(K.matmat(np.eye(3)), kernel(X, X[:3]), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize(
    "kernel", [Gaussian(1e-310), RationalQuadratic(1.0, alpha=1e300), 1e-200 * (1e-200 * Linear())], ids=str
)
def test_parameters_that_float64_cannot_hold(kernel):
    with pytest.raises(ValueError, match="leaves the range of float64: use another value") as raised:
        KernelOperator(kernel, np.eye(3), np.eye(3))
    assert "dtype" not in str(raised.value)


@pytest.mark.parametrize(
    ("kernel", "factor"),
    [
        (Gaussian(1e-30), 1e-30),
        (Gaussian(1e30), 1e30),
        (Laplacian(1e-30), 1e-30),
        (Laplacian(1e-30, norm=1), 1e-30),
        (Laplacian(1e30, norm=1), 1e30),
        (Matern(1e30, nu=2.5), 1e30),
        (RationalQuadratic(1.0, alpha=1e30), 1.0),
        (RationalQuadratic(1.0, alpha=1e-30), 1.0),
        (RationalQuadratic(1e-30, alpha=1e20), 1e-30),
        (Polynomial(2, gamma=1e-30), 1e15),
        (Polynomial(2, gamma=1e30), 1e-15),
        (Sigmoid(gamma=1e-30), 1e15),
        (1e-30 * Linear(), 1e15),
        (1e30 * (1e-30 * Linear() + 1e-30), 1.0),
    ],
    ids=str,
)
def test_parameters_that_float32_can_just_hold(kernel, factor):
    X = np.random.default_rng(0).standard_normal((10, 2)).astype(np.float32) * np.float32(factor)
    K = KernelOperator(kernel, X, X[:4]).matmat(np.eye(4))
    assert K.dtype == np.float32
    assert_allclose(K, kernel(X, X[:4]), rtol=1e-4, atol=1e-6)


def test_random_features_of_parameters_that_float32_cannot_hold():
    X = np.random.default_rng(0).standard_normal((20, 2)).astype(np.float32)
    for model in (RandomFeatures(Gaussian(1e-39)), RandomFeaturesRegressor(Gaussian(1e-39))):
        with pytest.raises(ValueError, match='length_scale=1e-39 leaves the range of float32: use dtype="float64"'):
            model.fit(X, X[:, 0])


@pytest.mark.parametrize(
    "estimator",
    [FalkonRegressor(n_centers=20), KernelPCA(n_centers=20), RandomFeatures(), DPP(), BKB(), FalkonRegressor(Matern())],
    ids=repr,
)
def test_parameters_of_a_kernel_given_by_name(estimator):
    twice = clone(estimator).set_params(kernel__length_scale=2.0)
    assert twice.kernel.length_scale == 2.0
    assert type(twice.kernel) is type(as_kernel(estimator.kernel))
    other = clone(estimator).set_params(kernel__length_scale=3.0, kernel="laplacian", random_state=1)
    assert (repr(other.kernel), other.random_state) == ("Laplacian(length_scale=3.0)", 1)
    assert clone(estimator).set_params(kernel="linear").kernel == "linear"
    with pytest.raises(ValueError, match="Invalid parameter 'length' for estimator"):
        clone(estimator).set_params(kernel__length=1.0)


def test_a_grid_search_of_a_kernel_given_by_name():
    X = np.linspace(0, 6, 60)[:, None]
    grid = {"kernel": ["gaussian", "laplacian"], "kernel__length_scale": [0.1, 1.0]}
    search = GridSearchCV(FalkonRegressor(penalty=1e-6, random_state=0), grid, cv=3).fit(X, np.sin(X[:, 0]))
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.kernel.length_scale == search.best_params_["kernel__length_scale"]
