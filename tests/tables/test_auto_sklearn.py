"""AutoRegressor and AutoClassifier are scikit-learn estimators like any other."""

from __future__ import annotations

from short_search import Brief
from sklearn.utils.estimator_checks import parametrize_with_checks

from gyrfalcon import AutoClassifier, AutoRegressor

# A row twice may be in two folds, or twice in a sample; a row of weight 2 is in one.
NOT_REPEATED = "folds and samples are drawn of rows, whatever their weights"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": NOT_REPEATED,
    "check_sample_weight_equivalence_on_sparse_data": NOT_REPEATED,
}


@parametrize_with_checks(
    [AutoRegressor(families=("kernel",), callbacks=Brief()), AutoClassifier(families=("kernel",), callbacks=Brief())],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
