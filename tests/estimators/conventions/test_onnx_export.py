"""ONNX graphs of fitted estimators, run by onnxruntime, beside the estimators themselves."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError

import gyrfalcon
from gyrfalcon import (
    ConformalRegressor,
    DivideAndConquerRegressor,
    EigenProRegressor,
    ExactClassifier,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
    to_onnx,
)
from gyrfalcon.cli.main import main
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
from gyrfalcon.losses import Loss

onnxruntime = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
X = RNG.normal([0, 100, -5], [1, 30, 0.1], size=(300, 3))
Y = np.sin(X[:, 0]) + X[:, 1] / 100
NEW = np.vstack([RNG.normal([0, 100, -5], [1, 30, 0.1], size=(40, 3)), X[:5], np.zeros((1, 3))])
LABELS = np.array(["low", "middle", "high"])[np.digitize(Y, [0.7, 1.5])]

KERNELS = [
    Gaussian(),
    Gaussian([1.0, 2.0, 5.0]),
    Laplacian(),
    Laplacian(norm=1),
    Matern(nu=0.5),
    Matern(nu=1.5),
    Matern(nu=2.5),
    RationalQuadratic(alpha=0.7),
    Linear() + 1.0,
    Polynomial(3),
    Sigmoid(0.1),
    ArcCosine(0),
    ArcCosine(1),
    2.0 * Gaussian(1.0) * Linear() + 0.5 * Matern(),
]


def run(graph, rows=NEW):
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": rows}), strict=True))


def assert_same(model, rows=NEW, tolerance=1e-8, rounding=0.0):
    """Every output is that of the method of its name, of its shape and kind; `rounding` is an error of any sum."""
    outputs = run(to_onnx(model), rows)
    for name, value in outputs.items():
        expected = getattr(model, name)(rows)
        assert value.shape == expected.shape, name
        if value.dtype.kind == "f":
            bound = tolerance * max(1, np.abs(expected).max()) + rounding
            assert (np.abs(value - expected) <= bound).all(), name
        else:
            assert np.array_equal(value, expected), name
    return outputs


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels(kernel, dtype):
    rows = NEW.astype(dtype)
    model = FalkonRegressor(kernel, scale=True, n_centers=30, penalty=1e-3, random_state=0).fit(X.astype(dtype), Y)
    terms = np.abs(model.kernel_((rows - model.mean_) / model.scale_, model.centers_)) @ np.abs(model.dual_coef_)
    tolerance = 1e-9 if dtype == np.float64 else 1e-5
    outputs = assert_same(model, rows, tolerance, rounding=10 * np.finfo(dtype).eps * terms)
    assert outputs["predict"].dtype == dtype


@pytest.mark.parametrize(
    "model",
    [
        FalkonRegressor(loss="poisson", n_centers=20),
        FalkonRegressor(loss="huber", n_centers=20),
        FalkonRegressor(loss="squared_epsilon_insensitive", n_centers=20),
        FalkonRegressor(loss="quantile", quantiles=[0.9, 0.1, 0.5], n_centers=20),
        FalkonRegressor(scale=False, fit_intercept=False, n_centers=20),
        NystromRegressor(n_centers=20),
        NytroRegressor(n_centers=20, max_iter=5),
        ExactRegressor(),
        DivideAndConquerRegressor(),
        EigenProRegressor(Gaussian(2.0), max_iter=2),
        RandomFeaturesRegressor(n_components=50),
        RandomFeaturesRegressor(ArcCosine(1), n_components=50),
        RandomFeaturesRegressor(ArcCosine(0) + Linear(), n_components=50),
        *(
            RandomFeaturesRegressor(RandomLayer(name), n_components=50)
            for name in ("relu", "tanh", "sigmoid", "softplus", "step", "cos", "sin", "identity")
        ),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_regressors(model):
    assert_same(model.set_params(random_state=0).fit(X, np.abs(Y)))


def test_several_targets():
    model = FalkonRegressor(n_centers=20, random_state=0).fit(X, np.column_stack([Y, Y**2]))
    assert assert_same(model)["predict"].shape == (len(NEW), 2)
    one = FalkonRegressor(n_centers=20, random_state=0).fit(X, Y[:, None])
    assert assert_same(one)["predict"].shape == one.predict(NEW).shape


@pytest.mark.parametrize(
    "labels", [LABELS, LABELS == "low", (LABELS == "low") * 7], ids=["three texts", "booleans", "two numbers"]
)
@pytest.mark.parametrize(
    "model",
    [
        FalkonClassifier(n_centers=20),
        FalkonClassifier(loss="logistic", n_centers=20),
        FalkonClassifier(loss="squared_hinge", n_centers=20),
        FalkonClassifier(loss="hinge", n_centers=20),
        FalkonClassifier(loss="logistic", multi_class="ovr", n_centers=20),
        ExactClassifier(),
        RandomFeaturesClassifier(n_components=30),
    ],
    ids=str,
)
def test_classifiers(model, labels):
    outputs = assert_same(model.set_params(random_state=0).fit(X, labels))
    probable = isinstance(model, ExactClassifier) or model.get_params().get("loss") == "logistic"
    assert ("predict_proba" in outputs) == probable


def test_a_file(tmp_path):
    model = FalkonRegressor(n_centers=20, random_state=0).fit(X, Y)
    model.feature_names_in_ = np.array(["a", "b", "c"], dtype=object)
    to_onnx(model, tmp_path / "model.onnx", dtype="float32")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert (about["class"], json.loads(about["feature_names"])) == ("FalkonRegressor", ["a", "b", "c"])
    (predictions,) = session.run(None, {"X": X.astype(np.float32)})
    del model.feature_names_in_
    np.testing.assert_allclose(predictions, model.predict(X), atol=1e-4)


def test_the_command(tmp_path, capsys):
    model = FalkonRegressor(n_centers=20, random_state=0).fit(X, Y)
    model.save(tmp_path / "model.gyr")
    assert main(["export", str(tmp_path / "model.gyr"), "-o", str(tmp_path / "model.onnx")]) == 0
    assert str(tmp_path / "model.onnx") in capsys.readouterr().out
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    np.testing.assert_allclose(session.run(None, {"X": NEW})[0], model.predict(NEW), atol=1e-9)
    gyrfalcon.KernelPCA(n_components=1, n_centers=5).fit(X).save(tmp_path / "other.gyr")
    assert main(["export", str(tmp_path / "other.gyr"), "-o", str(tmp_path / "other.onnx")]) == 2
    assert "KernelPCA cannot be exported" in capsys.readouterr().err
    assert not (tmp_path / "other.onnx").exists()


class Own(Loss):
    def value(self, y, f):
        return 0.5 * np.square(f - y)

    def gradient(self, y, f):
        return f - y

    def hessian(self, y, f):
        return np.ones_like(f)

    def inverse_link(self, f):
        return f + 1


class Narrow(Gaussian):
    def profile(self, s):
        return np.exp(-s)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (ConformalRegressor(FalkonRegressor(n_centers=5)), "ConformalRegressor cannot be exported"),
        (HierarchicalRegressor(leaf_size=50), "HierarchicalRegressor cannot be exported: only .* one sum over centers"),
        (HierarchicalClassifier(leaf_size=50), "HierarchicalClassifier cannot be exported: only"),
        (
            FalkonRegressor(lambda A, B: A @ B.T, n_centers=5, penalty=1e-3),
            "CallableKernel.*cannot be exported: use Ga",
        ),
        (FalkonRegressor(Narrow(1.0), n_centers=5, penalty=1e-3), "Narrow.*cannot be exported"),
        (
            RandomFeaturesRegressor(RandomLayer("erf"), n_components=5),
            "activation 'erf' cannot be exported: use one",
        ),
        (RandomFeaturesRegressor(RandomLayer(np.sinh), n_components=5), "activation <ufunc 'sinh'> cannot be exported"),
        (FalkonRegressor(RandomLayer(), n_centers=5, penalty=1e-3), "RandomLayer.*cannot be exported"),
        (FalkonRegressor(loss=Own(), n_centers=5, penalty=1e-3), "Own.inverse_link is a Python function"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_graph(model, words):
    with pytest.raises(TypeError, match=words):
        to_onnx(model.fit(X, LABELS if is_classifier(model) else Y))


def test_errors():
    with pytest.raises(NotFittedError):
        to_onnx(FalkonRegressor())
    model = FalkonRegressor(n_centers=5, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match=r"dtype='int32' must be float32 or float64"):
        to_onnx(model, dtype="int32")
    sparse = FalkonRegressor(n_centers=5, random_state=0).fit(sp.csr_array(X), Y)
    with pytest.raises(TypeError, match="sparse rows cannot be exported"):
        to_onnx(sparse)
