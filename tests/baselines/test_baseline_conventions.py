"""What every estimator of `gyrfalcon.baselines` must do; those listed there from elsewhere have tests of their own."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import gyrfalcon
from gyrfalcon import baselines
from gyrfalcon.sources import ArrayRows

OWN = [cls for name in baselines.__all__ if (cls := getattr(baselines, name)).__module__.startswith(baselines.__name__)]
# Parameters with which a fit of few rows is quick, of the estimators that have them
QUICK = {"n_components": 20, "n_centers": 20, "n_partitions": 3, "max_iter": 3, "random_state": 0}
WEIGHTS = "check_sample_weight_equivalence_on_dense_data"
EXPECTED_TO_FAIL: dict[str, dict[str, str]] = {
    "AdmmRegressor": {
        WEIGHTS: "twenty iterations are not enough, and two rows approach the solution otherwise than one"
    },
    "DoublyStochasticRegressor": {WEIGHTS: "a repeated row is in several mini-batches"},
    "FeatureSelectionClassifier": {WEIGHTS: "a repeated row is drawn in several rounds"},
    "FeatureSelectionRegressor": {WEIGHTS: "a repeated row is drawn in several rounds"},
}

each = pytest.mark.parametrize("cls", OWN)
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@parametrize_with_checks(  # with few features, since factors of a thousand of them take most of the time
    [cls(n_components=100) if "n_components" in inspect.signature(cls).parameters else cls() for cls in OWN],
    expected_failed_checks=lambda model: EXPECTED_TO_FAIL.get(type(model).__name__, {}),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def quick(cls):
    return cls(**{name: value for name, value in QUICK.items() if name in inspect.signature(cls).parameters})


def data(cls, n=80):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    return X, np.where(y > 0.5, "up", np.where(y < -0.5, "down", "level")) if is_classifier(cls()) else y


def values(model, X):
    return model.decision_function(X) if is_classifier(model) else model.predict(X)


@quiet
@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_model_files(cls, dtype, tmp_path):
    X, y = data(cls)
    model = quick(cls).fit(X.astype(dtype), y)
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert type(loaded) is cls
    assert_array_equal(values(loaded, X.astype(dtype)), values(model, X.astype(dtype)))
    assert_array_equal(loaded.predict(X.astype(dtype)), model.predict(X.astype(dtype)))


@quiet
@each
def test_float32_is_close_to_float64(cls):
    X, y = data(cls)
    wide = values(quick(cls).fit(X, y), X)
    narrow = values(quick(cls).set_params(dtype="float32").fit(X.astype(np.float32), y), X.astype(np.float32))
    assert narrow.dtype == np.float32
    # the rounding of float32, raised by systems of a condition number of up to a thousand
    assert_allclose(narrow, wide, atol=1e-3 * np.abs(wide).max())


@quiet
@each
def test_a_source_gives_the_model_of_the_array(cls):
    X, y = data(cls)
    model = quick(cls)
    expected = values(clone(model).fit(X, y), X)
    assert_array_equal(values(model.fit(ArrayRows(X), y), X), expected)


@quiet
@each
def test_rows_of_weight_zero_are_ignored(cls):
    if "sample_weight" not in inspect.signature(cls.fit).parameters:
        return
    X, y = data(cls)
    weight = np.tile([1.0, 1.0, 0.0, 2.0], 20)
    without = quick(cls).fit(X[weight > 0], y[weight > 0], sample_weight=weight[weight > 0])
    assert_array_equal(values(quick(cls).fit(X, y, sample_weight=weight), X), values(without, X))


@quiet
@each
def test_validation_rows_are_recorded_and_a_callback_stops(cls):
    X, y = data(cls)
    X_val, y_val = X[60:], y[60:]
    model = quick(cls).set_params(callbacks=lambda record: True).fit(X[:60], y[:60], X_val=X_val, y_val=y_val)
    (record,) = model.history_
    assert record["iteration"] >= 1
    wrong = np.mean(model.predict(X_val) != y_val) if is_classifier(model) else None
    error = np.sqrt(np.mean((model.predict(X_val) - y_val) ** 2)) if wrong is None else wrong
    assert record["validation_error"] == pytest.approx(error)


@each
def test_a_fit_that_fails_leaves_the_model_as_it_was(cls):
    X, y = data(cls)
    model = quick(cls).set_params(callbacks=_fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        model.fit(X, y)
    assert not [name for name in vars(model) if name.endswith("_")]


def _fail(record):
    raise RuntimeError("on purpose")
