"""Classifiers that regress on targets +1 and -1: each is its regressor on these."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain

from gyrfalcon.baselines import (
    DivideAndConquerClassifier,
    DivideAndConquerRegressor,
    EigenProClassifier,
    EigenProRegressor,
    EnsembleClassifier,
    EnsembleRegressor,
    FeatureSelectionClassifier,
    FeatureSelectionRegressor,
)
from gyrfalcon.kernels import Gaussian, Laplacian

pytestmark = pytest.mark.filterwarnings("error")

PAIRS = {
    "eigenpro": (EigenProClassifier, EigenProRegressor, {"kernel": Laplacian(1.5), "max_iter": 3}),
    "parts": (
        DivideAndConquerClassifier,
        DivideAndConquerRegressor,
        {"kernel": Gaussian(1.2), "penalty": 1e-3, "n_partitions": 4},
    ),
    "ensemble": (
        EnsembleClassifier,
        EnsembleRegressor,
        {"kernel": Gaussian(1.2), "penalty": 1e-3, "n_components": 20, "n_estimators": 3},
    ),
    "selected features": (
        FeatureSelectionClassifier,
        FeatureSelectionRegressor,
        {"kernel": Gaussian(1.2), "penalty": 1e-3, "n_components": 30, "n_rounds": 3},
    ),
}
WEIGHTED = [pair for pair in PAIRS if pair != "eigenpro"]


def data(n_classes, n=150):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    return X, np.digitize(
        np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n), np.linspace(-0.7, 0.7, n_classes + 1)[1:-1]
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("pair", PAIRS)
def test_it_is_the_regression_on_signs(pair, n_classes, fit_intercept):
    Classifier, Regressor, parameters = PAIRS[pair]
    X, codes = data(n_classes)
    labels = np.array(["a", "b", "c", "d"])[codes]
    options = {**parameters, "fit_intercept": fit_intercept, "random_state": 0}
    model = plain(Classifier, **options).fit(X, labels)
    signs = np.where(codes == 1, 1.0, -1.0) if n_classes == 2 else np.where(codes[:, None] == np.arange(4), 1.0, -1.0)
    other = plain(Regressor, **options).fit(X, signs)
    assert_allclose(model.decision_function(X), other.predict(X), atol=1e-12)
    best = (other.predict(X) > 0).astype(int) if n_classes == 2 else other.predict(X).argmax(axis=1)
    assert_array_equal(model.predict(X), model.classes_[best])
    assert model.score(X, labels) > 0.7


@pytest.mark.parametrize("pair", WEIGHTED)
def test_class_weights_are_sample_weights(pair):
    Classifier, _, parameters = PAIRS[pair]
    X, codes = data(2)
    options = {**parameters, "random_state": 0}
    by_class = plain(Classifier, **options, class_weight={0: 1.0, 1: 5.0}).fit(X, codes)
    by_row = plain(Classifier, **options).fit(X, codes, sample_weight=np.where(codes, 5.0, 1.0))
    assert_array_equal(by_class.decision_function(X), by_row.decision_function(X))
    assert np.mean(by_class.predict(X)) > np.mean(plain(Classifier, **options).fit(X, codes).predict(X))


def test_early_stopping_by_wrong_classes():
    X, codes = data(4, n=400)
    model = plain(EigenProClassifier, Laplacian(1.0), early_stopping=True, max_iter=50, random_state=0).fit(X, codes)
    errors = [record["validation_error"] for record in model.history_]
    assert len(errors) < 50
    assert min(errors) < 0.2
    assert len(model.centers_) == 360


def test_eigenpro_has_no_weights():
    X, codes = data(2)
    with pytest.raises(TypeError, match="sample_weight"):
        EigenProClassifier().fit(X, codes, sample_weight=np.ones(len(X)))
    with pytest.raises(TypeError, match="class_weight"):
        EigenProClassifier(class_weight="balanced")


@pytest.mark.parametrize(
    ("cls", "wrong", "message"),
    [
        (EnsembleClassifier, {"n_estimators": 0}, "n_estimators=0"),
        (EnsembleClassifier, {"n_components": 0}, "n_components=0"),
        (EnsembleClassifier, {"penalty": -1.0}, "penalty=-1.0"),
        (EnsembleClassifier, {"class_weight": "even"}, "even"),
        (FeatureSelectionClassifier, {"n_rounds": 0}, "n_rounds=0"),
        (FeatureSelectionClassifier, {"kernel": "box"}, "box"),
        (FeatureSelectionClassifier, {"memory_budget": "1kB"}, "memory_budget"),
        (DivideAndConquerClassifier, {"n_partitions": 0}, "n_partitions=0"),
        (DivideAndConquerClassifier, {"penalty": -1.0}, "penalty=-1.0"),
        (EigenProClassifier, {"max_iter": 0}, "max_iter=0"),
        (EigenProClassifier, {"batch_size": 0}, "batch_size=0"),
        (EigenProClassifier, {"step": -1.0}, "step=-1.0"),
    ],
)
def test_wrong_parameters(cls, wrong, message):
    X, codes = data(2)
    with pytest.raises((ValueError, MemoryError), match=message):
        cls(**wrong).fit(X, codes)
