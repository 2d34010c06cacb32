"""Fits on PyTorch's devices are those of this library's own backend, whatever the rows, the loss and the precision."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon._utils.devices import round_to_tf32

pytestmark = [
    pytest.mark.devices,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

BARS = {np.float64: 1e-10, np.float32: 2e-5}


def table(n=1200):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    y = np.sin(2 * X[:, 0]) + np.square(X[:, 1]) + 0.1 * rng.standard_normal(n)
    return X, y, np.digitize(y, np.quantile(y, [0.3, 0.7])), rng.random(n)


X, y, classes, weight = table()
COMMON = {"n_centers": 40, "penalty": 1e-3, "random_state": 0}
SETTLED = {**COMMON, "max_iter": 100}  # before it has converged, conjugate gradient multiplies every rounding
FITS = {
    "cg": (FalkonRegressor(**SETTLED), y),
    "cg of two outputs": (FalkonRegressor(**SETTLED), np.stack([y, X[:, 0]], axis=1)),
    "cg with a sample": (FalkonRegressor(**SETTLED, preconditioner="sample"), y),
    "krill": (FalkonRegressor(**SETTLED, preconditioner="krill"), y),
    "newton, huber": (FalkonRegressor(**COMMON, loss="huber"), y),
    "newton, quantiles": (FalkonRegressor(**COMMON, loss="quantile", quantiles=[0.1, 0.9]), y),
    "newton, logistic": (FalkonClassifier(**COMMON, loss="logistic"), classes > 0),
    "newton, squared hinge": (FalkonClassifier(**COMMON, loss="squared_hinge"), classes),
    "softmax": (FalkonClassifier(**COMMON, loss="logistic"), classes),
}


def values(model, rows):
    return model.decision_function(rows) if isinstance(model, FalkonClassifier) else model.predict(rows)


def distance(found, expected):
    return np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize(("dtype", "device"), [(np.float64, "cpu"), (np.float32, ["cpu"] * 3)], ids=str)
@pytest.mark.parametrize("name", FITS)
def test_fits(name, dtype, device):
    model, targets = FITS[name]
    rows = X.astype(dtype)
    if "cg" in name or name == "krill":
        model = clone(model).set_params(tol=1e-13 if dtype == np.float64 else 1e-6)
    native = clone(model).fit(rows, targets, sample_weight=weight)
    there = clone(model).set_params(device=device).fit(rows, targets, sample_weight=weight)
    assert there.centers_.dtype == dtype
    assert distance(values(there, rows), values(native, rows)) < BARS[dtype]
    if device != "cpu":
        again = clone(there).fit(rows, targets, sample_weight=weight)
        np.testing.assert_array_equal(again.dual_coef_, there.dual_coef_)


@pytest.mark.parametrize("penalty", [1e-3, 1e-6])
def test_tf32_is_a_fit_of_rounded_rows(penalty):
    rows = round_to_tf32(X.astype(np.float32))
    given = {**SETTLED, "penalty": penalty, "scale": False, "dtype": "float32", "tol": 1e-6}
    native = FalkonRegressor(**given).fit(rows, y)
    there = FalkonRegressor(**given, device="cpu", precision="tf32").fit(X.astype(np.float32), y)
    np.testing.assert_array_equal(there.centers_, native.centers_)
    # the smaller penalty leaves coefficients that are larger than their sums
    assert distance(there.predict(rows), native.predict(rows)) < (BARS[np.float32] if penalty == 1e-3 else 1e-3)
    # rows that are not rounded are 2^-11 away, and so are predictions, as far as the function is no steeper
    assert distance(there.predict(X), native.predict(rows)) < 2e-3
    with pytest.raises(ValueError, match="precision='tf32' is for devices"):
        there.set_params(device=None).fit(X, y)


def test_rows_of_any_kind(tmp_path):
    native = FalkonRegressor(**SETTLED, scale=False, tol=1e-13).fit(X, y)
    expected = native.predict(X)
    np.save(tmp_path / "rows.npy", X)
    centers = native.centers_
    for rows in (
        gyrfalcon.open(tmp_path / "rows.npy").X,
        sp.csr_array(X),
        da.from_array(X, chunks=(500, 4)),
    ):
        given = sp.csr_array(centers) if sp.issparse(rows) else centers
        model = FalkonRegressor(centers=given, penalty=1e-3, scale=False, max_iter=100, tol=1e-13, device=["cpu"] * 2)
        model.fit(rows, y)
        found = np.asarray(model.predict(rows))
        assert distance(found, expected) < 1e-10


def test_validation_and_early_stopping_run_there():
    native = FalkonRegressor(**COMMON, max_iter=5, early_stopping=True).fit(X, y)
    there = clone(native).set_params(device="cpu").fit(X, y)
    errors = [[record["validation_error"] for record in model.history_] for model in (native, there)]
    np.testing.assert_allclose(*errors, rtol=1e-10)


def test_a_model_file_keeps_no_device(tmp_path):
    model = FalkonRegressor(**COMMON, device="cpu", precision="tf32").fit(X, y)
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert loaded.device is loaded.precision is None
    np.testing.assert_allclose(loaded.predict(X), model.predict(X), rtol=0, atol=1e-10)


def test_a_checkpoint_goes_on_with_the_same_device_only(tmp_path):
    model = FalkonRegressor(**COMMON, device="cpu", checkpoint=tmp_path, max_iter=3, tol=0).fit(X, y)
    model.set_params(device=["cpu"] * 2, max_iter=5)
    with pytest.raises(
        gyrfalcon.CheckpointError, match="made again on cpu, and now it would be made again on cpu, cpu"
    ):
        model.fit(X, y)
    model.set_params(device="cpu").fit(X, y)
    straight = FalkonRegressor(**COMMON, device="cpu", max_iter=5, tol=0).fit(X, y)
    np.testing.assert_array_equal(model.dual_coef_, straight.dual_coef_)


@pytest.mark.parametrize("wrong", ["gpu", [], 3, ["cpu", "gpu"]], ids=str)
def test_wrong_devices_are_refused_before_rows_are_read(wrong):
    with pytest.raises((ValueError, TypeError), match="device="):
        FalkonClassifier(device=wrong).fit(None, None)
