"""scikit-learn's own checks of what an estimator must do."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from gyrfalcon import FalkonClassifier, FalkonRegressor


@parametrize_with_checks([FalkonRegressor(), FalkonClassifier()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
