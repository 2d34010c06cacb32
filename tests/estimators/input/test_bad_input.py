"""Whatever comes in: a clear error or a right answer; never a crash, a silent NaN, half a model or a stray thread."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.exceptions import NotFittedError
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier

from gyrfalcon import (
    AutoClassifier,
    ConformalClassifier,
    ExactClassifier,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    RandomFeaturesClassifier,
)
from gyrfalcon.callbacks import Callback
from gyrfalcon.kernels import Gaussian, Laplacian, Linear

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:predictions are still off"),  # of fits that are cut short on purpose
    pytest.mark.filterwarnings("ignore:rounding in float32"),  # which some ask for where it is not enough
]

BOTH = pytest.mark.parametrize("Estimator", [FalkonRegressor, FalkonClassifier])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def good(n=60, d=3):
    X = np.random.default_rng(0).standard_normal((n, d))
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture(autouse=True)
def _no_stray_threads():
    before = set(threading.enumerate())
    yield
    assert [thread for thread in threading.enumerate() if thread not in before and "gyrfalcon" in thread.name] == []


def refused(estimator, X, y, match, error=ValueError, **fit):
    """The error comes, and leaves the estimator as it was."""
    before = vars(estimator).copy()
    with pytest.raises(error, match=match) as caught:
        estimator.fit(X, y, **fit)
    assert vars(estimator).keys() == before.keys()
    if "kernel_" not in before:
        with pytest.raises(NotFittedError):
            estimator.predict(X)
    return caught.value


# ---- rows ------------------------------------------------------------------------------------------------------------


@BOTH
@DTYPES
@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_not_finite(Estimator, dtype, value, words):
    X, y = good()
    bad = X.astype(dtype)
    bad[-1, 1] = value
    refused(plain(Estimator), bad, y, f"Input X contains {words}")
    model = plain(Estimator, n_centers=10).fit(X.astype(dtype), y)
    with pytest.raises(ValueError, match=f"Input X contains {words}"):
        model.predict(bad)
    refused(plain(Estimator), X, y, f"Input X contains {words}", X_val=bad, y_val=y)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_targets_not_finite(value):
    X, y = good()
    y = y.astype(float)
    y[5] = value
    refused(plain(FalkonRegressor), X, y, "Input y contains")
    refused(plain(FalkonRegressor), X, np.column_stack([y, y]), "Input y contains")
    refused(plain(FalkonClassifier), X, y, "Input y contains")
    refused(plain(FalkonRegressor), X, X[:, 0], "Input y_val contains", X_val=X, y_val=y)


@BOTH
@pytest.mark.parametrize(
    ("X", "match"),
    [
        (np.empty((0, 3)), "0 sample"),
        (np.empty((5, 0)), "0 feature"),
        (np.arange(5.0), "Expected 2D array, got 1D"),
        (np.zeros((5, 2, 2)), "dim 3"),
        (3.0, "Expected 2D array, got scalar"),
        ([], "Expected 2D array|empty"),
        (np.zeros((5, 2), dtype=complex), "Complex data not supported"),
        (np.array([["a", "b"]] * 5), "column 0 holds text such as .a."),
        ([[1.0, 2.0], [3.0]] * 3, "inhomogeneous|sequence"),
    ],
    ids=["no rows", "no features", "1-D", "3-D", "scalar", "empty list", "complex", "strings", "ragged"],
)
def test_rows_of_a_wrong_kind(Estimator, X, match):
    refused(plain(Estimator), X, [0, 1, 0, 1, 1], match)


@BOTH
def test_predicting_rows_of_a_wrong_kind(Estimator):
    X, y = good()
    model = plain(Estimator, n_centers=10).fit(X, y)
    for bad, match in (
        (X[:, :2], "X has 2 features, but .* is expecting 3"),
        (np.hstack([X, X]), "X has 6 features"),
        (X[0], "Expected 2D array"),
        (X[:0], "0 sample"),
    ):
        with pytest.raises(ValueError, match=match):
            model.predict(bad)


@BOTH
def test_lengths_that_disagree(Estimator):
    X, y = good()
    refused(plain(Estimator), X, y[:-1], "inconsistent numbers of samples")
    refused(plain(Estimator), X, y, "inconsistent numbers of samples", X_val=X[:10], y_val=y[:9])


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_targets_of_a_wrong_kind():
    X, y = good()
    names = np.array(["no", "yes"])[y]
    refused(plain(FalkonRegressor), X, names, r"y of type <U3 is not numbers: FalkonClassifier learns labels")
    refused(plain(FalkonRegressor), X, y.astype(str), "not numbers")
    refused(plain(FalkonRegressor), X, names.astype(object), "could not convert string")
    refused(plain(FalkonRegressor), X, np.arange(60).astype("datetime64[s]"), "not numbers")
    refused(plain(FalkonRegressor), X, y.astype(complex), "Complex data not supported")
    refused(plain(FalkonRegressor), X, np.zeros((60, 2, 2)), "dim 3")
    refused(
        plain(FalkonRegressor),
        X,
        scipy.sparse.csr_array(np.column_stack([y, y])),
        "dense|sparse|Sparse",
        error=(TypeError, ValueError),
    )
    refused(plain(FalkonRegressor), X, None, "requires y to be passed")
    refused(plain(FalkonRegressor), X, y, "not numbers", X_val=X, y_val=names)
    refused(
        plain(
            FalkonRegressor,
        ),
        X,
        y,
        r"y_val has shape \(60, 2\) and y has shape \(60,\)",
        X_val=X,
        y_val=np.zeros((60, 2)),
    )


def test_labels_of_a_wrong_kind():
    X, y = good()
    refused(plain(FalkonClassifier), X, X[:, 0], "Unknown label type: continuous")
    refused(plain(FalkonClassifier), X, np.column_stack([y, y]), "should be a 1d array")
    mixed = np.array([1, "a", None] * 20, dtype=object)
    refused(plain(FalkonClassifier), X, mixed, "y has labels of types NoneType, int, str: they must be all")
    refused(plain(FalkonClassifier), X, y, "labels of types", X_val=X, y_val=mixed)
    refused(plain(FalkonClassifier), X, None, "requires y to be passed")


@pytest.mark.parametrize("label", [3, "only", True, -1.0])
def test_one_class(label):
    X, _ = good()
    refused(plain(FalkonClassifier), X, np.full(60, label), "one class, .* at least two are needed")


def test_one_class_among_the_rows_that_count():
    X, y = good()
    refused(
        plain(FalkonClassifier), X, y, "one class, .*0.*, among the rows with positive weight", sample_weight=y == 0
    )


@pytest.mark.parametrize("value", [0.0, 5.0, -1e20])
@DTYPES
def test_constant_targets(value, dtype):
    X, _ = good()
    model = FalkonRegressor(Linear() + 1.0, penalty=0, n_centers=20).fit(X.astype(dtype), np.full(60, value))
    assert_allclose(model.predict(X.astype(dtype)), value, rtol=1e-4 if dtype == np.float32 else 1e-7)
    if value == 0:
        assert (model.dual_coef_ == 0).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_targets_of_any_size(scale):
    X, _ = good()
    y = X[:, 0] / np.abs(X[:, 0]).max()
    expected = plain(FalkonRegressor, Laplacian(1.0), n_centers=30, random_state=0).fit(X, y, X_val=X, y_val=y)
    model = plain(
        FalkonRegressor,
        Laplacian(1.0),
        n_centers=30,
        random_state=0,
    ).fit(X, y * scale, X_val=X, y_val=y * scale)
    assert_allclose(model.predict(X) / scale, expected.predict(X), rtol=1e-6, atol=1e-6)
    error = expected.history_[-1]["validation_error"]
    assert model.history_[-1]["validation_error"] / scale == pytest.approx(error, rel=1e-6)


def test_targets_too_large_for_float32():
    X, _ = good()
    X32, y = X.astype(np.float32), X[:, 0]
    model = plain(FalkonRegressor, Laplacian(1.0), n_centers=30, random_state=0)
    expected = model.fit(X32, y).predict(X32)
    assert_allclose(model.fit(X32, 1e30 * y).predict(X32) / 1e30, expected, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match=r'y holds 2\.\d+e\+60, too large for float32: rescale or use dtype="float64"'):
        model.fit(X32, 1e60 * y)
    assert_allclose(model.set_params(dtype="float64").fit(X32, 1e60 * y).predict(X) / 1e60, expected, atol=1e-3)


# ---- features that are hard to compute with --------------------------------------------------------------------------


@BOTH
@DTYPES
def test_identical_rows(Estimator, dtype):
    X, y = np.full((40, 3), 2.5, dtype=dtype), np.arange(40) % 2
    model = plain(Estimator).fit(X, y)
    assert np.isfinite(model.dual_coef_).all()
    if Estimator is FalkonRegressor:
        assert_allclose(model.predict(X), 0.5, rtol=1e-4)


@BOTH
@DTYPES
def test_duplicate_rows(Estimator, dtype):
    X, y = good(20)
    X = X.astype(dtype)
    tripled = plain(Estimator, Laplacian(1.0), penalty=1e-3, max_iter=100).fit(np.tile(X, (3, 1)), np.tile(y, 3))
    once = plain(Estimator, Laplacian(1.0), penalty=1e-3, max_iter=100).fit(X, y)
    value = "predict" if Estimator is FalkonRegressor else "decision_function"
    assert_allclose(getattr(tripled, value)(X), getattr(once, value)(X), atol=1e-3 if dtype == np.float32 else 1e-7)


@BOTH
@DTYPES
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
def test_constant_features(Estimator, dtype, kernel):
    X, y = good()
    padded = np.hstack([X, np.full((60, 2), 3.0)]).astype(dtype)
    model = plain(Estimator, kernel).fit(padded, y)
    assert np.isfinite(model.dual_coef_).all()
    assert model.score(padded, y) > 0.3


@BOTH
@DTYPES
@pytest.mark.parametrize("offset", [1e6, -1e6])
@pytest.mark.parametrize("kernel", [Gaussian(3.0), Gaussian(20.0), Laplacian(20.0)])
def test_huge_offsets_do_not_matter(Estimator, dtype, offset, kernel):
    """Spread over 16 units around a million, where float32 still has steps of 1/16."""
    X = np.random.default_rng(0).integers(0, 256, size=(200, 3)) / 16.0
    y = (X[:, 0] > X[:, 1]).astype(int)
    here = plain(Estimator, kernel, penalty=1e-4, max_iter=30, random_state=0).fit(X.astype(dtype), y)
    shifted = (X + offset).astype(dtype)
    there = plain(Estimator, kernel, penalty=1e-4, max_iter=30, random_state=0).fit(shifted, y)
    value = "predict" if Estimator is FalkonRegressor else "decision_function"
    tolerance = 2e-2 if dtype == np.float32 else 1e-6
    assert_allclose(getattr(there, value)(shifted), getattr(here, value)(X.astype(dtype)), atol=tolerance)


@BOTH
@DTYPES
@pytest.mark.parametrize("scale", [1e-15, 1e15, 1e30])
def test_scale_of_the_features_does_not_matter(Estimator, dtype, scale):
    X, y = good()
    model = plain(Estimator, "laplacian", penalty=1e-3).fit((X * scale).astype(dtype), y)
    assert np.isfinite(model.dual_coef_).all()
    assert model.score((X * scale).astype(dtype), y) == pytest.approx(
        plain(Estimator, "laplacian", penalty=1e-3).fit(X.astype(dtype), y).score(X.astype(dtype), y), abs=1e-3
    )


@BOTH
def test_features_too_large_for_the_precision_asked_for(Estimator):
    X, y = good()
    refused(plain(Estimator, dtype="float32"), X * 1e39, y, 'too large for float32: rescale or use dtype="float64"')
    model = plain(Estimator, dtype="float32", n_centers=10).fit(X, y)
    with pytest.raises(ValueError, match=r"X holds .* too large for float32"):
        model.predict(X * 1e39)
    refused(plain(Estimator, dtype="float32"), X, y, "X_val holds .* too large", X_val=X * 1e39, y_val=y)


@BOTH
@pytest.mark.parametrize("scale", [1e160, 1e300])
def test_features_too_large_for_any_precision(Estimator, scale):
    X, y = good()
    refused(
        plain(
            Estimator,
            "linear",
        ),
        X * scale,
        y,
        r"a product with Linear\(\) is not finite in float64: check .* the scale",
    )
    expected = plain(Estimator, random_state=0).fit(X, y).predict(X)
    assert_allclose(plain(Estimator, random_state=0).fit(X * scale, y).predict(X * scale), expected, atol=1e-6)


# ---- sizes -----------------------------------------------------------------------------------------------------------


@DTYPES
def test_one_row(dtype):
    model = FalkonRegressor(penalty=0).fit(np.ones((1, 2), dtype=dtype), [3.0])
    assert_allclose(model.predict(np.ones((1, 2), dtype=dtype)), [3.0], rtol=1e-5)
    refused(plain(FalkonClassifier), np.ones((1, 2)), [1], "one class")


@BOTH
def test_two_rows(Estimator):
    model = Estimator(penalty=0).fit([[0.0], [1.0]], [0, 1])
    assert_allclose(model.predict([[0.0], [1.0]]), [0, 1], atol=1e-7)


@BOTH
@pytest.mark.parametrize("n_centers", [1, 2, 59, 60, 61, 10**6, 2**31, 2**63, 10**18, 10**30, np.int64(7)])
def test_any_number_of_centers(Estimator, n_centers):
    X, y = good()
    model = plain(Estimator, "laplacian", n_centers=n_centers, random_state=0).fit(X, y)
    assert len(model.centers_) == min(n_centers, 60)
    assert len(np.unique(model.centers_, axis=0)) == len(model.centers_)
    assert np.isfinite(model.predict(X)).all()
    if n_centers >= 60:
        assert_array_equal(model.centers_, X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fit_that_does_not_fit_its_budget(dtype):
    X, y = good(5000)
    error = refused(
        plain(
            FalkonRegressor,
            n_centers=2000,
            memory_budget="15MB",
            dtype=dtype,
        ),
        X,
        y,
        "2000 centers take",
        error=MemoryError,
    )
    assert "for the factors" in str(error)
    assert "memory_budget='15MB' allows 15 MB" in str(error)
    fits = int(re.search(r"n_centers=(\d+) would fit", str(error))[1])
    assert 500 < fits < 2000
    for M, ok in ((fits, True), (fits + 1, False)):
        model = plain(FalkonRegressor, n_centers=M, memory_budget="15MB", dtype=dtype, max_iter=1)
        if ok:
            model.fit(X, y)
        else:
            refused(model, X, y, f"n_centers={fits} would fit", error=MemoryError)


@BOTH
def test_a_budget_for_nothing(Estimator):
    X, y = good()
    for budget in (1, "1kB", 1e3):
        model = plain(Estimator, random_state=0, memory_budget=budget)
        refused(model, X, y, "no number of centers fits, so raise memory_budget", error=MemoryError)
    expected = plain(Estimator, random_state=0).fit(X, y).predict(X)
    assert_allclose(plain(Estimator, random_state=0, memory_budget=0).fit(X, y).predict(X), expected, atol=1e-6)


# ---- parameters ------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n_centers", [0, -1, -(10**18), 2.0, 10.5, True, "many", np.nan, [3]]),
        ("max_iter", [0, -1, 2.5, True, None, "all"]),
        ("n_iter_no_change", [0, -1, 1.5, None]),
        ("penalty", [-1e-9, -1, np.nan, np.inf, "1e-6", None, True, 1j, [1e-3]]),
        ("tol", [-1e-9, np.nan, np.inf, "small", True]),
        ("validation_fraction", [0, 1, -0.1, 1.5, np.nan, None, "half"]),
        ("dtype", ["float16", "int", int, "f", 3, None, "double precision", complex, object]),
    ],
)
def test_parameters_out_of_range(Estimator, name, values):
    X, y = good()
    for value in values:
        if name == "dtype" and value == "f":
            continue  # NumPy's own name for float32
        error = refused(plain(Estimator, **{name: value}), X, y, f"^{name}=")
        assert f"{name}={value!r} must be" in str(error)


@BOTH
@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"kernel": "gausian"}, ValueError, "kernel='gausian' is not known: use one of .*gaussian"),
        ({"kernel": 3}, TypeError, "kernel=3 must be a name"),
        ({"kernel": Gaussian}, TypeError, "must be a name"),
        ({"kernel": Gaussian(0.0)}, ValueError, "length_scale=0.0 must be positive"),
        ({"kernel": Gaussian(-1.0)}, ValueError, "length_scale=-1.0 must be positive"),
        ({"kernel": Gaussian(np.nan)}, ValueError, "length_scale=nan must be positive"),
        ({"kernel": Gaussian("auto")}, ValueError, "length_scale='auto' must be"),
        ({"kernel": Gaussian([1.0, 2.0])}, ValueError, "length_scale has 2 values for 3 features"),
        ({"kernel": lambda A, B: np.zeros((1, 1))}, ValueError, r"gave an array of shape \(1, 1\)"),
        ({"kernel": lambda A, B: np.full((len(A), len(B)), np.nan)}, ValueError, "not finite"),
        ({"centers": "k-means"}, ValueError, "centers='k-means' is not known"),
        ({"centers": np.zeros((4, 2))}, ValueError, "centers have 2 features, X has 3"),
        ({"centers": np.zeros((0, 3))}, ValueError, "at least one row"),
        ({"centers": np.zeros(3)}, ValueError, "2-D array of numbers"),
        ({"centers": np.full((4, 3), np.nan)}, ValueError, "centers contain NaN"),
        ({"centers": np.full((4, 3), np.inf)}, ValueError, "centers contain NaN or infinity"),
        ({"centers": np.zeros((4, 3), dtype=complex)}, ValueError, "numbers.*complex128"),
        ({"centers": [["a", "b", "c"]]}, ValueError, "2-D array of numbers"),
        ({"centers": 7}, ValueError, "2-D array of numbers"),
        ({"centers": None}, ValueError, "2-D array of numbers"),
        ({"memory_budget": "lots"}, ValueError, "memory_budget='lots' must be"),
        ({"memory_budget": -1}, ValueError, "memory_budget=-1 must be"),
        ({"memory_budget": np.nan}, ValueError, "memory_budget=nan must be"),
        ({"memory_budget": None}, TypeError, "memory_budget=None must be"),
        ({"memory_budget": "-4GB"}, ValueError, "memory_budget='-4GB' must be"),
        ({"n_jobs": 0}, ValueError, "n_jobs=0 has no meaning"),
        ({"n_jobs": 1.5}, TypeError, "n_jobs=1.5 must be an integer"),
        ({"random_state": "seed"}, ValueError, "'seed' cannot be used to seed"),
        ({"random_state": -1}, ValueError, "between 0 and"),
        ({"callbacks": 3}, TypeError, "is not a callback"),
        ({"callbacks": [Callback]}, TypeError, "pass an instance"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_parameters_of_a_wrong_kind(Estimator, params, error, match):
    X, y = good()
    refused(plain(Estimator, **params), X, y, match, error=error)


def test_unknown_parameters():
    with pytest.raises(TypeError, match="sigma"):
        FalkonRegressor(sigma=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'M'"):
        FalkonRegressor().set_params(M=10)


@DTYPES
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian", "linear"])
def test_no_penalty(dtype, kernel):
    X, _ = good()
    y = X @ [1.0, -2.0, 0.5]
    model = plain(FalkonRegressor, kernel, penalty=0.0, n_centers=30, max_iter=50, random_state=0)
    model.fit(X.astype(dtype), y)
    assert model.score(X, y) > (0.999 if kernel == "linear" else 0.9)


@pytest.mark.parametrize("penalty", [1e10, 1e300])
def test_a_huge_penalty_gives_the_mean(penalty):
    X, _ = good()
    assert_allclose(FalkonRegressor(penalty=penalty).fit(X, X[:, 0]).predict(X), X[:, 0].mean(), atol=1e-6)


# ---- weights ---------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (-np.ones(60), "Negative values"),
        (np.r_[np.ones(59), -1e-9], "Negative values"),
        (np.r_[np.ones(59), np.nan], "contains NaN"),
        (np.r_[np.ones(59), np.inf], "contains infinity"),
        (np.zeros(60), "at least one"),
        (np.ones(59), "sample_weight.shape == .59,., expected .60,."),
        (np.ones((60, 2)), "Sample weights must be 1D"),
        (np.array(["a"] * 60), "could not convert string"),
        (-3.0, "Negative values|sample_weight"),
        (0.0, "at least one"),
    ],
    ids=["negative", "one negative", "nan", "inf", "zero", "short", "2-D", "strings", "negative number", "number zero"],
)
def test_bad_weights(Estimator, weight, match):
    X, y = good()
    refused(plain(Estimator), X, y, match, sample_weight=weight)


@BOTH
def test_rows_of_weight_zero_do_not_exist(Estimator):
    X, y = good()
    weight = (np.arange(60) % 3 > 0).astype(float)
    noisy = X.copy()
    noisy[weight == 0] = 1e8
    model = plain(Estimator, "laplacian", random_state=0).fit(noisy, y, weight)
    expected = plain(Estimator, "laplacian", random_state=0).fit(X[weight > 0], y[weight > 0])
    assert_array_equal(model.centers_, expected.centers_)
    assert_allclose(model.dual_coef_, expected.dual_coef_, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("class_weight", "match"),
    [
        ("even", "class_weight"),
        ({0: -1.0, 1: 1.0}, "must be finite, not negative"),
        ({0: np.nan, 1: 1.0}, "must be finite"),
        ({0: np.inf, 1: 1.0}, "must be finite"),
        ({0: 0.0, 1: 0.0}, "not zero for every row"),
        ({7: 1.0, 8: 2.0}, "class_weight|classes"),
        ([1.0, 2.0], "class_weight"),
    ],
)
def test_bad_class_weights(class_weight, match):
    X, y = good()
    refused(plain(FalkonClassifier, class_weight=class_weight), X, y, match)


# ---- validation sets -------------------------------------------------------------------------------------------------


@BOTH
def test_bad_validation_sets(Estimator):
    X, y = good()
    refused(plain(Estimator), X, y, "go together: y_val is missing", X_val=X)
    refused(plain(Estimator), X, y, "go together: X_val is missing", y_val=y)
    refused(plain(Estimator), X, y, "X has 2 features, but .* is expecting 3", X_val=X[:, :2], y_val=y)
    refused(plain(Estimator), X, y, "0 sample", X_val=X[:0], y_val=y[:0])
    refused(plain(Estimator), X, y, None, error=(TypeError, ValueError), X_val=X, y_val=3)


def test_unseen_classes_in_the_validation_set():
    X, y = good()
    refused(
        plain(FalkonClassifier),
        X,
        y,
        r"y_val contains classes that y does not contain: \[5, 9\]",
        X_val=X[:3],
        y_val=[0, 9, 5],
    )
    names = np.array(["a", "b"])[y]
    refused(
        plain(
            FalkonClassifier,
        ),
        X,
        names,
        r"y_val contains classes that y does not contain: \['c'\]",
        X_val=X[:2],
        y_val=["a", "c"],
    )
    refused(
        plain(FalkonClassifier), X, names, r"y_val contains classes that y does not contain: \[0, 1\]", X_val=X, y_val=y
    )
    refused(
        plain(
            FalkonClassifier,
        ),
        X,
        y,
        r"y_val contains classes that y does not contain: \['0', '1'\]",
        X_val=X,
        y_val=y.astype(str),
    )


@BOTH
def test_too_few_rows_to_hold_out(Estimator):
    refused(plain(Estimator, early_stopping=True, validation_fraction=0.99), *good(4), "give X_val and y_val")


# ---- a fit that fails or is stopped ----------------------------------------------------------------------------------


class Witness(Callback):
    def __init__(self, at=None, error=None):
        self.at, self.error, self.events = at, error, []

    def on_fit_start(self, estimator, info):
        self.events.append("start")

    def on_iteration(self, record):
        self.events.append(record["iteration"])
        if record["iteration"] == self.at:
            if self.error is None:
                return True
            raise self.error
        return None

    def on_fit_end(self, estimator):
        self.events.append("end")
        self.fitted = hasattr(estimator, "kernel_")


@BOTH
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, StopIteration, SystemExit])
def test_a_callback_that_raises(Estimator, error):
    X, y = good()
    witness = Witness(at=2, error=error)
    model = plain(Estimator, "laplacian", n_centers=20, callbacks=witness, tol=0.0)
    refused(model, X, y, None, error=error)
    assert witness.events == ["start", 1, 2, "end"]
    assert not witness.fitted


@BOTH
def test_a_failed_refit_leaves_the_last_model(Estimator):
    X, y = good()
    model = plain(Estimator, "laplacian", n_centers=20).fit(X, y)
    before = model.predict(X)
    model.set_params(callbacks=Witness(at=1, error=RuntimeError))
    with pytest.raises(RuntimeError):
        model.fit(X[:, :2], y)
    assert_array_equal(model.predict(X), before)
    assert model.n_features_in_ == 3


@BOTH
def test_a_callback_that_stops(Estimator):
    X, y = good()
    witness, other = Witness(at=3), Witness()
    params = {"kernel": "laplacian", "n_centers": 20, "random_state": 0}
    model = plain(Estimator, **params, callbacks=[witness, other], tol=1e-14).fit(X, y)
    assert witness.events == other.events == ["start", 1, 2, 3, "end"]
    assert model.n_iter_ == len(model.history_) == 3
    assert witness.fitted
    three = plain(Estimator, **params, max_iter=3, tol=0.0).fit(X, y)
    assert_array_equal(model.dual_coef_, three.dual_coef_)


def test_at_the_end_a_callback_can_use_the_model():
    X, y = good()

    class Predicts(Callback):
        def on_fit_end(self, estimator):
            self.score = estimator.score(X, y)

    for Estimator in (FalkonRegressor, FalkonClassifier):
        callback = Predicts()
        model = plain(Estimator, n_centers=20, callbacks=callback).fit(X, y)
        assert callback.score == model.score(X, y)


def test_what_callbacks_add_is_kept():
    X, y = good()
    model = plain(
        FalkonRegressor,
        "laplacian",
        callbacks=lambda record: record.update(twice=2 * record["iteration"]),
    ).fit(X, y)
    assert [record["twice"] for record in model.history_] == [2 * (i + 1) for i in range(model.n_iter_)]


def test_a_kernel_function_that_raises():
    X, y = good()

    def kernel(A, B):
        if len(A) != len(B):
            raise RuntimeError("mine")
        return A @ B.T

    refused(plain(FalkonRegressor, kernel, n_centers=20), X, y, "mine", error=RuntimeError)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.slow
def test_ctrl_c(n_jobs):
    """A real signal in the middle of a fit of minutes: it ends at once, cleanly, and the process goes on."""
    script = textwrap.dedent(
        f"""
        import threading, time
        import numpy as np
        from sklearn.exceptions import NotFittedError
        from gyrfalcon import FalkonRegressor

        X = np.random.default_rng(0).standard_normal((300_000, 10), dtype=np.float32)
        y = X[:, 0]
        ended = []

        class Watch:
            def on_iteration(self, record):
                if record["iteration"] == 1:
                    print("ready", flush=True)
            def on_fit_end(self, estimator):
                ended.append(True)

        model = FalkonRegressor(n_centers=500, max_iter=10**6, tol=0.0, memory_budget=0, n_jobs={n_jobs})
        model.set_params(callbacks=Watch())
        before = threading.active_count()
        try:
            model.fit(X, y)
        except KeyboardInterrupt:
            caught = time.time()
        assert ended == [True]
        # a signal while a thread is being started leaves one that Python lists and never runs, or that is about to end
        running = lambda: [thread for thread in threading.enumerate() if thread.ident is not None]
        deadline = time.time() + 20
        while len(running()) > before and time.time() < deadline:
            time.sleep(0.01)
        assert len(running()) == before, threading.enumerate()
        try:
            model.predict(X)
        except NotFittedError:
            pass
        again = FalkonRegressor(n_centers=50, n_jobs=2).fit(X[:1000], y[:1000])
        assert again.score(X[:1000], y[:1000]) > 0.5
        print(caught, flush=True)
        """
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()

        time.sleep(0.2)
        sent = time.time()
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert float(out) - sent < 5


def test_gaps_are_told_what_fills_them():
    X = np.array([[1.0, np.nan], [2.0, 3.0]])
    with pytest.raises(
        ValueError, match=r"contains NaN, and FalkonRegressor does not.*TableEncoder.*SimpleImputer"
    ) as e:
        FalkonRegressor().fit(X, [1.0, 2.0])
    assert "HistGradientBoosting" not in str(e.value)


@pytest.mark.parametrize(
    "Estimator",
    [
        FalkonClassifier,
        ExactClassifier,
        HierarchicalClassifier,
        RandomFeaturesClassifier,
        ConformalClassifier,
        AutoClassifier,
    ],
)
def test_several_labels_a_row_are_answered_with_what_learns_them(Estimator):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 2)), rng.integers(0, 2, size=(40, 3))
    name = Estimator.__name__
    message = rf"shape \(40, 3\).*MultiOutputClassifier\({name}\(...\)\).*OneVsRestClassifier\({name}\(...\)\)"
    for labels in (y, pd.DataFrame(y), y.tolist()):
        with pytest.raises(ValueError, match=message):
            Estimator().fit(X, labels)


def test_several_labels_a_row_are_learnt_so():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = (X @ rng.standard_normal((2, 3)) > 0).astype(int)
    model = FalkonClassifier(n_centers=10, penalty=1e-3, random_state=0)
    assert MultiOutputClassifier(model).fit(X, y).predict(X).shape == (60, 3)
    assert OneVsRestClassifier(model).fit(X, y).predict(X).shape == (60, 3)
