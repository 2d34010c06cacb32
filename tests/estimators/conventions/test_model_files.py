"""Estimators in model files: what is loaded predicts the same bits, and damage is told. Format: test_persistence."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from plain import plain
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import FalkonClassifier, FalkonRegressor, ModelFileError
from gyrfalcon.kernels import (
    ArcCosine,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RandomLayer,
    RationalQuadratic,
    Sigmoid,
)
from gyrfalcon.storage import models

pytestmark = pytest.mark.filterwarnings("error")

KERNELS = {
    "gaussian": "gaussian",
    "gaussian object": Gaussian(1.5),
    "per feature": Gaussian([1.0, 2.0, 0.5]),
    "per feature array": Laplacian(np.array([1.0, 2.0, 0.5])),
    "laplacian": Laplacian(),
    "laplacian 1-norm": Laplacian(norm=1),
    "matern": Matern(2.0, nu=2.5),
    "rational quadratic": RationalQuadratic(1.0, alpha=0.7),
    "linear": Linear(),
    "polynomial": Polynomial(2, gamma=0.5, coef0=2.0),
    "sigmoid": Sigmoid(0.1),
    "arc-cosine 0": ArcCosine(0),
    "arc-cosine 1": ArcCosine(1),
    "random layer": RandomLayer("tanh"),
    "sum": Gaussian(1.0) + 0.5 * Linear() + 1.0,
    "long sum": sum((0.1 * Gaussian(1.0 + i) for i in range(110)), Linear() + 1.0),
    "long product": Gaussian(1.0) * 2.0 * Gaussian([1.0, 2.0, 3.0]) * Laplacian(np.array([1.0, 2.0, 0.5])) * 0.5,
    "product": Matern() * (Laplacian([1.0, 1.0, 2.0]) + Polynomial()),
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3))
    return X, np.sin(X[:, 0]) + X[:, 1]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gyrfalcon"


def round_trip(model, path):
    model.save(path)
    return gyrfalcon.load(path)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_predictions_are_the_same_bits(data, path, kernel, dtype):
    X, y = data[0].astype(dtype), data[1]
    model = plain(FalkonRegressor, kernel, n_centers=30, penalty=1e-3, random_state=0).fit(X, y)
    loaded = round_trip(model, path)
    assert type(loaded) is FalkonRegressor
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.predict(X).dtype == dtype
    assert loaded.n_iter_ == model.n_iter_
    assert loaded.history_ == model.history_
    # and the parameters too: the same model comes out of another fit
    assert_array_equal(clone(loaded).fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize(
    "labels", [["no", "yes"], ["a", "b", "ccc"], [3, -7, 11], [False, True], [1.0, 2.0, 5.0]], ids=str
)
@pytest.mark.parametrize("as_objects", [False, True])
def test_classifiers(data, path, labels, as_objects):
    X, y = data
    labels = np.array(labels, dtype=object if as_objects and isinstance(labels[0], str) else None)
    y = labels[np.digitize(y, [0.0, 1.0][: len(labels) - 1])]
    model = plain(FalkonClassifier, "laplacian", n_centers=30, class_weight="balanced", random_state=0).fit(X, y)
    loaded = round_trip(model, path)
    assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.score(X, y) == model.score(X, y)


def test_many_outputs_and_feature_names(data, path):
    pd = pytest.importorskip("pandas")
    X, y = pd.DataFrame(data[0], columns=["x", "ÿ", "z"]), np.column_stack([data[1], -data[1]])
    model = plain(FalkonRegressor, "laplacian", n_centers=30, random_state=0).fit(X, y)
    loaded = round_trip(model, path)
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert_array_equal(loaded.feature_names_in_, ["x", "ÿ", "z"])
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(X[["z", "ÿ", "x"]])


def test_parameters_come_back(data, path):
    X, y = data
    params = {
        "kernel": Gaussian("scale"),
        "n_centers": 40,
        "penalty": np.float64(1e-5),
        "centers": X[:7],
        "max_iter": np.int64(9),
        "tol": 0.0,
        "dtype": np.float32,
        "memory_budget": "1GB",
        "n_jobs": 2,
        "random_state": 5,
        "warm_start": True,
        "early_stopping": True,
        "validation_fraction": 0.2,
        "n_iter_no_change": 3,
    }
    model = plain(FalkonRegressor, **params).fit(X, y)
    loaded = round_trip(model, path)
    for name, value in params.items():
        if name == "kernel":
            assert loaded.kernel.get_params() == value.get_params()
        else:
            assert_array_equal(getattr(loaded, name), value)
    assert_array_equal(loaded.fit(X, y).centers_, X[:7].astype(np.float32))


def test_a_loaded_model_can_go_on(data, path):
    X, y = data
    model = plain(FalkonRegressor, Laplacian(1.0), n_centers=30, max_iter=5, tol=0.0, warm_start=True).fit(X, y)
    loaded = round_trip(model, path)
    loaded.fit(X, y)
    assert_array_equal(loaded.centers_, model.centers_)
    assert loaded.history_[-1]["residual"] < 0.2 * model.history_[-1]["residual"]
    assert loaded.set_params(n_centers=10).fit(X, y).centers_.shape == (10, 3)


def test_files_and_pickles_hold_neither_factors_nor_rows(path):
    X = np.random.default_rng(0).standard_normal((2000, 4))
    model = plain(FalkonRegressor, "laplacian", n_centers=400, max_iter=5).fit(X, X[:, 0], np.ones(2000))
    needed = model.centers_.nbytes + model.dual_coef_.nbytes
    model.save(path)
    assert path.stat().st_size < needed + 8_000
    assert len(pickle.dumps(model)) < needed + 8 * 400 + 8_000  # and the weights at the centers


def test_a_function_cannot_be_saved(data, path):
    X, y = data
    model = plain(FalkonRegressor, lambda A, B: A @ B.T, n_centers=10).fit(X, y)
    with pytest.raises(TypeError, match=r"cannot save FalkonRegressor: parameter 'kernel'.*Use a named kernel.*pickle"):
        model.save(path)
    assert not path.exists()
    nested = plain(FalkonRegressor, Gaussian(1.0) + (lambda A, B: A @ B.T), n_centers=10).fit(X, y)
    with pytest.raises(TypeError, match="cannot save"):
        nested.save(path)


def test_callbacks_stay_behind(data, path):
    X, y = data
    model = plain(
        FalkonRegressor,
        n_centers=10,
        callbacks=lambda record: None,
        random_state=np.random.RandomState(0),
    ).fit(X, y)
    loaded = round_trip(model, path)
    assert loaded.callbacks is None
    assert loaded.random_state is None
    assert_array_equal(loaded.predict(X), model.predict(X))


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(data, path):
    X, y = data
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    plain(FalkonClassifier, "laplacian", n_centers=20, random_state=0).fit(X, labels).save(path)
    return path


def test_flipped_bytes(saved, data):
    whole = saved.read_bytes()
    expected = gyrfalcon.load(saved).decision_function(data[0])
    rng = np.random.default_rng(0)
    refused = 0
    for at in [0, 7, 8, 20, len(whole) - 1, *rng.integers(0, len(whole), 60)]:
        broken = bytearray(whole)
        broken[at] ^= 1 << int(rng.integers(8))
        saved.write_bytes(broken)
        try:
            loaded = gyrfalcon.load(saved)
        except ModelFileError:
            refused += 1
        else:  # what is not the model may change, such as the version that wrote it
            assert_array_equal(loaded.decision_function(data[0]), expected)
    assert refused > 60


def test_truncated(saved):
    whole = saved.read_bytes()
    for length in [0, 1, 8, 9, 100, len(whole) // 2, len(whole) - 1]:
        saved.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match="cannot load"):
            gyrfalcon.load(saved)


def test_foreign_files(path):
    save_file({"weight": np.zeros((3, 3))}, path, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match="not one written by gyrfalcon"):
        gyrfalcon.load(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ModelFileError, match="not a safetensors file"):
        gyrfalcon.load(path)
    with pytest.raises(ModelFileError, match="there is no such file"):
        gyrfalcon.load(path.with_name("nothing"))


def edited(path, edit):
    """Change what is in the file, with a right checksum: an edit by hand, or by an enemy."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    model = json.loads(metadata["model"])
    edit(model, tensors)
    metadata["model"] = json.dumps(model)
    metadata["sha256"] = models._digest(metadata["model"], tensors)
    save_file(tensors, path, metadata=metadata)


