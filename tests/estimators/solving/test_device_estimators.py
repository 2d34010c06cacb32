"""Every estimator with `device=` gives on PyTorch's devices what it gives on the processor."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import (
    AutoClassifier,
    AutoRegressor,
    ExactClassifier,
    ExactRegressor,
    KernelKMeans,
    KernelPCA,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)
from gyrfalcon.kernels import RandomLayer
from gyrfalcon.operators import DeviceOperator, dense
from gyrfalcon.operators.squares import SquareSums

pytestmark = [
    pytest.mark.devices,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

BARS = {np.float64: 1e-9, np.float32: 5e-4}
rng = np.random.default_rng(0)
X = rng.standard_normal((400, 3))
y = np.sin(2 * X[:, 0]) + np.square(X[:, 1]) + 0.1 * rng.standard_normal(400)
Y = np.stack([y, X[:, 2]], axis=1)
classes = np.digitize(y, np.quantile(y, [0.3, 0.7]))
weight = rng.random(400)

PENALTIES = [1e-4, 1e-2]
CENTERS = {"n_centers": 25, "random_state": 0}
FEATURES = {"n_components": 40, "random_state": 0, "penalty": 1e-3}
EVERY_ROW = {"penalty": 1e-2, "random_state": 0}
SUPERVISED = {
    "nystrom": (NystromRegressor(penalty=1e-3, **CENTERS), Y),
    "nystrom, validation": (NystromRegressor(penalties=PENALTIES, choose_by="validation", **CENTERS), y),
    "nystrom, leave-one-out": (NystromRegressor(penalties=PENALTIES, choose_by="loo", **CENTERS), y),
    "nystrom, nested": (NystromRegressor(n_centers=[10, 25], penalties=PENALTIES, random_state=0), y),
    "nystrom, cg": (NystromRegressor(solver="cg", penalty=1e-2, tol=1e-12, max_iter=300, **CENTERS), y),
    "nystrom, sgd": (NystromRegressor(solver="sgd", penalty=1e-2, max_iter=3, **CENTERS), y),
    "nystrom, bcd": (NystromRegressor(solver="bcd", penalty=1e-2, block_size=10, max_iter=20, **CENTERS), y),
    "nystrom, duplicate centers": (NystromRegressor(centers=np.repeat(X[:10], 2, axis=0), penalty=1e-2), y),
    "nystrom, uncertainty": (NystromRegressor(penalty=1e-3, uncertainty=True, **CENTERS), y),
    "nytro": (NytroRegressor(max_iter=20, **CENTERS), y),
    "nytro, cg": (NytroRegressor(solver="cg", max_iter=5, early_stopping=False, **CENTERS), y),
    "ridge": (ExactRegressor(**EVERY_ROW), Y),
    "ridge, path": (ExactRegressor(penalties=PENALTIES, choose_by="loo", random_state=0), y),
    "pcg": (ExactRegressor(method="pcg", tol=1e-11, n_centers=30, **EVERY_ROW), y),
    "pcg, folds": (ExactRegressor(method="pcg", tol=1e-11, n_centers=30, cv=3, penalties=PENALTIES, random_state=0), y),
    "pcg, random features": (
        ExactRegressor(method="pcg", preconditioner="random_features", n_centers=30, tol=1e-11, **EVERY_ROW),
        y,
    ),
    "pcg, hierarchical": (
        ExactRegressor(method="pcg", preconditioner="hierarchical", n_centers=30, tol=1e-11, **EVERY_ROW),
        y,
    ),
    "gd": (ExactRegressor(method="gd", max_iter=20, **EVERY_ROW), y),
    "early stopping": (ExactRegressor(method="early_stopping", max_iter=10, random_state=0), y),
    "exact classifier": (ExactClassifier(tol=1e-11, n_centers=30, cv=3, **EVERY_ROW), classes),
    "random features": (RandomFeaturesRegressor(**FEATURES), Y),
    "random features, sgd": (RandomFeaturesRegressor(solver="sgd", max_iter=3, **FEATURES), y),
    "random features, bcd": (RandomFeaturesRegressor(solver="bcd", block_size=20, max_iter=20, **FEATURES), y),
    "random features, classes": (RandomFeaturesClassifier(**FEATURES), classes),
    "random features, Laplacian": (RandomFeaturesRegressor("laplacian", **FEATURES), y),
}
UNSUPERVISED = {
    "pca": KernelPCA(3, **CENTERS),
    "pca, all": KernelPCA(0.9, fit_inverse_transform=True, **CENTERS),
    "pca, iterative": KernelPCA(3, solver="iterative", tol=1e-10, **CENTERS),
    "k-means": KernelKMeans(3, **CENTERS),
}


def distance(found, expected):
    return np.linalg.norm(np.float64(found) - expected) / np.linalg.norm(expected)


def values(model, rows):
    for name in ("decision_function", "transform", "predict"):
        if hasattr(model, name):
            return getattr(model, name)(rows)
    raise AssertionError("no predictions")


def fitted(model, rows, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(rows, *arguments, **options)


@pytest.mark.parametrize(("dtype", "device"), [(np.float64, "cpu"), (np.float32, ["cpu"] * 3)], ids=str)
@pytest.mark.parametrize("name", SUPERVISED)
def test_supervised(name, dtype, device, monkeypatch):
    model, targets = SUPERVISED[name]
    if dtype == np.float32:
        model = clone(model).set_params(dtype="float32")
        if "tol" in model.get_params() and model.tol is not None:
            model.set_params(tol=1e-6)
    rows = X.astype(dtype)
    native = fitted(model, rows, targets, sample_weight=weight)
    there = fitted(model.set_params(device=device), rows, targets, sample_weight=weight)
    model.set_params(device=None)
    monkeypatch.setattr(dense.KernelOperator, "_pass", None)  # predictions are made there, too
    found = values(there, rows)
    monkeypatch.undo()
    assert distance(found, values(native, rows)) < BARS[dtype]
    if dtype == np.float32:
        again = fitted(there, rows, targets, sample_weight=weight)
        np.testing.assert_array_equal(values(again, rows), found)


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", UNSUPERVISED)
def test_unsupervised(name, dtype):
    model, rows = UNSUPERVISED[name], X.astype(dtype)
    native = fitted(model, rows)
    there = fitted(clone(model).set_params(device=["cpu"] * 2), rows)
    assert distance(there.transform(rows), native.transform(rows)) < BARS[dtype]
    if "k-means" in name:
        np.testing.assert_array_equal(there.predict(rows), native.predict(rows))


@pytest.mark.parametrize("estimator", [NystromRegressor(penalty=1e-3, **CENTERS), KernelPCA(3, **CENTERS)], ids=repr)
def test_sparse_rows(estimator):
    rows = sp.csr_array(np.where(np.abs(X) < 0.5, 0, X))
    native, there = (fitted(clone(estimator).set_params(device=one), rows, y) for one in (None, "cpu"))
    assert distance(values(there, rows), values(native, rows)) < BARS[np.float64]


def test_squares_are_made_on_the_devices(monkeypatch):
    """The direct methods add no blocks on the host, unless a device has no room for the sums."""
    added = []
    add = SquareSums.add
    monkeypatch.setattr(SquareSums, "add", lambda sums, at, K: (added.append(len(K)), add(sums, at, K)))
    for model in (NystromRegressor(penalty=1e-3, **CENTERS), RandomFeaturesRegressor(**FEATURES)):
        added.clear()
        expected = fitted(model, X, y).predict(X)
        assert not added
        there = clone(model).set_params(device="cpu")
        assert distance(fitted(there, X, y).predict(X), expected) < BARS[np.float64]
        assert sum(added) == len(X)
        added.clear()
        with monkeypatch.context() as patch:
            patch.setattr(DeviceOperator, "_has_room", lambda operator, nbytes: False)
            assert distance(fitted(there, X, y).predict(X), expected) < BARS[np.float64]
        assert not added


def test_activations_of_all_kinds():
    for activation in ("relu", "step", "tanh", "sigmoid", "softplus", "erf", "identity", np.abs):
        model = RandomFeaturesRegressor(RandomLayer(activation), **FEATURES)
        native, there = (fitted(clone(model).set_params(device=one), X, y) for one in (None, "cpu"))
        assert distance(there.predict(X), native.predict(X)) < BARS[np.float64]


def test_tensors_stay_tensors():
    torch = pytest.importorskip("torch")
    rows = torch.tensor(X)
    for model in (NystromRegressor(penalty=1e-3, **CENTERS), RandomFeaturesRegressor(**FEATURES)):
        there = fitted(clone(model).set_params(device="cpu"), rows, torch.tensor(y))
        found = there.predict(rows)
        assert isinstance(found, torch.Tensor)
        assert distance(found.numpy(), fitted(model, X, y).predict(X)) < BARS[np.float64]


@pytest.mark.parametrize(("Auto", "targets"), [(AutoRegressor, y), (AutoClassifier, classes > 0)], ids=["y", "classes"])
def test_automatic_estimators(Auto, targets, tmp_path):
    model = Auto(time_budget=5, families=("kernel",), device="cpu", random_state=0).fit(X, targets)
    assert {member.device for member in model.models_} == {"cpu"}
    expected = model.predict(X)
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert {member.device for member in loaded.models_} == {None}
    found = loaded.predict(X)
    if Auto is AutoClassifier:
        assert (found == expected).mean() > 0.99
    else:
        assert distance(found, expected) < BARS[np.float32]


@pytest.mark.parametrize("model", [*(model for model, _ in SUPERVISED.values()), *UNSUPERVISED.values()], ids=repr)
def test_wrong_devices_are_refused_before_rows_are_read(model):
    with pytest.raises(ValueError, match="device='gpu' is not a device"):
        clone(model).set_params(device="gpu").fit(None, None)


def test_methods_for_the_processor_alone():
    with pytest.raises(ValueError, match="method=\"askotch\" runs on the processor, not on device='cpu': use"):
        ExactRegressor(method="askotch", device="cpu").fit(X, y)
