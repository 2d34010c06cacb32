"""Units of a neural net with random weights: by the definition, as a kernel, and as the features of a ridge."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain

import gyrfalcon
from gyrfalcon import RandomFeatures, RandomFeaturesClassifier, RandomFeaturesRegressor
from gyrfalcon.baselines import FeatureSelectionRegressor
from gyrfalcon.kernels import ArcCosine, Gaussian, RandomLayer

pytestmark = pytest.mark.filterwarnings("error")

ACTIVATIONS = {
    "relu": lambda a: np.where(a > 0, a, 0.0),
    "tanh": lambda a: (np.exp(2 * a) - 1) / (np.exp(2 * a) + 1),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "softplus": lambda a: np.log(1 + np.exp(a)),
    "erf": np.vectorize(math.erf),
    "step": lambda a: (a > 0).astype(float),
    "cos": np.cos,
    "sin": np.sin,
    "identity": lambda a: a,
}


def bump(a):
    """A function of one's own."""
    return np.exp(-(a**2))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(300)


def units(model, X, formula):
    """Features by the definition, from the weights and biases that a model drew."""
    drawn = model.feature_map_.astype(np.float64)
    return formula(X.astype(np.float64) @ drawn.weights.T + drawn.offset) / np.sqrt(len(drawn))


def ridge(F, y, penalty, weight):
    """Fitted values of a ridge regression, by the textbook's formula."""
    w = weight / weight.mean()
    return F @ np.linalg.solve(F.T @ (w[:, None] * F) + penalty * len(F) * np.eye(F.shape[1]), F.T @ (w * y))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("activation", [*ACTIVATIONS, bump])
def test_ridge_on_the_units_is_a_dense_ridge(data, activation, dtype):
    X, y = data[0].astype(dtype), data[1]
    weight = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
    layer = RandomLayer(activation, scale=0.7, bias_scale=0.5)
    model = plain(RandomFeaturesRegressor, layer, n_components=40, penalty=1e-2, random_state=0).fit(X, y, weight)
    F = units(model, X, ACTIVATIONS.get(activation, activation))
    # float32: features are rounded to 1e-7, and the penalty lets this grow by at most 1 / penalty
    atol = 1e-6 if dtype == np.float64 else 1e-4
    assert_allclose(model.predict(X), ridge(F, y, 1e-2, weight), atol=atol)
    assert model.predict(X).dtype == dtype


@pytest.mark.parametrize("orthogonal", [False, True])
def test_weights_and_biases_have_their_standard_deviations(orthogonal):
    drawn = RandomLayer("tanh", 3.0, 0.5).random_features(20_000, 4, np.random.RandomState(0), orthogonal)
    # 5 standard errors of a standard deviation
    assert_allclose(drawn.weights.std(axis=0), 3.0, rtol=5 / np.sqrt(40_000))
    assert_allclose(drawn.offset.std(), 0.5, rtol=5 / np.sqrt(40_000))
    assert_allclose(np.corrcoef(drawn.weights.T, drawn.offset), np.eye(5), atol=5 / np.sqrt(20_000))
    assert_array_equal(RandomLayer(bias_scale=0.0, scale=1.0).random_features(9, 4, np.random.RandomState(0)).offset, 0)


@pytest.mark.parametrize(("activation", "degree"), [("relu", 1), ("step", 0)])
def test_wide_layers_converge_to_the_arc_cosine_kernel(activation, degree):
    X = np.random.default_rng(0).standard_normal((30, 3))
    K, errors = ArcCosine(degree)(X, X), []
    for M in (100, 10_000):
        drawn = [RandomLayer(activation, 1.0, 0.0).random_features(M, 3, np.random.RandomState(i)) for i in range(10)]
        errors.append(np.sqrt(np.mean([np.square(2 * f(X) @ f(X).T - K) for f in drawn])))
    # like 1 / sqrt(M): 10 for 100 times the units
    assert 5 < errors[0] / errors[1] < 20
    assert errors[1] < 0.02 * np.abs(K).max()


def test_a_bias_is_one_more_feature():
    X = np.random.default_rng(0).standard_normal((20, 3))
    wide = RandomLayer("relu", 1.0, 0.5).random_features(200_000, 3, np.random.RandomState(0))(X)
    with_bias = np.column_stack([X, np.full(20, 0.5)])
    assert_allclose(2 * wide @ wide.T, ArcCosine(1)(with_bias, with_bias), atol=0.15)