def _set(name, change):
    def edit(model, tensors):
        key = f"attributes.{name}"
        tensors[key] = np.ascontiguousarray(change(tensors[key]))

    return edit


def _attribute(name, value):
    return lambda model, tensors: model["attributes"].__setitem__(name, value)


def _without(name):
    def edit(model, tensors):
        model["attributes"].pop(name)
        tensors.pop(f"attributes.{name}", None)

    return edit


@pytest.mark.parametrize(
    "edit",
    [
        _set("dual_coef_", lambda a: a[:-1]),
        _set("dual_coef_", lambda a: a[:, :2]),
        _set("dual_coef_", lambda a: a[:, 0]),
        _set("dual_coef_", lambda a: a[None]),
        _set("dual_coef_", lambda a: a.astype(np.int64)),
        _set("dual_coef_", lambda a: a[:0]),
        _set("dual_coef_", lambda a: a * np.nan),
        _set("centers_", lambda a: a[:, :2]),
        _set("centers_", lambda a: a[:-1]),
        _set("centers_", lambda a: a.ravel()),
        _set("centers_", lambda a: a.astype(np.float16)),
        _set("centers_", lambda a: a * np.inf),
        _attribute("n_features_in_", 4),
        _attribute("n_features_in_", "3"),
        _attribute("kernel_", "laplacian"),
        _attribute("kernel_", {"__kernel__": "Laplacian", "params": {"length_scale": -1.0}}),
        _attribute("kernel_", {"__kernel__": "Laplacian", "params": {"length_scale": [1.0, 2.0]}}),
        _attribute("kernel_", {"__kernel__": "Laplacian", "params": {"length_scale": 1.0, "norm": 3}}),
        _attribute("kernel_", {"__kernel__": "Laplacian", "params": {"length_scale": 1.0, "norm": "1"}}),
        _attribute("classes_", {"__array__": "str", "shape": [2], "values": ["a", "b"]}),
        _attribute("classes_", {"__array__": "str", "shape": [4], "values": ["a", "b", "c", "d"]}),
        _attribute("classes_", 3),
        lambda model, tensors: model["params"].update(dtype={"a": 1}),
        _without("dual_coef_"),
        _without("centers_"),
        _without("kernel_"),
        _without("classes_"),
        _without("n_features_in_"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_contents_that_disagree(saved, edit):
    edited(saved, edit)
    with pytest.raises(ModelFileError, match="cannot load"):
        gyrfalcon.load(saved)


@pytest.mark.parametrize("name", ["mean_", "scale_"])
@pytest.mark.parametrize("change", [lambda a: a[:-1], lambda a: a[:, None], lambda a: np.tile(a, 2)])
def test_a_scaling_of_other_features(data, path, name, change):
    X, y = data
    plain(FalkonRegressor, n_centers=20, random_state=0, scale=True).fit(X, y).save(path)
    edited(path, _set(name, change))
    with pytest.raises(ModelFileError, match=f"inconsistent FalkonRegressor: {name} has shape"):
        gyrfalcon.load(path)


def test_an_edit_of_nothing_is_accepted(saved, data):
    before = gyrfalcon.load(saved).decision_function(data[0])
    edited(saved, lambda model, tensors: None)
    assert_array_equal(gyrfalcon.load(saved).decision_function(data[0]), before)
