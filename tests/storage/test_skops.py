"""skops keeps fitted estimators; what it has to be told to trust is Gyrfalcon's own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gyrfalcon import (
    ExactClassifier,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
    NystromRegressor,
    RandomFeaturesRegressor,
)
from gyrfalcon.kernels import Gaussian, Linear

skops = pytest.importorskip("skops.io")

X = np.random.default_rng(0).standard_normal((100, 2))


@pytest.mark.parametrize(
    "model",
    [
        FalkonRegressor(Gaussian(1.0) + 0.1 * Linear(), n_centers=10, random_state=0),
        NystromRegressor(n_centers=10, uncertainty=True, random_state=0),
        RandomFeaturesRegressor(n_components=10, random_state=0),
        FalkonClassifier(loss="logistic", n_centers=10, random_state=0),
        ExactClassifier(random_state=0),
        HierarchicalRegressor(leaf_size=20, uncertainty=True, random_state=0),
        HierarchicalClassifier(leaf_size=20, random_state=0),
        make_pipeline(StandardScaler(), FalkonRegressor(n_centers=10, random_state=0)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_same_predictions(model):
    y = X[:, 0] > 0 if "Classifier" in type(model).__name__ else X[:, 0]
    expected = model.fit(X, y).predict(X)
    written = skops.dumps(model)
    unknown = skops.get_untrusted_types(data=written)
    assert all(name.startswith("gyrfalcon.") for name in unknown)
    assert np.array_equal(skops.loads(written, trusted=unknown).predict(X), expected)