def test_cosines_are_a_gaussian_kernel_plus_what_the_phase_leaves():
    # E cos(a + b) cos(c + b) = (E cos(a - c) + E cos(a + c + 2 b)) / 2, and the second is exp(-|x + z|^2 / 2 - 2 s^2)
    X = np.random.default_rng(0).standard_normal((20, 2))
    wide = RandomLayer("cos", 1.0, 3.0).random_features(100_000, 2, np.random.RandomState(0))(X)
    assert_allclose(2 * wide @ wide.T, Gaussian(1.0)(X, X), atol=0.02)


def test_values_of_the_kernel():
    X = np.random.default_rng(0).standard_normal((20, 3))
    layer = RandomLayer("relu", 1.0, 0.0)
    K = layer(X, X)
    # relative errors of a mean of 2,048 units are a few times 1 / sqrt(2048)
    assert np.linalg.norm(2 * K - ArcCosine(1)(X, X)) < 0.1 * np.linalg.norm(2 * K)
    assert_array_equal(K, layer(X, X))
    assert_allclose(layer.diag(X), np.diag(K), rtol=1e-12)
    sparse = scipy.sparse.csr_array(X)
    assert_allclose(layer(sparse, sparse), K, rtol=1e-12)
    assert layer.constant_diag() is None


def test_the_scale_follows_the_rows(data):
    X = data[0]
    found = RandomLayer().resolve(1e3 * X)
    assert found.scale == pytest.approx(1 / np.sqrt(np.var(1e3 * X, axis=0).sum()))
    assert not RandomLayer().has_given_scale
    assert RandomLayer(scale=2.0).has_given_scale
    with pytest.raises(ValueError, match=r"scale='auto' has no value yet: call resolve\(X\) first"):
        RandomLayer()(X, X)


def test_defaults_learn(data):
    X, y = data
    model = RandomFeaturesRegressor(RandomLayer("tanh"), n_components=200, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
    labels = y > 0
    assert (
        RandomFeaturesClassifier(RandomLayer(), n_components=200, random_state=0).fit(X, labels).score(X, labels) > 0.8
    )
    few = FeatureSelectionRegressor(RandomLayer("tanh"), n_components=20, n_rounds=3, random_state=0).fit(X, y)
    assert {name for name, _ in few.feature_map_.activations} == {"tanh"}


def test_a_function_can_be_selected_scaled_and_added(data):
    X = data[0]
    kernel = 4.0 * RandomLayer(bump, 1.0) + RandomLayer("tanh", 1.0)
    F = RandomFeatures(kernel, n_components=10, random_state=0).fit(X).feature_map_
    some = np.array([0, 7, 3, 4])
    assert_allclose(F.take(some)(X), F(X)[:, some], rtol=1e-12)
    assert F.take(some).activations == ((bump, 1), ("tanh", 1), (bump, 2))


def test_model_files_hold_names_and_no_functions(data, tmp_path):
    X, y = data
    options = {"n_components": 30, "penalty": 1e-3, "random_state": 0}
    model = RandomFeaturesRegressor(RandomLayer("erf"), **options).fit(X, y)
    model.save(tmp_path / "model")
    loaded = gyrfalcon.load(tmp_path / "model")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.kernel_.activation == "erf"
    own = RandomFeaturesRegressor(RandomLayer(bump), **options).fit(X, y)
    with pytest.raises(TypeError, match=r"'kernel.activation' cannot go into a model file.*a named kernel or activ"):
        own.save(tmp_path / "own")


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (RandomLayer("rleu"), ValueError, r"activation='rleu' is not known: use one of .*relu"),
        (RandomLayer(3), TypeError, "activation=3 must be one of .*, or a function of an array"),
        (RandomLayer(scale=0.0), ValueError, "scale=0.0 must be a finite number greater than 0"),
        (RandomLayer(scale="big"), ValueError, "scale='big' must be"),
        (RandomLayer(bias_scale=-1.0), ValueError, "bias_scale=-1.0 must be a finite number, not negative"),
        (RandomLayer(lambda a: a[:, 0]), ValueError, r"gave an array of .* shape \(\d+,\) .* in the same shape"),
        (RandomLayer(lambda a: a * 1j), ValueError, "of type complex128 .* must give real numbers"),
    ],
)
def test_bad_parameters(data, layer, error, message):
    with pytest.raises(error, match=message):
        RandomFeaturesRegressor(layer, n_components=5, penalty=1e-3).fit(*data)
