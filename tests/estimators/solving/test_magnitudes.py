"""Numbers near the ends of what floats can hold: a right answer or a clear error, and never a loop without end."""

from __future__ import annotations

import re
import signal
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from plain import plain

from gyrfalcon import (
    DivideAndConquerRegressor,
    EigenProRegressor,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalRegressor,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
    leverage_scores,
)
from gyrfalcon.kernels import Gaussian, Laplacian, Linear, Polynomial
from gyrfalcon.preconditioners import Preconditioner
from gyrfalcon.preconditioners.factors import growing

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])


@pytest.fixture(autouse=True)
def _no_loop_without_end():
    def give_up(*_):
        raise AssertionError("this takes minutes where it should take milliseconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def data(n=60):
    X = np.random.default_rng(0).standard_normal((n, 3))
    return X, X @ [1.0, -2.0, 0.5]


ON_CENTERS = {
    "falkon": partial(plain, FalkonRegressor, n_centers=5, random_state=0),
    "krill": partial(plain, FalkonRegressor, n_centers=5, preconditioner="krill", random_state=0),
    "huber": partial(plain, FalkonRegressor, n_centers=5, loss="huber", random_state=0),
    "classifier": partial(plain, FalkonClassifier, n_centers=5, random_state=0),
    "logistic": partial(plain, FalkonClassifier, n_centers=5, loss="logistic", random_state=0),
    "nystrom": partial(plain, NystromRegressor, n_centers=5, random_state=0),
    "nystrom cg": partial(plain, NystromRegressor, n_centers=5, solver="cg", random_state=0),
    "nystrom gd": partial(plain, NystromRegressor, n_centers=5, solver="gd", max_iter=60, random_state=0),
    "nytro": partial(plain, NytroRegressor, n_centers=5, max_iter=60, random_state=0),
    "nytro cg": partial(plain, NytroRegressor, n_centers=5, solver="cg", random_state=0),
}
# the smallest normal numbers are 1e-38 and 2e-308
SUBNORMAL = {"float32": 1e-20, "float64": 1e-155}


def targets_for(make, y):
    return y > 0 if make.args[0] is FalkonClassifier else y


@DTYPES
@pytest.mark.parametrize("name", ON_CENTERS)
def test_kernels_that_are_too_small_are_refused(name, dtype):
    X, y = data()
    make, factor = ON_CENTERS[name], SUBNORMAL[dtype]
    model = make(Linear(), dtype=dtype)
    with pytest.raises(ValueError, match="rescale the features") as raised:
        model.fit(X * factor, targets_for(make, y))
    about = float(re.search(r"values of the kernel are about (\S+),", str(raised.value))[1])
    assert factor**2 / 10 < about < 100 * factor**2
    assert ('dtype="float64"' in str(raised.value)) == (dtype == "float32")
    model.set_params(scale=True, dtype="float64").fit(X * factor, targets_for(make, y))  # as the error advises


@DTYPES
@pytest.mark.parametrize("name", sorted(ON_CENTERS.keys() - {"nystrom cg", "nystrom gd"}))
@pytest.mark.parametrize("sign", [-1, 1])
def test_kernels_that_are_small_or_large_are_solved_right(name, dtype, sign):
    """Without a penalty the unit of the features does not matter, and a power of two changes no digit of them."""
    X, y = data()
    make = ON_CENTERS[name]
    y = targets_for(make, y)
    exponent = {"float32": 30, "float64": 220}[dtype]
    penalty = {"penalty": 0.0} if "penalty" in make.args[0]._get_param_names() else {}
    expected = make(Linear(), dtype=dtype, **penalty).fit(X, y)
    Z = X * 2.0 ** (sign * exponent)
    model = make(Linear(), dtype=dtype, **penalty).fit(Z, y)
    if make.args[0] is FalkonClassifier:
        assert model.score(Z, y) == expected.score(X, y)
    else:
        assert_allclose(model.predict(Z), expected.predict(X), atol=1e-3 if dtype == "float32" else 1e-7)


@pytest.mark.parametrize("method", ["exact", "pilot", "bless"])
def test_leverage_scores_of_kernels_that_are_too_small(method):
    X, _ = data()
    with pytest.raises(ValueError, match=r"values of Linear\(\) are about 2.8e-310, .* rescale the features"):
        leverage_scores(X * 1e-155, Linear(), 1e-3, method=method, random_state=0)


def test_attempts_at_a_factorisation_come_to_an_end():
    for dtype in map(np.dtype, ("float32", "float64")):
        for start, least in ((0.0, 1e-30), (1e-3, 0.0), (0.0, 1e-45)):
            jitter = start
            with pytest.raises(ValueError, match="choose a positive semidefinite kernel, and rescale"):  # noqa: PT012
                for _ in range(1000):
                    jitter = growing(jitter, least, dtype)
        with pytest.raises(ValueError, match="cannot be factored"):
            growing(0.0, 0.0, dtype)


def test_weights_for_which_the_preconditioner_is_not_finite():
    gram = np.asfortranarray(np.eye(3, dtype=np.float32) * 1e20)
    preconditioner = Preconditioner(gram, 1e-6, n=10)
    with pytest.raises(ValueError, match="not finite in float32: rescale the features"):
        preconditioner.update(1e-6, np.full(3, 1e30))


# ---- every estimator, loss and selector, at every size ---------------------------------------------------------------

OTHERS = {
    "exact": partial(plain, ExactRegressor),
    "exact, pcg": partial(plain, ExactRegressor, method="pcg", random_state=0),
    "exact, least squares": partial(plain, ExactRegressor, method="least_squares"),
    "exact, early stopping": partial(plain, ExactRegressor, method="early_stopping", max_iter=60),
    "hierarchical": partial(plain, HierarchicalRegressor, leaf_size=10, random_state=0),
    "divide and conquer": partial(plain, DivideAndConquerRegressor, n_partitions=2, random_state=0),
    "eigenpro": partial(plain, EigenProRegressor, random_state=0),
    "random features": partial(plain, RandomFeaturesRegressor, n_components=20, random_state=0),
    "random features classifier": partial(plain, RandomFeaturesClassifier, n_components=20, random_state=0),
    **{
        f"centers {name}": partial(plain, FalkonRegressor, centers=name, n_centers=5, random_state=0)
        for name in ("leverage", "bless", "rpcholesky", "kmeans++")
    },
    **{
        f"loss {name}": partial(plain, FalkonRegressor, loss=name, n_centers=5, random_state=0)
        for name in ("quantile", "poisson")
    },
    "sgd": partial(plain, NystromRegressor, solver="sgd", n_centers=5, random_state=0, max_iter=5),
    "early stopping": partial(plain, FalkonRegressor, n_centers=5, early_stopping=True, random_state=0),
}
EVERY = {**ON_CENTERS, **OTHERS}
SIZES = [1e-160, 1e-40, 1e40, 1e100, 1e155]
# a magnitude, and what to do about it
CLEAR = re.compile(
    r"(values of .* are about|is a sum of terms of about|[Xy] holds|gamma=\"scale\" is 1 /|"
    r"gave values that are not finite|is not finite in|"
    r"leaves the range of).*(rescale|scaled|the scale of the rows)"
)


def clear_or_right(make, X, y, kernel, dtype):
    """Fit and predict: finite predictions or a clear error; warnings are errors here."""
    classifies = make.args[0] in (FalkonClassifier, RandomFeaturesClassifier)
    model, message = make(kernel, dtype=dtype), None
    try:
        assert np.isfinite(model.fit(X, y > np.median(y) if classifies else y).predict(X)).all()
    except ValueError as error:
        message = str(error)
    assert message is None or CLEAR.search(message), message


@DTYPES
@pytest.mark.parametrize("name", EVERY)
def test_features_of_any_size(name, dtype):
    X, y = data(40)
    kernels = [Linear(), Gaussian(), Gaussian(1.0)]
    if not name.startswith("random"):  # there are no random features of polynomials
        kernels += [Polynomial(), Polynomial(gamma=1.0)]
    for kernel in kernels:
        for size in SIZES:
            clear_or_right(EVERY[name], X * size, np.abs(y), kernel, dtype)


@DTYPES
@pytest.mark.parametrize("name", sorted(EVERY.keys() - {"classifier", "logistic", "random features classifier"}))
@pytest.mark.filterwarnings("ignore:.*Newton steps were not enough")  # Poisson's loss of counts of 1e40
def test_targets_of_any_size(name, dtype):
    X, y = data(40)
    for size in SIZES:
        clear_or_right(EVERY[name], X, np.abs(y) * size, Gaussian(), dtype)


@pytest.mark.parametrize("size", [2.0**-500, 2.0**500])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_scale_is_worked_out_whatever_the_size_of_the_features(size, weighted, sparse):
    """Squares of these features are neither 0 nor infinity, but nothing is left of their fourth power."""
    X, y = data()
    weight = np.arange(1.0, 61) if weighted else None
    rows = sp.csr_array if sparse else np.asarray
    for kernel in (Gaussian(), Laplacian()):
        model = plain(FalkonRegressor, kernel, n_centers=10, random_state=0)
        expected = model.fit(rows(X), y, sample_weight=weight).kernel_.length_scale
        found = model.fit(rows(X * size), y, sample_weight=weight).kernel_.length_scale
        assert found == pytest.approx(expected * size, rel=1e-12)


@pytest.mark.parametrize("size", [2.0**-530, 2.0**530])
def test_scale_where_squares_leave_the_range(size):
    X, y = data()
    expected = plain(FalkonRegressor, Gaussian(), n_centers=10, random_state=0).fit(X, y)
    model = plain(FalkonRegressor, Gaussian(), n_centers=10, random_state=0).fit(X * size, y)
    assert model.kernel_.length_scale == pytest.approx(expected.kernel_.length_scale * size, rel=1e-12)
    assert_allclose(model.predict(X * size), expected.predict(X), atol=1e-8)
    with pytest.raises(ValueError, match=r'gamma="scale" is 1 / \S+\^2, .*: rescale the features'):
        plain(FalkonRegressor, Polynomial(), n_centers=10).fit(X * size, y)


def test_an_outlier_does_not_make_targets_too_large():
    """Losses are there for outliers, so one of them is no reason to refuse the rest."""
    X, y = data()
    expected = plain(FalkonRegressor, loss="huber", n_centers=20, dtype="float32", random_state=0).fit(X, y)
    y = y.copy()
    y[7] = 1e18
    model = plain(FalkonRegressor, loss="huber", n_centers=20, dtype="float32", random_state=0).fit(X, y)
    others = np.arange(len(y)) != 7
    errors = [np.median(np.abs(m.predict(X) - y)[others]) for m in (model, expected)]
    assert errors[0] < 2 * errors[1] + 0.1


def test_rows_to_predict_for_may_be_too_small():
    X, y = data()
    model = plain(FalkonRegressor, Linear() + 1.0, n_centers=10, dtype="float32", random_state=0).fit(X, y)
    assert_allclose(model.predict(X * 1e-160), model.predict(np.zeros_like(X)))
