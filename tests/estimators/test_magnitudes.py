"""Numbers near the ends of what floats can hold: a right answer or a clear error, and never a loop without end."""

from __future__ import annotations

import re
import signal
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import (
    FalkonClassifier,
    FalkonRegressor,
    NystromRegressor,
    NytroRegressor,
    leverage_scores,
)
from gyrfalcon.kernels import Linear
from gyrfalcon.preconditioner import Preconditioner
from gyrfalcon.preconditioner._triangles import growing

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
    "falkon": partial(FalkonRegressor, n_centers=5, random_state=0),
    "krill": partial(FalkonRegressor, n_centers=5, preconditioner="krill", random_state=0),
    "huber": partial(FalkonRegressor, n_centers=5, loss="huber", random_state=0),
    "classifier": partial(FalkonClassifier, n_centers=5, random_state=0),
    "logistic": partial(FalkonClassifier, n_centers=5, loss="logistic", random_state=0),
    "nystrom": partial(NystromRegressor, n_centers=5, random_state=0),
    "nystrom cg": partial(NystromRegressor, n_centers=5, solver="cg", random_state=0),
    "nystrom gd": partial(NystromRegressor, n_centers=5, solver="gd", random_state=0),
    "nytro": partial(NytroRegressor, n_centers=5, random_state=0),
    "nytro cg": partial(NytroRegressor, n_centers=5, solver="cg", random_state=0),
}
# the smallest normal numbers are 1e-38 and 2e-308
SUBNORMAL = {"float32": 1e-20, "float64": 1e-155}


def targets_for(make, y):
    return y > 0 if make.func is FalkonClassifier else y


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
    penalty = {"penalty": 0.0} if "penalty" in make.func._get_param_names() else {}
    expected = make(Linear(), dtype=dtype, **penalty).fit(X, y)
    Z = X * 2.0 ** (sign * exponent)
    model = make(Linear(), dtype=dtype, **penalty).fit(Z, y)
    if make.func is FalkonClassifier:
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
